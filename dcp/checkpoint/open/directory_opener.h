// SPDX-License-Identifier: Apache-2.0
// Opens a directory with a checkpoint in any dialect. Any thread.
#ifndef DCP_CHECKPOINT_OPEN_DIRECTORY_OPENER_H_
#define DCP_CHECKPOINT_OPEN_DIRECTORY_OPENER_H_

#include <stop_token>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/files/checkpoint_parts.h"
#include "dcp/checkpoint/files/open_options.h"
#include "dcp/io/file_system.h"

namespace dcp {

// The dialect is the one in `options`; without one, the first that has signs
// among the names in the directory. NotFound if no dialect has signs there,
// with advice if something else is recognised. Cancelled once `stop` is
// requested.
absl::StatusOr<CheckpointParts> OpenDirectory(FileSystem& fs,
                                              absl::string_view path,
                                              const OpenOptions& options,
                                              const std::stop_token& stop);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_OPEN_DIRECTORY_OPENER_H_
