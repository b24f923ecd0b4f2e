// SPDX-License-Identifier: Apache-2.0

#include "dcp/checkpoint/dialects/deepspeed/universal_state.h"

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/dialects/deepspeed/zero_state.h"
#include "dcp/checkpoint/formats/torch_opener.h"
#include "dcp/format/torch/torch_tensor.h"
#include "dcp/format/value/value_lookup.h"

namespace dcp {
namespace {

constexpr char kMasterFile[] = "fp32";

// One parameter's files by their keys.
using Files = std::map<std::string, const DeepSpeedPickle*>;

class UniversalReader {
 public:
  UniversalReader(const DeepSpeedState& state, bool with_masters,
                  StateCollector& collector)
      : state_(state),
        with_masters_(with_masters || state.stage == 3),
        collector_(collector) {
    for (const UniversalFile& file : state.universal) {
      files_[file.parameter][file.key] = &file.pickle;
    }
  }

  absl::Status Run() {
    DCP_ASSIGN_OR_RETURN(const std::vector<Value> common, CommonStates());
    for (size_t g = 0; g < state_.groups.size(); ++g) {
      for (const DeepSpeedParameter& parameter : state_.groups[g]) {
        const auto found = files_.find(parameter.name);
        if (found == files_.end() || !found->second.contains(kMasterFile)) {
          return absl::NotFoundError(
              absl::StrCat("zero/", parameter.name, "/fp32.pt is missing"));
        }
        DCP_RETURN_IF_ERROR(
            Annotate(AddParameter(parameter, found->second, /*has_shape=*/true),
                     parameter.name));
        if (!found->second.contains("step")) {
          DCP_RETURN_IF_ERROR(AddCommonStates(state_.universal_optimizer,
                                              /*rank=*/0, common[g], parameter,
                                              collector_));
        }
        files_.erase(found);
      }
    }
    return AddOthers();
  }

 private:
  // The values that stage 3's sub-groups keep for all parameters; otherwise
  // nothing.
  absl::StatusOr<std::vector<Value>> CommonStates() const {
    const std::optional<Value> inner =
        FindKey(state_.universal_optimizer.root, "optimizer_state_dict");
    if (!inner.has_value()) return std::vector<Value>(state_.groups.size());
    return ParseGroupStates(*inner, state_.groups.size());
  }

  // Adds parameters that no group has. If the model states have a parameter,
  // the files are copies.
  absl::Status AddOthers() {
    absl::flat_hash_set<std::string> known;
    for (const char* dict :
         {"module", "shared_params", "frozen_param_shapes"}) {
      const std::optional<Value> names = FindKey(state_.models[0].root, dict);
      if (!names.has_value() || !IsMapping(*names)) continue;
      for (size_t i = 0; i < names->items().size(); i += 2) {
        const Value& name = names->items()[i];
        if (name.is(Value::Kind::kStr)) known.emplace(name.text());
      }
    }
    for (const auto& [name, files] : files_) {
      if (known.contains(name) || !files.contains(kMasterFile)) continue;
      DeepSpeedParameter parameter;
      parameter.name = name;
      DCP_RETURN_IF_ERROR(
          Annotate(AddParameter(parameter, files, /*has_shape=*/false), name));
    }
    return absl::OkStatus();
  }

  absl::Status AddParameter(const DeepSpeedParameter& parameter,
                            const Files& files, bool has_shape) {
    std::optional<Dims> shape;
    if (has_shape) shape = parameter.shape;
    // All files have the weights' shape, whatever it is.
    DCP_RETURN_IF_ERROR(
        Annotate(AddFile(parameter, kMasterKey, *files.at(kMasterFile), shape),
                 "fp32.pt"));
    for (const auto& [key, pickle] : files) {
      if (key == kMasterFile) continue;
      DCP_RETURN_IF_ERROR(
          Annotate(AddFile(parameter, key, *pickle, shape), key, ".pt"));
    }
    return absl::OkStatus();
  }

  // Sets `shape` to the weights' shape.
  absl::Status AddFile(const DeepSpeedParameter& parameter,
                       const std::string& key, const DeepSpeedPickle& pickle,
                       std::optional<Dims>& shape) {
    const bool is_master = key == kMasterKey;
    const std::optional<Value> inner = FindKey(pickle.root, "param");
    const Value value = inner.value_or(pickle.root);
    const StatePath path = ZeroPath(parameter, key);
    if (!is_master && (key == "step" || !IsTensor(value))) {
      DCP_ASSIGN_OR_RETURN(CheckpointEntry entry,
                           EntryInArchive(*pickle.archive, value, pickle.file));
      return collector_.AddValue(path, /*rank=*/0, std::move(entry));
    }
    DCP_ASSIGN_OR_RETURN(TensorEntry tensor, TensorIn(pickle, value));
    const bool is_flat = tensor.shape.size() == 1 && shape.has_value() &&
                         tensor.shape[0] == Volume(*shape);
    // A rank's shape differs from the whole shape: the vocabulary was padded,
    // or the tensor was cut over model-parallel ranks.
    if (is_master && inner.has_value() && !is_flat) shape = tensor.shape;
    if (!shape.has_value()) shape = tensor.shape;
    if (!is_flat && tensor.shape != *shape) {
      return absl::DataLossError(absl::StrCat("expected shape ",
                                              ShapeToString(*shape), ", found ",
                                              ShapeToString(tensor.shape)));
    }
    if (is_master && !with_masters_) return absl::OkStatus();
    if (is_flat) {
      return collector_.AddPart(
          path, /*rank=*/0,
          FlatPart(tensor, 0, tensor.shape[0], *shape, /*begin=*/0));
    }
    CheckpointEntry entry;
    entry.value = std::move(tensor);
    return collector_.AddValue(path, /*rank=*/0, std::move(entry));
  }

  const DeepSpeedState& state_;
  const bool with_masters_;
  StateCollector& collector_;
  std::map<std::string, Files> files_;  // by parameter
};

}  // namespace

absl::Status AddUniversalState(const DeepSpeedState& state, bool with_masters,
                               StateCollector& collector) {
  return UniversalReader(state, with_masters, collector).Run();
}

Value UniversalOptimizer(const DeepSpeedState& state) {
  const Value& root = state.universal_optimizer.root;
  return FindKey(root, "optimizer_state_dict").value_or(root);
}

}  // namespace dcp
