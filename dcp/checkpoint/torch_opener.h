// Opens a .pt file: a nested state dict that torch.save wrote, as a zip or in
// the format from before PyTorch 1.6, flattened to names as DCP does. Any
// thread.
#ifndef DCP_CHECKPOINT_TORCH_OPENER_H_
#define DCP_CHECKPOINT_TORCH_OPENER_H_

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "dcp/checkpoint/checkpoint.h"
#include "dcp/format/torch_archive.h"
#include "dcp/io/file_system.h"

namespace dcp {

absl::StatusOr<CheckpointParts> OpenTorchFile(FileSystem& fs,
                                              absl::string_view path,
                                              const OpenOptions& options);

// The tensor that `value` describes, as an entry of one chunk in `archive`,
// which begins at byte `start` of file `file`.
absl::StatusOr<TensorEntry> TensorInArchive(const TorchArchive& archive,
                                            const Value& value, uint32_t file,
                                            uint64_t start);

// The storage of that persistent id, as a tensor of one dimension.
absl::StatusOr<TensorEntry> StorageInArchive(const TorchArchive& archive,
                                             const Value& value, uint32_t file,
                                             uint64_t start);

// The object `value`, which outlives it, with the tensors and storages inside;
// unreadable where one of them is not supported.
absl::StatusOr<ObjectEntry> ObjectInArchive(const TorchArchive& archive,
                                            const Value& value, uint32_t file,
                                            uint64_t start);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_TORCH_OPENER_H_
