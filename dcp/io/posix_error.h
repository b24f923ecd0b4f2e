// errno -> absl::Status, the only place. Any thread.
#ifndef DCP_IO_POSIX_ERROR_H_
#define DCP_IO_POSIX_ERROR_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace dcp {

// The status for `error`, an errno, with "<what>: <text of errno>". `error`
// is not 0.
absl::Status PosixError(int error, absl::string_view what);

}  // namespace dcp

#endif  // DCP_IO_POSIX_ERROR_H_
