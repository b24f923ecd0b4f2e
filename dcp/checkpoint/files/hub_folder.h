// SPDX-License-Identifier: Apache-2.0
// A model's folder in the cache of Hugging Face's hub: models--ORG--NAME has
// `refs`, which name commits, `snapshots`, a folder for each commit, and
// `blobs`; the files in a snapshot are links to blobs. Blocking; any thread.
#ifndef DCP_CHECKPOINT_FILES_HUB_FOLDER_H_
#define DCP_CHECKPOINT_FILES_HUB_FOLDER_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/io/file_system.h"

namespace dcp {

// If `path` has the name of such a folder, the snapshot to read: that of
// refs/main, or the only one. Any other path is returned unchanged.
// FailedPrecondition, with their names, for several snapshots without
// refs/main; NotFound if nothing was downloaded.
absl::StatusOr<std::string> ResolveHubFolder(FileSystem& fs,
                                             absl::string_view path);

// `status`, which reports that nothing is at `path`, with advice if the path
// looks like a model name in the hub: hf://ORG/NAME or ORG/NAME.
absl::Status WithHubAdvice(const absl::Status& status, absl::string_view path);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_FILES_HUB_FOLDER_H_
