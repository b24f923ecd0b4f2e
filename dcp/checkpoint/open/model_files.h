// ModelFiles: the files of which a model of safetensors or torch.save files
// consists: one file, those that an index names, or the shards in a directory.
// Looks at names, not into the files. Any thread.
#ifndef DCP_CHECKPOINT_OPEN_MODEL_FILES_H_
#define DCP_CHECKPOINT_OPEN_MODEL_FILES_H_

#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "dcp/checkpoint/open/checkpoint_parts.h"
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

// "model.safetensors.index.json" and similar names.
bool IsWeightIndexName(absl::string_view name);

// The single file at `path`.
ModelFiles OneModelFile(absl::string_view path);

// The files that the index at `path` names, which must lie next to it. DataLoss
// when it is malformed or a name leads elsewhere; NotFound, with the names,
// when files are missing; Cancelled once `stop` is requested.
absl::StatusOr<ModelFiles> ReadWeightIndex(FileSystem& fs,
                                           absl::string_view path,
                                           const std::stop_token& stop);

// The model in `directory`, whose entries are given; nullopt when there is
// neither a safetensors nor a .bin file. Safetensors files are preferred to
// .bin files, and an index to files that no index names. NotFound when a shard
// is missing according to an index or to the shards' own names
// (-00001-of-00003); FailedPrecondition, with the names, when there are several
// models; Cancelled once `stop` is requested.
absl::StatusOr<std::optional<ModelFiles>> FindModelFiles(
    FileSystem& fs, absl::string_view directory,
    absl::Span<const DirectoryEntry> entries, const std::stop_token& stop);

// DataLoss unless each tensor in the index of `model`, if it has one, is in the
// file that the index names. `parts` are what was found in its files.
absl::Status CheckAgainstIndex(const ModelFiles& model,
                               const CheckpointParts& parts);

}  // namespace dcp

#endif  // DCP_CHECKPOINT_OPEN_MODEL_FILES_H_
