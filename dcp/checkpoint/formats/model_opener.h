// SPDX-License-Identifier: Apache-2.0
// Opens a model in safetensors or torch.save files; the first file decides. Any
// thread.
#ifndef DCP_CHECKPOINT_FORMATS_MODEL_OPENER_H_
#define DCP_CHECKPOINT_FORMATS_MODEL_OPENER_H_

#include <stop_token>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/files/checkpoint_parts.h"
#include "dcp/checkpoint/files/open_options.h"
#include "dcp/checkpoint/formats/model_files.h"
#include "dcp/io/file_system.h"

namespace dcp {

// The first file determines the format, because an index can have any name.
absl::StatusOr<CheckpointParts> OpenModel(FileSystem& fs,
                                          const ModelFiles& model,
                                          const OpenOptions& options,
                                          const std::stop_token& stop = {});

// Whether the file begins like a safetensors or torch.save file. Reads only the
// first bytes; for callers that are about to replace it.
absl::StatusOr<bool> IsCheckpointFile(FileSystem& fs, absl::string_view path);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_FORMATS_MODEL_OPENER_H_
