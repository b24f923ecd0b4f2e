// SPDX-License-Identifier: Apache-2.0
// Converts errno to absl::Status; only this file does. Any thread.
#ifndef DCP_IO_POSIX_ERROR_H_
#define DCP_IO_POSIX_ERROR_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace dcp {

// The status for `error`, an errno other than 0, with the message "<what>:
// <text for errno>".
absl::Status PosixError(int error, absl::string_view what);

}  // namespace dcp

#endif  // DCP_IO_POSIX_ERROR_H_
