// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/ranks/ranks_opener.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/option_name.h"
#include "dcp/base/status.h"
#include "dcp/base/stop.h"
#include "dcp/checkpoint/dialects/parts/items_index.h"
#include "dcp/checkpoint/dialects/parts/state_collector.h"
#include "dcp/checkpoint/dialects/ranks/flat_hints.h"
#include "dcp/checkpoint/dialects/ranks/flat_model.h"
#include "dcp/checkpoint/dialects/ranks/flat_optimizer.h"
#include "dcp/checkpoint/dialects/ranks/optimizer_names.h"
#include "dcp/checkpoint/dialects/ranks/rank_files.h"
#include "dcp/checkpoint/dialects/ranks/rank_part.h"
#include "dcp/checkpoint/files/source_files.h"
#include "dcp/checkpoint/formats/torch_opener.h"
#include "dcp/format/torch/rank_tensor.h"
#include "dcp/format/torch/state_path.h"
#include "dcp/format/value/value_lookup.h"

namespace dcp {
namespace {

using Kind = Value::Kind;

// torch_checkpointing renames the directory at the end of a save.
constexpr absl::string_view kUnfinishedPrefix = "tmp_";

// The most boxes that the sharded tensors in all files have together: this many
// per tensor on average, after some free ones. Uneven strided shards have a few
// boxes each; without a limit, a small pickle could have thousands in each
// tensor.
constexpr uint64_t kMaxMeanBoxes = 8;
constexpr uint64_t kNumFreeBoxes = uint64_t{1} << 14;

// Whether a mapping holds sharded tensors itself.
bool HasShards(const Value& state) {
  if (!IsMapping(state)) return false;
  for (size_t i = 1; i < state.items().size(); i += 2) {
    if (IsRankTensor(state.items()[i])) return true;
  }
  return false;
}

// The model: a separate family, or the state dict in the files that has
// sharded tensors, or is called "model".
std::optional<RankState> FindModel(std::vector<RankPart>& parts) {
  std::optional<RankState> named;
  for (RankPart& part : parts) {
    if (part.name == "model") return RankState{&part, "", {"model"}};
    const Value& root = part.files[0].root;
    if (!part.name.empty() || !IsMapping(root)) continue;
    if (HasShards(root)) return RankState{&part, "", {}};
    for (size_t i = 0; i < root.items().size(); i += 2) {
      if (!root.items()[i].is(Kind::kStr)) continue;
      const std::string key(root.items()[i].text());
      if (HasShards(root.items()[i + 1])) return RankState{&part, key, {key}};
      if (key == "model") named = RankState{&part, key, {key}};
    }
  }
  return named;
}

bool IsOptimizer(const Value& state) {
  return FindKey(state, "state").has_value() &&
         FindKey(state, "param_groups").has_value();
}

// The same for the optimizer.
std::optional<RankState> FindOptimizer(std::vector<RankPart>& parts) {
  for (RankPart& part : parts) {
    const Value& root = part.files[0].root;
    if (part.name == "optimizer" && IsOptimizer(root)) {
      return RankState{&part, "", {"optimizer"}};
    }
    if (!part.name.empty() || !IsMapping(root)) continue;
    for (size_t i = 0; i < root.items().size(); i += 2) {
      if (!root.items()[i].is(Kind::kStr)) continue;
      const std::string key(root.items()[i].text());
      if (IsOptimizer(root.items()[i + 1])) {
        return RankState{&part, key, {key}};
      }
    }
  }
  return std::nullopt;
}

class RanksReader {
 public:
  RanksReader(const SourceDirectory& directory,
              const std::vector<RankFiles>& families,
              const OpenOptions& options, const std::stop_token& stop,
              const ModelParameters* model)
      : directory_(directory),
        families_(families),
        options_(options),
        stop_(stop),
        model_(model) {}

  absl::StatusOr<CheckpointParts> Run();

 private:
  absl::Status ReadFiles();
  // Moves flat parameters and states to the collector, and gives names to the
  // optimizer's numbers.
  absl::Status NameParameters();
  absl::Status NameOptimizer(const RankState& model,
                             const RankState& optimizer);
  // The same by the parameters in a model that is elsewhere.
  absl::Status NameByModel(const RankState& optimizer);
  absl::Status GiveNames(const RankState& optimizer,
                         const OptimizerNames& names);
  // Whether the optimizer got the parameters in the model's order.
  bool IsInOrder(const std::optional<RankState>& optimizer) const;
  absl::Status AddFile(const RankFile& file, const std::string& part);
  absl::Status AddLeaf(const RankFile& file, const StatePath& path,
                       const Value& value);
  // DataLoss if another rank's tensor at `path` is laid out in another way.
  absl::Status CheckPlacement(const StatePath& path, const RankFile& file,
                              const RankTensor& tensor);

  const SourceDirectory& directory_;
  const std::vector<RankFiles>& families_;
  const OpenOptions& options_;
  const std::stop_token& stop_;
  const ModelParameters* const model_;  // elsewhere; or null
  CheckpointParts parts_;
  std::vector<RankPart> ranks_;
  StateCollector collector_;
  std::string mesh_;          // the last DTensor's
  uint64_t num_tensors_ = 0;  // sharded ones
  uint64_t num_boxes_ = 0;    // in these tensors
  // Each DTensor's mesh and placements.
  absl::flat_hash_map<std::string, std::string> placements_;
};

absl::Status RanksReader::ReadFiles() {
  std::vector<const RankFiles*> family_of;
  for (const RankFiles& family : families_) {
    family_of.resize(family_of.size() + family.names.size(), &family);
  }
  DCP_RETURN_IF_ERROR(ReadArchives(
      *directory_.fs, options_, stop_,
      [&](uint32_t file) { return family_of[file]->may_be_bare; }, parts_));
  uint32_t index = 0;
  for (const RankFiles& family : families_) {
    RankPart& part = ranks_.emplace_back();
    part.name = family.part;
    for (size_t rank = 0; rank < family.names.size(); ++rank, ++index) {
      const TorchArchive& archive = *parts_.archives[index];
      part.files.push_back(
          {.file = index,
           .name = family.names[rank],
           .rank = static_cast<int64_t>(rank),
           .world_size = static_cast<int64_t>(family.names.size()),
           .archive = &archive,
           .root = archive.root});
    }
  }
  return absl::OkStatus();
}

absl::Status RanksReader::NameParameters() {
  const std::optional<RankState> model = FindModel(ranks_);
  const std::optional<RankState> optimizer = FindOptimizer(ranks_);
  if (!model.has_value()) {
    return model_ != nullptr && optimizer.has_value() ? NameByModel(*optimizer)
                                                      : absl::OkStatus();
  }
  DCP_ASSIGN_OR_RETURN(const Value first, model->Get(model->part->files[0]));
  if (HasFlatParameters(first)) {
    DCP_ASSIGN_OR_RETURN(
        const FlatHints hints,
        ReadFlatHints(*directory_.fs, options_.dialect, stop_));
    DCP_ASSIGN_OR_RETURN(
        parts_.losses,
        TakeFlatModel(*model, optimizer.has_value() ? &*optimizer : nullptr,
                      hints, IsInOrder(optimizer), parts_.arena, collector_));
    return absl::OkStatus();
  }
  return optimizer.has_value() ? NameOptimizer(*model, *optimizer)
                               : absl::OkStatus();
}

bool RanksReader::IsInOrder(const std::optional<RankState>& optimizer) const {
  // verl and SkyRL call model.parameters().
  return options_.dialect.optimizer_in_model_order ||
         (optimizer.has_value() &&
          absl::StartsWith(optimizer->part->files[0].name,
                           "optim_world_size_"));
}

absl::Status RanksReader::GiveNames(const RankState& optimizer,
                                    const OptimizerNames& names) {
  for (RankFile& file : optimizer.part->files) {
    DCP_ASSIGN_OR_RETURN(const Value value, optimizer.Get(file));
    if (!IsMapping(value)) continue;
    optimizer.Set(parts_.arena, file, WithNames(parts_.arena, value, names));
  }
  return absl::OkStatus();
}

absl::Status RanksReader::NameByModel(const RankState& optimizer) {
  DCP_ASSIGN_OR_RETURN(const Value numbered,
                       optimizer.Get(optimizer.part->files[0]));
  const bool is_asked = options_.dialect.optimizer_in_model_order;
  const auto [names, needs_order] = FindOptimizerNames(
      model_->parameters, numbered, is_asked && model_->has_order);
  if (!names.empty()) return GiveNames(optimizer, names);
  if (!needs_order) return absl::OkStatus();
  if (is_asked && !model_->has_order) {
    return OptionError(
        absl::StatusCode::kInvalidArgument,
        "safetensors do not record the order of the model's parameters, which ",
        OptionName{"optimizer_in_model_order"},
        " asks for: give a file of torch.save(model.state_dict()) by ",
        OptionName{"like"});
  }
  parts_.losses.push_back(NumberedOptimizer(model_->has_order));
  return absl::OkStatus();
}

absl::Status RanksReader::NameOptimizer(const RankState& model,
                                        const RankState& optimizer) {
  DCP_ASSIGN_OR_RETURN(const Value first, model.Get(model.part->files[0]));
  DCP_ASSIGN_OR_RETURN(const Value numbered,
                       optimizer.Get(optimizer.part->files[0]));
  const bool in_order = IsInOrder(optimizer);
  const auto [names, needs_order] =
      FindOptimizerNames(SavedParameters(first), numbered, in_order);
  if (!names.empty()) return GiveNames(optimizer, names);
  FlatVectors vectors;
  // A whole model has a whole optimizer.
  if (HasShards(first)) {
    DCP_ASSIGN_OR_RETURN(vectors, FindFlatOptimizer(optimizer));
  }
  if (vectors.empty()) {
    if (needs_order) parts_.losses.push_back(NumberedOptimizer(true));
    return absl::OkStatus();
  }
  DCP_ASSIGN_OR_RETURN(
      const bool named,
      NameFlatOptimizer(model.part->files[0], first, numbered,
                        {options_.dialect.flat_units, in_order}, vectors));
  if (!named) {
    parts_.losses.push_back(
        {.part = StatePart::kOptimizer,
         .text = absl::StrCat(
             "flat optimizer of FSDP1: its state has neither names nor "
             "shapes; ",
             ToText({"flat_units"}), " gives them, or ",
             ToText({"optimizer_in_model_order"}),
             " if each number is one parameter")});
  }
  return TakeFlatOptimizer(optimizer, vectors, parts_.arena, collector_);
}

absl::Status RanksReader::CheckPlacement(const StatePath& path,
                                         const RankFile& file,
                                         const RankTensor& tensor) {
  if (tensor.mesh.empty()) return absl::OkStatus();
  mesh_ = tensor.mesh;
  const std::string found =
      absl::StrCat(tensor.placements, " on the mesh ", tensor.mesh);
  const auto [it, is_new] = placements_.emplace(PathToName(path), found);
  if (is_new || it->second == found) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("rank ", file.rank, " has it as ",
                                          found, ", but a rank before it as ",
                                          it->second));
}

absl::Status RanksReader::AddLeaf(const RankFile& file, const StatePath& path,
                                  const Value& value) {
  if (!IsRankTensor(value)) {
    DCP_ASSIGN_OR_RETURN(CheckpointEntry entry,
                         EntryInArchive(*file.archive, value, file.file));
    return collector_.AddValue(path, file.rank, std::move(entry));
  }
  DCP_ASSIGN_OR_RETURN(RankTensor tensor, ParseRankTensor(value));
  ++num_tensors_;
  num_boxes_ += tensor.pieces.size();
  if (num_boxes_ > kNumFreeBoxes + kMaxMeanBoxes * num_tensors_) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "the first ", num_tensors_, " sharded tensors consist of ", num_boxes_,
        " boxes, more than ", kMaxMeanBoxes, " each on average"));
  }
  DCP_RETURN_IF_ERROR(CheckPlacement(path, file, tensor));
  DCP_ASSIGN_OR_RETURN(StateCollector::Part part,
                       MakePart(file, std::move(tensor)));
  return collector_.AddPart(path, file.rank, std::move(part));
}

absl::Status RanksReader::AddFile(const RankFile& file,
                                  const std::string& part) {
  absl::StatusOr<std::vector<FlatValue>> leaves = Flatten(file.root);
  if (!leaves.ok()) return absl::DataLossError(leaves.status().message());
  for (FlatValue& leaf : *leaves) {
    DCP_RETURN_IF_ERROR(CheckStop(stop_, kOpening));
    if (!part.empty()) leaf.path.insert(leaf.path.begin(), part);
    DCP_RETURN_IF_ERROR(
        Annotate(AddLeaf(file, leaf.path, leaf.value), PathToName(leaf.path)));
  }
  return absl::OkStatus();
}

absl::StatusOr<CheckpointParts> RanksReader::Run() {
  parts_.format = Format::kTorch;
  parts_.dialect = Dialect::kRanks;
  std::vector<std::string> names;
  size_t num_ranks = 0;
  for (const RankFiles& family : families_) {
    names.insert(names.end(), family.names.begin(), family.names.end());
    num_ranks = std::max(num_ranks, family.names.size());
  }
  parts_.files = std::make_unique<SourceFiles>(
      *directory_.fs, directory_.path, std::move(names), options_.direct,
      /*follow_symlinks=*/false);
  DCP_RETURN_IF_ERROR(ReadFiles());
  DCP_RETURN_IF_ERROR(Annotate(NameParameters(), directory_.path));
  for (const RankPart& part : ranks_) {
    for (const RankFile& file : part.files) {
      DCP_RETURN_IF_ERROR(Annotate(AddFile(file, part.name),
                                   parts_.files->FullPath(file.file)));
    }
  }
  absl::StatusOr<std::vector<CheckpointEntry>> entries =
      std::move(collector_).Finish();
  if (!entries.ok()) return Annotate(entries.status(), directory_.path);
  parts_.entries = *std::move(entries);
  parts_.properties.emplace_back("ranks", absl::StrCat(num_ranks));
  if (!mesh_.empty()) parts_.properties.emplace_back("mesh", mesh_);
  return std::move(parts_);
}

}  // namespace

absl::StatusOr<CheckpointParts> OpenRankFiles(
    const SourceDirectory& directory, const std::vector<RankFiles>& families,
    const OpenOptions& options, const std::stop_token& stop,
    const ModelParameters* model) {
  return RanksReader(directory, families, options, stop, model).Run();
}

absl::StatusOr<std::optional<CheckpointParts>> TryOpenRanks(
    const SourceDirectory& directory, const OpenOptions& options,
    const std::stop_token& stop) {
  absl::StatusOr<std::vector<RankFiles>> families =
      options.dialect.rank_files.empty()
          ? FindRankFiles(directory.entries)
          : FindRankFiles(directory.entries, options.dialect.rank_files);
  if (!families.ok()) return Annotate(families.status(), directory.path);
  if (families->empty()) return std::nullopt;
  DCP_ASSIGN_OR_RETURN(CheckpointParts parts,
                       OpenRankFiles(directory, *families, options, stop));
  if (!options.dialect.from.has_value() &&
      absl::StartsWith(BaseName(directory.path), kUnfinishedPrefix)) {
    return absl::FailedPreconditionError(absl::StrCat(
        directory.path,
        ": torch_checkpointing uses this name until its save has finished; "
        "if the directory is complete, rename it"));
  }
  return parts;
}

absl::Status CheckNoItemsIndex(const SourceDirectory& directory,
                               const std::stop_token& stop) {
  DCP_ASSIGN_OR_RETURN(const bool has_items, HasItemsIndex(directory, stop));
  if (!has_items) return absl::OkStatus();
  return absl::UnimplementedError(absl::StrCat(
      directory.path,
      ": metadata.pkl is that of torch_checkpointing, but there are no files "
      "ITEM_RANK.pt: custom layouts of that library are not supported"));
}

}  // namespace dcp
