// SPDX-License-Identifier: Apache-2.0
// Checks the file names in an index, so that a hostile index cannot lead out of
// the directory. Pure; any thread.
#ifndef DCP_FORMAT_FILE_RELATIVE_PATH_H_
#define DCP_FORMAT_FILE_RELATIVE_PATH_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace dcp {

// InvalidArgument unless `path` is a relative path that stays inside the
// directory: not empty, no NUL, no empty, "." or ".." component.
absl::Status CheckRelativePath(absl::string_view path);

}  // namespace dcp

#endif  // DCP_FORMAT_FILE_RELATIVE_PATH_H_
