// SPDX-License-Identifier: Apache-2.0
// The end of a transfer that an error belongs to: the side that was read or the
// side that was written. A Status carries the side, so that a program can tell
// a broken source from a full disk. Any thread.
#ifndef DCP_BASE_ERROR_SIDE_H_
#define DCP_BASE_ERROR_SIDE_H_

#include <cstdint>

#include "absl/status/status.h"

namespace dcp {

enum class ErrorSide : uint8_t { kNone, kSource, kDestination };

// `status` marked with `side`, unless it is OK or already marked.
absl::Status WithSide(absl::Status status, ErrorSide side);

ErrorSide StatusSide(const absl::Status& status);

}  // namespace dcp

#endif  // DCP_BASE_ERROR_SIDE_H_
