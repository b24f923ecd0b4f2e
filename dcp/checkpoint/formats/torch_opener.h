// SPDX-License-Identifier: Apache-2.0
// Opens the torch.save files of a model: usually one .pt file, or the .bin
// shards of Hugging Face. Each file holds a nested state dict, as a zip or in
// the format from before PyTorch 1.6, which is flattened to names as DCP does.
// Any thread.
#ifndef DCP_CHECKPOINT_FORMATS_TORCH_OPENER_H_
#define DCP_CHECKPOINT_FORMATS_TORCH_OPENER_H_

#include <cstdint>
#include <stop_token>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "dcp/checkpoint/files/checkpoint_entry.h"
#include "dcp/checkpoint/files/checkpoint_parts.h"
#include "dcp/checkpoint/files/open_options.h"
#include "dcp/checkpoint/formats/model_files.h"
#include "dcp/format/torch/torch_archive.h"
#include "dcp/io/file_system.h"

namespace dcp {

// What the index of several files does not name is left out; without an index,
// DataLoss when two files have a value of the same name. Links are followed,
// because a model hub's cache consists of links. Cancelled once `stop` is
// requested, but parsing a pickle is not interrupted.
absl::StatusOr<CheckpointParts> OpenTorch(FileSystem& fs,
                                          const ModelFiles& model,
                                          const OpenOptions& options,
                                          const std::stop_token& stop = {});

// Reads the structures of all files of `parts`, which become its archives; in a
// store many at the same time. Those that `may_be_bare` is true for may also be
// pickles without an archive around them. An error begins with the path.
absl::Status ReadArchives(FileSystem& fs, const OpenOptions& options,
                          const std::stop_token& stop,
                          absl::FunctionRef<bool(uint32_t)> may_be_bare,
                          CheckpointParts& parts);

// The structure of an archive that is only a part of its file.
absl::StatusOr<TorchArchive> ReadArchiveInFile(FileSystem& fs, const File& file,
                                               uint64_t start, uint64_t length,
                                               const OpenOptions& options,
                                               const std::stop_token& stop);

// The entry, without name and path, of a tensor or an object in `archive`,
// which begins at byte `start` of file `file`; an object that only says why if
// it cannot be used.
absl::StatusOr<CheckpointEntry> EntryInArchive(const TorchArchive& archive,
                                               const Value& value,
                                               uint32_t file,
                                               uint64_t start = 0);

// OK if an item, of which an index says that it is a tensor, holds one.
// Unimplemented for an object that only its own program makes a tensor of,
// otherwise DataLoss; both name its contents.
absl::Status CheckHoldsTensor(const TorchArchive& archive);

// The tensor that `value` describes, as an entry of one chunk in `archive`,
// which begins at byte `start` of file `file`.
absl::StatusOr<TensorEntry> TensorInArchive(const TorchArchive& archive,
                                            const Value& value, uint32_t file,
                                            uint64_t start);

// The storage with that persistent id, as a tensor of one dimension.
absl::StatusOr<TensorEntry> StorageInArchive(const TorchArchive& archive,
                                             const Value& value, uint32_t file,
                                             uint64_t start);

// The object `value`, which must outlive the entry, with its tensors and
// storages; unreadable if one of them is not supported.
absl::StatusOr<ObjectEntry> ObjectInArchive(const TorchArchive& archive,
                                            const Value& value, uint32_t file,
                                            uint64_t start);
// The same for a value that is unreadable because of `why`, with its storages.
ObjectEntry UnreadableObject(const TorchArchive& archive, const Value& value,
                             uint32_t file, uint64_t start, absl::Status why);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_FORMATS_TORCH_OPENER_H_
