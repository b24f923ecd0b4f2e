// SPDX-License-Identifier: Apache-2.0
// Opens a model's torch.save files: usually one .pt file, or Hugging Face's
// .bin shards. Each file holds a nested state dict, as a zip or in the format
// from before PyTorch 1.6; it is flattened to names as DCP does. Any thread.
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

// Values that the index of several files does not name are left out; without an
// index, DataLoss when two files have a value with the same name. Links are
// followed, because a model hub's cache consists of links. Cancelled once
// `stop` is requested, but parsing a pickle is not interrupted.
absl::StatusOr<CheckpointParts> OpenTorch(FileSystem& fs,
                                          const ModelFiles& model,
                                          const OpenOptions& options,
                                          const std::stop_token& stop = {});

// Reads the structures of all files in `parts` and keeps them as archives; in a
// store many at the same time. Files for which `may_be_bare` returns true may
// also be pickles without an archive around them. An error begins with the
// path.
absl::Status ReadArchives(FileSystem& fs, const OpenOptions& options,
                          const std::stop_token& stop,
                          absl::FunctionRef<bool(uint32_t)> may_be_bare,
                          CheckpointParts& parts);

// The structure of an archive that is only a part of the file.
absl::StatusOr<TorchArchive> ReadArchiveInFile(FileSystem& fs, const File& file,
                                               uint64_t start, uint64_t length,
                                               const OpenOptions& options,
                                               const std::stop_token& stop);

// The entry, without name and path, for a tensor or an object in `archive`,
// which begins at byte `start` of file `file`; if it cannot be used, an object
// with the reason.
absl::StatusOr<CheckpointEntry> EntryInArchive(const TorchArchive& archive,
                                               const Value& value,
                                               uint32_t file,
                                               uint64_t start = 0);

// OK if an item that the index lists as a tensor holds one. Unimplemented for
// an object that only one program can turn into a tensor, otherwise DataLoss;
// both name the contents.
absl::Status CheckHoldsTensor(const TorchArchive& archive);

// The tensor that `value` describes, as an entry with one chunk in `archive`,
// which begins at byte `start` of file `file`.
absl::StatusOr<TensorEntry> TensorInArchive(const TorchArchive& archive,
                                            const Value& value, uint32_t file,
                                            uint64_t start);

// The storage with this persistent id, as a tensor with one dimension.
absl::StatusOr<TensorEntry> StorageInArchive(const TorchArchive& archive,
                                             const Value& value, uint32_t file,
                                             uint64_t start);

// The object `value`, which must outlive the entry, with the tensors and
// storages in it; unreadable if one of them is not supported.
absl::StatusOr<ObjectEntry> ObjectInArchive(const TorchArchive& archive,
                                            const Value& value, uint32_t file,
                                            uint64_t start);
// The same for a value that is unreadable because of `why`, with the storages.
ObjectEntry UnreadableObject(const TorchArchive& archive, const Value& value,
                             uint32_t file, uint64_t start, absl::Status why);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_FORMATS_TORCH_OPENER_H_
