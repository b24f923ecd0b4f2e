// SPDX-License-Identifier: Apache-2.0
// ParseJsonValue: a JSON text as a Value with dicts, lists, strings and
// numbers, as Python's json.loads returns it. For small files next to a
// checkpoint, such as a trainer's state. Pure; any thread.
#ifndef DCP_FORMAT_JSON_JSON_VALUE_H_
#define DCP_FORMAT_JSON_JSON_VALUE_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/format/value/value.h"

namespace dcp {

// The value, which lives in `arena`. DataLoss, with the byte offset, when
// `text` is not JSON or nested too deeply.
absl::StatusOr<Value> ParseJsonValue(absl::string_view text, ValueArena& arena);

}  // namespace dcp

#endif  // DCP_FORMAT_JSON_JSON_VALUE_H_
