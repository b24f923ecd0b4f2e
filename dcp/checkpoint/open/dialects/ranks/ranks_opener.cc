// Tested by tests/dcp/checkpoint/open/dialects/dialects_test.cc.
#include "dcp/checkpoint/open/dialects/ranks/ranks_opener.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "dcp/base/stop.h"
#include "dcp/checkpoint/open/dialects/ranks/optimizer_names.h"
#include "dcp/checkpoint/open/dialects/ranks/rank_files.h"
#include "dcp/checkpoint/open/dialects/state_collector.h"
#include "dcp/checkpoint/open/source_files.h"
#include "dcp/checkpoint/open/torch_opener.h"
#include "dcp/format/rank_tensor.h"
#include "dcp/format/state_path.h"
#include "dcp/format/value_lookup.h"

namespace dcp {
namespace {

using Kind = Value::Kind;

// One rank's file.
struct RankFile {
  uint32_t file = 0;
  int64_t rank = 0;
  int64_t world_size = 0;  // the number of files of its family
  const TorchArchive* archive = nullptr;
  Value root;
};

// A family whose files were read.
struct RankPart {
  std::string name;  // as RankFiles::part
  std::vector<RankFile> files;
};

// Gives `optimizer` of one rank names; `found` are those of rank 0.
void NameOptimizer(ValueArena& arena, const OptimizerNames& found,
                   Value& optimizer) {
  if (!found.empty()) optimizer = WithNames(arena, optimizer, found);
}

// The same for an optimizer that is in a file with the model.
void NameOptimizerInside(ValueArena& arena, const OptimizerNames& found,
                         Value& root) {
  if (found.empty() || !IsMapping(root)) return;
  std::vector<Value> items(root.items().begin(), root.items().end());
  for (size_t i = 0; i < items.size(); i += 2) {
    if (items[i].is(Kind::kStr) && items[i].text() == "optimizer") {
      items[i + 1] = WithNames(arena, items[i + 1], found);
    }
  }
  root = arena.Dict(items);
}

// Replaces numbers of parameters by names where these can be found.
void NameOptimizers(ValueArena& arena, std::vector<RankPart>& parts) {
  RankPart* model = nullptr;
  RankPart* optimizer = nullptr;
  for (RankPart& part : parts) {
    if (part.name == "model") model = &part;
    if (part.name == "optimizer") optimizer = &part;
    if (!part.name.empty()) continue;
    const Value& root = part.files[0].root;
    const std::optional<Value> inner_model = FindKey(root, "model");
    const std::optional<Value> inner = FindKey(root, "optimizer");
    if (!inner_model.has_value() || !inner.has_value()) continue;
    const OptimizerNames names = FindOptimizerNames(*inner_model, *inner);
    for (RankFile& file : part.files) {
      NameOptimizerInside(arena, names, file.root);
    }
  }
  if (model == nullptr || optimizer == nullptr) return;
  const OptimizerNames names =
      FindOptimizerNames(model->files[0].root, optimizer->files[0].root);
  for (RankFile& file : optimizer->files) {
    NameOptimizer(arena, names, file.root);
  }
}

absl::StatusOr<StateCollector::Part> PartOf(const RankFile& file,
                                            RankTensor tensor) {
  if (tensor.world_size.value_or(file.world_size) != file.world_size ||
      tensor.rank.value_or(file.rank) != file.rank) {
    return absl::DataLossError(absl::StrCat(
        "the file is that of rank ", file.rank, " of ", file.world_size,
        ", but its contents are those of rank ", tensor.rank.value_or(-1),
        " of ", tensor.world_size.value_or(-1)));
  }
  StateCollector::Part part;
  part.dtype = tensor.dtype;
  part.shape = std::move(tensor.shape);
  for (RankTensor::Piece& piece : tensor.pieces) {
    DCP_ASSIGN_OR_RETURN(
        const TensorEntry local,
        TensorInArchive(*file.archive, piece.tensor, file.file, 0));
    part.locations.push_back(
        PartOfChunk(local, {piece.offsets, piece.box.sizes}));
    part.boxes.push_back(std::move(piece.box));
  }
  return part;
}

// Adds one leaf of a rank's file. `mesh` gets the mesh of a DTensor.
absl::Status AddLeaf(const RankFile& file, const StatePath& path,
                     const Value& value, StateCollector& collector,
                     std::string& mesh) {
  if (!IsRankTensor(value)) {
    DCP_ASSIGN_OR_RETURN(CheckpointEntry entry,
                         EntryInArchive(*file.archive, value, file.file));
    return collector.AddValue(path, file.rank, std::move(entry));
  }
  DCP_ASSIGN_OR_RETURN(RankTensor tensor, ParseRankTensor(value));
  if (!tensor.mesh.empty()) mesh = tensor.mesh;
  DCP_ASSIGN_OR_RETURN(StateCollector::Part part,
                       PartOf(file, std::move(tensor)));
  return collector.AddPart(path, file.rank, std::move(part));
}

absl::Status AddFile(const RankFile& file, const std::string& part,
                     const std::stop_token& stop, StateCollector& collector,
                     std::string& mesh) {
  absl::StatusOr<std::vector<FlatValue>> leaves = Flatten(file.root);
  if (!leaves.ok()) return absl::DataLossError(leaves.status().message());
  for (FlatValue& leaf : *leaves) {
    DCP_RETURN_IF_ERROR(CheckStop(stop, kOpening));
    if (!part.empty()) leaf.path.insert(leaf.path.begin(), part);
    DCP_RETURN_IF_ERROR(
        Annotate(AddLeaf(file, leaf.path, leaf.value, collector, mesh),
                 PathToName(leaf.path)));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<RankPart>> ReadFiles(
    FileSystem& fs, const std::vector<RankFiles>& families,
    const OpenOptions& options, const std::stop_token& stop,
    CheckpointParts& parts) {
  std::vector<RankPart> result;
  uint32_t index = 0;
  for (const RankFiles& family : families) {
    RankPart& part = result.emplace_back();
    part.name = family.part;
    for (size_t rank = 0; rank < family.names.size(); ++rank, ++index) {
      DCP_RETURN_IF_ERROR(CheckStop(stop, kOpening));
      DCP_ASSIGN_OR_RETURN(const File file, parts.files->Get(index));
      const absl::StatusOr<const TorchArchive*> archive =
          AddArchive(fs, file, options, stop, parts);
      if (!archive.ok()) {
        return Annotate(archive.status(), parts.files->PathOf(index));
      }
      part.files.push_back(
          {.file = index,
           .rank = static_cast<int64_t>(rank),
           .world_size = static_cast<int64_t>(family.names.size()),
           .archive = *archive,
           .root = (*archive)->root});
    }
  }
  return result;
}

absl::StatusOr<CheckpointParts> OpenRankFiles(
    const SourceDirectory& directory, const std::vector<RankFiles>& families,
    const OpenOptions& options, const std::stop_token& stop) {
  CheckpointParts parts;
  parts.format = Format::kTorch;
  parts.dialect = Dialect::kRanks;
  std::vector<std::string> names;
  size_t num_ranks = 0;
  for (const RankFiles& family : families) {
    names.insert(names.end(), family.names.begin(), family.names.end());
    num_ranks = std::max(num_ranks, family.names.size());
  }
  parts.files = std::make_unique<SourceFiles>(*directory.fs, directory.path,
                                              std::move(names), options.direct,
                                              /*follow_symlinks=*/false);
  DCP_ASSIGN_OR_RETURN(
      std::vector<RankPart> ranks,
      ReadFiles(*directory.fs, families, options, stop, parts));
  NameOptimizers(parts.arena, ranks);
  StateCollector collector;
  std::string mesh;
  for (const RankPart& part : ranks) {
    for (const RankFile& file : part.files) {
      DCP_RETURN_IF_ERROR(
          Annotate(AddFile(file, part.name, stop, collector, mesh),
                   parts.files->PathOf(file.file)));
    }
  }
  absl::StatusOr<std::vector<CheckpointEntry>> entries =
      std::move(collector).Finish();
  if (!entries.ok()) return Annotate(entries.status(), directory.path);
  parts.entries = *std::move(entries);
  parts.properties.emplace_back("ranks", absl::StrCat(num_ranks));
  if (!mesh.empty()) parts.properties.emplace_back("mesh", mesh);
  return parts;
}

}  // namespace

absl::StatusOr<std::optional<CheckpointParts>> TryOpenRanks(
    const SourceDirectory& directory, const OpenOptions& options,
    const std::stop_token& stop) {
  absl::StatusOr<std::vector<RankFiles>> families =
      options.dialect.rank_files.empty()
          ? FindRankFiles(directory.entries)
          : FindRankFiles(directory.entries, options.dialect.rank_files);
  if (!families.ok()) return Annotate(families.status(), directory.path);
  if (families->empty()) return std::nullopt;
  return OpenRankFiles(directory, *families, options, stop);
}

}  // namespace dcp
