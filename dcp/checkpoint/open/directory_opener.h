// SPDX-License-Identifier: Apache-2.0
// Opens a directory, whichever dialect the checkpoint in it is. Any thread.
#ifndef DCP_CHECKPOINT_OPEN_DIRECTORY_OPENER_H_
#define DCP_CHECKPOINT_OPEN_DIRECTORY_OPENER_H_

#include <stop_token>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/files/checkpoint_parts.h"
#include "dcp/checkpoint/files/open_options.h"
#include "dcp/io/file_system.h"

namespace dcp {

// The dialect is that of `options`; without one, the first that finds its signs
// among the names in the directory. NotFound if none does, with what to do
// instead where something else is recognised. Cancelled once `stop` is
// requested.
absl::StatusOr<CheckpointParts> OpenDirectory(FileSystem& fs,
                                              absl::string_view path,
                                              const OpenOptions& options,
                                              const std::stop_token& stop);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_OPEN_DIRECTORY_OPENER_H_
