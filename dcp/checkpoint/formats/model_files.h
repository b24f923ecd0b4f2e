// SPDX-License-Identifier: Apache-2.0
// ModelFiles: the safetensors or torch.save files that make up a model: one
// file, the files that an index names, or the shards in a directory. Looks at
// names, not into the files. Any thread.
#ifndef DCP_CHECKPOINT_FORMATS_MODEL_FILES_H_
#define DCP_CHECKPOINT_FORMATS_MODEL_FILES_H_

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/files/source_loss.h"
#include "dcp/io/file_system.h"

namespace dcp {

// Which file holds which tensor, according to model.safetensors.index.json or
// pytorch_model.bin.index.json.
struct WeightIndex {
  std::string path;
  absl::flat_hash_map<std::string, std::string> weight_map;
};

struct ModelFiles {
  std::string directory;
  std::vector<std::string> names;  // in `directory`; sorted, at least one
  std::optional<WeightIndex> index;
};

// "model.safetensors.index.json" and similar names, also a variant's
// "model.safetensors.index.fp16.json".
bool IsWeightIndexName(absl::string_view name);

// "model-00001-of-00003.safetensors" or .bin: one of a model's several files.
bool IsShardName(absl::string_view name);

// The single file at `path`.
ModelFiles OneModelFile(absl::string_view path);

// The files that the index at `path` names, which must lie next to it. DataLoss
// when it is malformed or a name leads elsewhere; Unimplemented for published
// differences between weights; NotFound, with the names, when files are
// missing; Cancelled once `stop` is requested.
absl::StatusOr<ModelFiles> ReadWeightIndex(FileSystem& fs,
                                           absl::string_view path,
                                           const std::stop_token& stop);

// The model in `directory`, which has these entries; nullopt without any
// safetensors or .bin file. Safetensors files are preferred to .bin files, and
// an index to files that no index names. NotFound when a shard is missing
// according to an index or to the shards' own names (-00001-of-00003);
// FailedPrecondition, with the names, for several models; Cancelled once `stop`
// is requested.
absl::StatusOr<std::optional<ModelFiles>> FindModelFiles(
    FileSystem& fs, absl::string_view directory,
    absl::Span<const DirectoryEntry> entries, const std::stop_token& stop);

// Decides which tensors in the files belong to the model: without an index all,
// otherwise each where the index puts it. Files may have more, such as an older
// copy of a tensor that a later file replaces. Used by one thread.
class IndexedTensors {
 public:
  // `model` must outlive this.
  explicit IndexedTensors(const ModelFiles& model) : model_(model) {}

  // Whether the tensor `name` in file `file`, an index in the model's names,
  // belongs to the model. A part of a tensor belongs if the index has the name,
  // because an index names only one of the files with the parts. Called once
  // for each tensor found.
  bool Take(absl::string_view name, uint32_t file, bool is_part = false);

  // The names that the index does not have, in the order of the files.
  const std::vector<std::string>& surplus() const { return surplus_; }

  // DataLoss unless each tensor was in the file that the index names.
  absl::Status CheckAll() const;

 private:
  const ModelFiles& model_;
  // The index's names that were found, as views; and the files in which the
  // others were.
  absl::flat_hash_set<absl::string_view> taken_;
  absl::flat_hash_map<absl::string_view, uint32_t> elsewhere_;
  std::vector<std::string> surplus_;
};

// An error for a tensor that two files hold as a whole, and that no index
// assigns to one file.
absl::Status InTwoFilesError(absl::string_view name, absl::string_view file,
                             absl::string_view other_file);

// Reports that these tensors, at least one, are left out: "a, b and 3 others,
// which the index does not name".
SourceLoss SurplusLoss(absl::Span<const std::string> surplus);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_FORMATS_MODEL_FILES_H_
