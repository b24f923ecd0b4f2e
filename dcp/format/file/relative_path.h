// SPDX-License-Identifier: Apache-2.0
// Checks the names of files that an index contains, so that a hostile index
// cannot lead out of its directory. Pure; any thread.
#ifndef DCP_FORMAT_FILE_RELATIVE_PATH_H_
#define DCP_FORMAT_FILE_RELATIVE_PATH_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace dcp {

// InvalidArgument unless `path` is a relative path that stays inside its
// directory: not empty, no NUL, no empty, "." or ".." component.
absl::Status CheckRelativePath(absl::string_view path);

}  // namespace dcp

#endif  // DCP_FORMAT_FILE_RELATIVE_PATH_H_
