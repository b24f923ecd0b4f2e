// SPDX-License-Identifier: Apache-2.0
// How a parser gets bytes of the file or item that it reads: parsers do not
// know files; their callers pass this function. Offsets count from the start of
// the item. The span holds exactly `length` bytes and is valid until the next
// call; a range that leaves the item is an error.
#ifndef DCP_FORMAT_FILE_READ_AT_H_
#define DCP_FORMAT_FILE_READ_AT_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "dcp/base/bytes.h"

namespace dcp {

using ReadAt = absl::FunctionRef<absl::StatusOr<ByteSpan>(uint64_t offset,
                                                          uint64_t length)>;

}  // namespace dcp

#endif  // DCP_FORMAT_FILE_READ_AT_H_
