// Opens the safetensors files of a model: one, those of an index, or the shards
// that DCP's Hugging Face writer leaves, each with the offsets of its part in
// its header. Any thread.
#ifndef DCP_CHECKPOINT_SAFETENSORS_OPENER_H_
#define DCP_CHECKPOINT_SAFETENSORS_OPENER_H_

#include <stop_token>

#include "absl/status/statusor.h"
#include "dcp/checkpoint/checkpoint.h"
#include "dcp/checkpoint/model_files.h"
#include "dcp/io/file_system.h"

namespace dcp {

// Links are followed: a model hub's cache consists of links. Cancelled once
// `stop` is requested.
absl::StatusOr<CheckpointParts> OpenSafetensors(
    FileSystem& fs, const ModelFiles& model, const OpenOptions& options,
    const std::stop_token& stop = {});

}  // namespace dcp

#endif  // DCP_CHECKPOINT_SAFETENSORS_OPENER_H_
