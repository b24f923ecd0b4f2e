// SPDX-License-Identifier: Apache-2.0
// The folder of a model in the cache of Hugging Face's hub: models--ORG--NAME
// has `refs`, which name commits, `snapshots`, a folder for each commit, and
// `blobs`, to which the files of a snapshot are links. Blocking; any thread.
#ifndef DCP_CHECKPOINT_FILES_HUB_FOLDER_H_
#define DCP_CHECKPOINT_FILES_HUB_FOLDER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/io/file_system.h"

namespace dcp {

// The snapshot that `path` stands for if it is such a folder, by its name: that
// of refs/main, or the only one. Any other path is returned as it is.
// FailedPrecondition, with their names, when there are several and no
// refs/main; NotFound when nothing was downloaded.
absl::StatusOr<std::string> ResolveHubFolder(FileSystem& fs,
                                             absl::string_view path);

// `status`, which says that nothing is at `path`, with advice if the path looks
// like the name of a model in the hub: hf://ORG/NAME or ORG/NAME.
absl::Status WithHubAdvice(const absl::Status& status, absl::string_view path);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_FILES_HUB_FOLDER_H_
