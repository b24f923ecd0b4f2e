// SPDX-License-Identifier: Apache-2.0
// How a parser gets the bytes of the file or item that it reads. Parsers do not
// open files; their callers pass this function. Offsets count from the item's
// start. The span holds exactly `length` bytes and is valid until the next
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
