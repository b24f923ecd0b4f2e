// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/megatron/megatron_opener.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "dcp/base/stop.h"
#include "dcp/checkpoint/dialects/megatron/common_state.h"
#include "dcp/checkpoint/dialects/megatron/megatron_files.h"
#include "dcp/checkpoint/dialects/megatron/reshaped_tensor.h"
#include "dcp/checkpoint/files/megatron_names.h"
#include "dcp/checkpoint/formats/dcp_opener.h"
#include "dcp/format/torch/state_path.h"
#include "dcp/tensor/metadata.h"

namespace dcp {
namespace {

using Kind = Value::Kind;

// A parameter in one of the chained optimizers.
using ParameterKey = std::pair<std::string, std::string>;

class MegatronReader {
 public:
  MegatronReader(const SourceDirectory& directory, const OpenOptions& options,
                 const std::stop_token& stop)
      : directory_(directory), options_(options), stop_(stop) {}

  absl::StatusOr<CheckpointParts> Run() {
    DCP_RETURN_IF_ERROR(OpenIndex());
    DCP_RETURN_IF_ERROR(Annotate(Interpret(), directory_.path));
    return std::move(parts_);
  }

 private:
  absl::Status OpenIndex();
  // Replaces the index's entries by the model's.
  absl::Status Interpret();
  absl::Status ReadCommon(std::vector<CheckpointEntry>& stored);
  void AddProperties(const std::vector<CheckpointEntry>& stored);
  void FindMasterWeights(const std::vector<CheckpointEntry>& stored);
  // Adds an entry from the index; `shape` is TensorStorageMetadata's
  // reformulated_from.
  absl::Status AddStored(CheckpointEntry entry,
                         const std::optional<Dims>& shape);
  absl::Status AddTensor(const std::string& name, TensorEntry tensor);
  absl::Status AddStep(const OptimizerName& name);
  absl::Status Add(CheckpointEntry entry);
  // The path that the options give a tensor; empty if it keeps its name.
  StatePath FullPath(const std::string& name) const;
  // The entry in the common state with this name; null if there is none.
  const CheckpointEntry* FindCommon(absl::string_view name) const;

  const SourceDirectory& directory_;
  const OpenOptions& options_;
  const std::stop_token& stop_;
  CheckpointParts parts_;
  std::vector<std::optional<Dims>> shapes_;  // for the index's entries
  std::vector<CheckpointEntry> common_;
  absl::flat_hash_map<absl::string_view, size_t> common_by_name_;
  CutBudget budget_;
  absl::flat_hash_set<std::string> names_;
  // With the option torch_optimizer_names:
  absl::flat_hash_set<std::string> master_weights_;  // parameters' names
  absl::flat_hash_set<ParameterKey> with_step_;
};

absl::Status MegatronReader::OpenIndex() {
  const std::string path = directory_.FullPath(kDcpMetadataName);
  DCP_ASSIGN_OR_RETURN(Metadata metadata,
                       ReadDcpIndex(*directory_.fs, path, stop_));
  for (MetadataEntry& entry : metadata.entries) {
    auto* const tensor = std::get_if<TensorStorageMetadata>(&entry.value);
    shapes_.push_back(tensor != nullptr ? std::move(tensor->reformulated_from)
                                        : std::nullopt);
  }
  if (directory_.HasFile(kCommonFile)) {
    metadata.files.emplace_back(kCommonFile);
  }
  absl::StatusOr<CheckpointParts> parts = OpenIndexedDcp(
      *directory_.fs, directory_.path, std::move(metadata), options_, stop_);
  if (!parts.ok()) return Annotate(parts.status(), path);
  parts_ = *std::move(parts);
  parts_.dialect = Dialect::kMegatron;
  // The names in the common state have paths, whatever the index says.
  parts_.flattened = true;
  return absl::OkStatus();
}

absl::Status MegatronReader::Interpret() {
  std::vector<CheckpointEntry> stored = std::move(parts_.entries);
  parts_.entries.clear();
  DCP_RETURN_IF_ERROR(ReadCommon(stored));
  AddProperties(stored);
  FindMasterWeights(stored);
  for (size_t i = 0; i < stored.size(); ++i) {
    DCP_RETURN_IF_ERROR(CheckStop(stop_, kOpening));
    const std::string name = stored[i].fqn;
    DCP_RETURN_IF_ERROR(Annotate(AddStored(std::move(stored[i]), shapes_[i]),
                                 name.substr(0, 200)));
  }
  // They are copied because others refer to them by name.
  for (const CheckpointEntry& entry : common_) DCP_RETURN_IF_ERROR(Add(entry));
  return absl::OkStatus();
}

// Reads the common state, and removes the index's entry for it, if any.
absl::Status MegatronReader::ReadCommon(std::vector<CheckpointEntry>& stored) {
  StorageInfo item;
  const auto entry = std::find_if(
      stored.begin(), stored.end(), [](const CheckpointEntry& candidate) {
        return candidate.object() != nullptr && candidate.fqn == kCommonEntry;
      });
  std::string name(kCommonFile);
  if (directory_.HasFile(kCommonFile)) {
    item.file = static_cast<uint32_t>(parts_.files->names().size() - 1);
    DCP_ASSIGN_OR_RETURN(const File file, parts_.files->Get(item.file));
    item.length = file.size;
  } else if (entry != stored.end()) {
    item = entry->object()->item;
    name = entry->fqn;
    shapes_.erase(shapes_.begin() + (entry - stored.begin()));
    stored.erase(entry);
  } else {
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<CheckpointEntry>> common =
      ReadCommonState(*directory_.fs, item, stop_, parts_);
  if (!common.ok()) return Annotate(common.status(), name);
  common_ = *std::move(common);
  for (size_t i = 0; i < common_.size(); ++i) {
    common_by_name_.emplace(common_[i].fqn, i);
  }
  return absl::OkStatus();
}

const CheckpointEntry* MegatronReader::FindCommon(
    absl::string_view name) const {
  const auto it = common_by_name_.find(name);
  return it == common_by_name_.end() ? nullptr : &common_[it->second];
}

void MegatronReader::AddProperties(const std::vector<CheckpointEntry>& stored) {
  const auto add = [this](absl::string_view label, absl::string_view text) {
    parts_.properties.emplace_back(label, text);
  };
  const auto value_of = [this](absl::string_view name) {
    const CheckpointEntry* const entry = FindCommon(name);
    return entry != nullptr && entry->object() != nullptr
               ? entry->object()->value
               : Value();
  };
  if (const Value step = value_of("common.iteration"); step.is(Kind::kInt)) {
    add("step", absl::StrCat(step.int_value()));
  }
  for (const absl::string_view name :
       {"common.content_metadata.distrib_optim_sharding_type",
        "common.optimizer.param_state_sharding_type"}) {
    const Value form = value_of(name);
    if (!form.is(Kind::kStr)) continue;
    add("optimizer", form.text().substr(0, 100));
    break;
  }
  for (const CheckpointEntry& entry : stored) {
    const std::string mesh = MeshInName(entry.fqn);
    if (mesh.empty()) continue;
    add("mesh", mesh);
    break;
  }
  if (std::any_of(stored.begin(), stored.end(),
                  [](const CheckpointEntry& entry) {
                    return entry.tensor() != nullptr && IsFlatBuffer(entry.fqn);
                  })) {
    parts_.losses.push_back(
        {.part = StatePart::kOptimizer,
         .text = "flat buffers of the optimizer: they do not record where the "
                 "state of a parameter is"});
  }
}

void MegatronReader::FindMasterWeights(
    const std::vector<CheckpointEntry>& stored) {
  if (!options_.dialect.torch_optimizer_names) return;
  for (const CheckpointEntry& entry : stored) {
    if (entry.tensor() == nullptr) continue;
    const auto name = SplitOptimizerName(entry.fqn);
    if (name.has_value() && name->state == "fp32_param") {
      master_weights_.insert(name->parameter);
    }
  }
}

absl::Status MegatronReader::AddStored(CheckpointEntry entry,
                                       const std::optional<Dims>& shape) {
  if (entry.tensor() == nullptr) return Add(std::move(entry));
  if (master_weights_.contains(entry.fqn)) return absl::OkStatus();
  TensorEntry tensor = std::get<TensorEntry>(std::move(entry.value));
  if (shape.has_value()) {
    DCP_ASSIGN_OR_RETURN(tensor, FromBlocks(tensor, *shape, budget_));
  }
  const std::optional<StackedName> stacked = options_.dialect.unstack_layers
                                                 ? SplitStackedName(entry.fqn)
                                                 : std::nullopt;
  if (!stacked.has_value() || tensor.shape.empty()) {
    return AddTensor(entry.fqn, std::move(tensor));
  }
  DCP_RETURN_IF_ERROR(budget_.Take(static_cast<uint64_t>(tensor.shape[0]),
                                   entry.fqn.size() / sizeof(int64_t)));
  DCP_ASSIGN_OR_RETURN(std::vector<TensorEntry> layers,
                       Unstack(tensor, budget_));
  for (size_t i = 0; i < layers.size(); ++i) {
    DCP_RETURN_IF_ERROR(
        AddTensor(absl::StrCat(stacked->before, i, stacked->after),
                  std::move(layers[i])));
  }
  return absl::OkStatus();
}

StatePath MegatronReader::FullPath(const std::string& name) const {
  if (!options_.dialect.torch_optimizer_names) return {};
  const auto state = SplitOptimizerName(name);
  if (!state.has_value()) {
    return IsOptimizerName(name) ? StatePath() : StatePath{"model", name};
  }
  if (state->state == "fp32_param") return {"model", state->parameter};
  return {"optimizer", "state", state->parameter, state->state};
}

absl::Status MegatronReader::AddTensor(const std::string& name,
                                       TensorEntry tensor) {
  CheckpointEntry entry;
  entry.path = FullPath(name);
  entry.fqn = entry.path.empty() ? name : PathToName(entry.path);
  entry.value = std::move(tensor);
  DCP_RETURN_IF_ERROR(Add(std::move(entry)));
  if (!options_.dialect.torch_optimizer_names) return absl::OkStatus();
  const auto state = SplitOptimizerName(name);
  if (!state.has_value() || state->state == "fp32_param") {
    return absl::OkStatus();
  }
  return AddStep(*state);
}

// Gives a parameter the step from the optimizer's first group, once.
absl::Status MegatronReader::AddStep(const OptimizerName& name) {
  if (!with_step_.emplace(name.chain, name.parameter).second) {
    return absl::OkStatus();
  }
  const CheckpointEntry* const step = FindCommon(absl::StrCat(
      "common.optimizer.", name.chain, name.chain.empty() ? "" : ".",
      "optimizer.param_groups.0.step"));
  if (step == nullptr) return absl::OkStatus();
  CheckpointEntry entry = *step;
  entry.path = {"optimizer", "state", name.parameter, "step"};
  entry.fqn = PathToName(entry.path);
  return Add(std::move(entry));
}

absl::Status MegatronReader::Add(CheckpointEntry entry) {
  if (entry.fqn.size() > kMaxNameBytes) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "a name of ", entry.fqn.size(), " bytes exceeds ", kMaxNameBytes));
  }
  if (!names_.insert(entry.fqn).second) {
    return absl::DataLossError(
        absl::StrCat("two values are called ", entry.fqn.substr(0, 200)));
  }
  parts_.entries.push_back(std::move(entry));
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::optional<CheckpointParts>> TryOpenMegatron(
    const SourceDirectory& directory, const OpenOptions& options,
    const std::stop_token& stop) {
  DCP_ASSIGN_OR_RETURN(const bool is_megatron,
                       IsMegatronDirectory(directory, options, stop));
  if (!is_megatron) return std::nullopt;
  DCP_ASSIGN_OR_RETURN(CheckpointParts parts,
                       MegatronReader(directory, options, stop).Run());
  return parts;
}

}  // namespace dcp
