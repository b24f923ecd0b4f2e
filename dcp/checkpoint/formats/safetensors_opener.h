// SPDX-License-Identifier: Apache-2.0
// Opens a model's safetensors files: a single file, the files in an index, or
// the shards from DCP's Hugging Face writer, which have each part's offset in
// the header. Any thread.
#ifndef DCP_CHECKPOINT_FORMATS_SAFETENSORS_OPENER_H_
#define DCP_CHECKPOINT_FORMATS_SAFETENSORS_OPENER_H_

#include <stop_token>

#include "absl/status/statusor.h"
#include "dcp/checkpoint/files/checkpoint_parts.h"
#include "dcp/checkpoint/files/open_options.h"
#include "dcp/checkpoint/formats/model_files.h"
#include "dcp/io/file_system.h"

namespace dcp {

// Links are followed, because a model hub's cache consists of links. Cancelled
// once `stop` is requested.
absl::StatusOr<CheckpointParts> OpenSafetensors(
    FileSystem& fs, const ModelFiles& model, const OpenOptions& options,
    const std::stop_token& stop = {});

}  // namespace dcp

#endif  // DCP_CHECKPOINT_FORMATS_SAFETENSORS_OPENER_H_
