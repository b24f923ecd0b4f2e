// Opens a safetensors file or a directory of them: a model sharded with an
// index, or the shards that DCP's Hugging Face writer leaves, each with the
// offsets of its part in its header. Any thread.
#ifndef DCP_CHECKPOINT_SAFETENSORS_OPENER_H_
#define DCP_CHECKPOINT_SAFETENSORS_OPENER_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/checkpoint.h"
#include "dcp/io/file_system.h"

namespace dcp {

absl::StatusOr<CheckpointParts> OpenSafetensorsFile(FileSystem& fs,
                                                    absl::string_view path,
                                                    const OpenOptions& options);

// With *.safetensors.index.json the files it names, else all of them. Links
// are followed: a model hub's cache consists of links.
absl::StatusOr<CheckpointParts> OpenSafetensorsDirectory(
    FileSystem& fs, absl::string_view directory, const OpenOptions& options);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_SAFETENSORS_OPENER_H_
