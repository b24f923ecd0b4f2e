// SPDX-License-Identifier: Apache-2.0

#include "dcp/io/posix_error.h"

#include <string.h>

#include <cerrno>
#include <string>

#include "absl/strings/str_cat.h"

namespace dcp {
namespace {

absl::StatusCode ErrnoCode(int error) {
  switch (error) {
    case ENOENT:
      return absl::StatusCode::kNotFound;
    case EEXIST:
      return absl::StatusCode::kAlreadyExists;
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::StatusCode::kPermissionDenied;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case ENOMEM:
    case EMFILE:
    case ENFILE:
    case EMLINK:
    case ECANCELED:  // io_uring had no thread for it
      return absl::StatusCode::kResourceExhausted;
    case EINVAL:
    case ENAMETOOLONG:
    case ELOOP:
    case ENOTDIR:
    case EISDIR:
      return absl::StatusCode::kInvalidArgument;
    case ENOTEMPTY:
    case ETXTBSY:
      return absl::StatusCode::kFailedPrecondition;
    case ENOSYS:
    case EOPNOTSUPP:
    case EXDEV:
      return absl::StatusCode::kUnimplemented;
    // The disk or server may become available again.
    case EIO:
    case EINTR:
    case EAGAIN:
    case EBUSY:
    case ENODEV:
    case ENXIO:
    case ESTALE:
    case ETIMEDOUT:
    case ESHUTDOWN:
      return absl::StatusCode::kUnavailable;
    default:
      return absl::StatusCode::kUnknown;
  }
}

// The process limit that a user may raise.
absl::string_view AdviceFor(int error) {
  switch (error) {
    case EMFILE:
      return " in this process: raise the limit with ulimit -n";
    case EFBIG:
      return ": the limit is that of ulimit -f, or of the file system";
    case ECANCELED:
      return ": the kernel starts no more threads for this process: raise "
             "ulimit -u or the limits of the container";
    default:
      return "";
  }
}

}  // namespace

absl::Status PosixError(int error, absl::string_view what) {
  const char* text = strerrordesc_np(error);
  return absl::Status(ErrnoCode(error),
                      text != nullptr
                          ? absl::StrCat(what, ": ", text, AdviceFor(error))
                          : absl::StrCat(what, ": unknown errno ", error));
}

}  // namespace dcp
