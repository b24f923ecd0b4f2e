// SPDX-License-Identifier: Apache-2.0
// Reads the parameters' names and order, and checks that the pickles agree.
// Tested by tests/dcp/checkpoint/open/dialects/dialects_test.cc.
#include "dcp/checkpoint/dialects/deepspeed/deepspeed_state.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/option_name.h"
#include "dcp/base/status.h"
#include "dcp/format/torch/torch_tensor.h"
#include "dcp/format/value/value_lookup.h"

namespace dcp {
namespace {

using Kind = Value::Kind;

// The most elements in one group's parameters. It leaves room to add paddings,
// and is more than any file system holds.
constexpr int64_t kMaxElements = int64_t{1} << 60;

// {name: torch.Size}.
absl::StatusOr<std::vector<DeepSpeedParameter>> ParseShapes(const Value& dict) {
  if (!IsMapping(dict)) {
    return absl::DataLossError(
        absl::StrCat("expected a dict of shapes, found ", ToString(dict, 60)));
  }
  std::vector<DeepSpeedParameter> parameters;
  int64_t num_elements = 0;
  for (size_t i = 0; i < dict.items().size(); i += 2) {
    const Value& name = dict.items()[i];
    if (!name.is(Kind::kStr)) {
      return absl::DataLossError(absl::StrCat(
          "expected the name of a parameter, found ", ToString(name, 60)));
    }
    DeepSpeedParameter parameter{.name = std::string(name.text()), .shape = {}};
    absl::StatusOr<Dims> shape =
        ParseTensorSizes(dict.items()[i + 1], "a shape");
    if (!shape.ok()) return Annotate(shape.status(), parameter.name);
    parameter.shape = *std::move(shape);
    const std::optional<int64_t> numel = CheckedVolume(parameter.shape);
    if (!numel.has_value() || *numel > kMaxElements - num_elements) {
      return absl::DataLossError(absl::StrCat(parameter.name, ": shape ",
                                              ShapeToString(parameter.shape),
                                              " is too large"));
    }
    parameter.numel = *numel;
    num_elements += *numel;
    parameters.push_back(std::move(parameter));
  }
  return parameters;
}

// A list of dicts, or until DeepSpeed 0.4 one dict.
absl::StatusOr<std::vector<std::vector<DeepSpeedParameter>>> ParseGroups(
    const Value& value) {
  std::vector<std::vector<DeepSpeedParameter>> groups;
  if (IsMapping(value)) {
    DCP_ASSIGN_OR_RETURN(std::vector<DeepSpeedParameter> group,
                         ParseShapes(value));
    groups.push_back(std::move(group));
    return groups;
  }
  if (!value.is(Kind::kList)) {
    return absl::DataLossError(
        absl::StrCat("expected a list, found ", ToString(value, 60)));
  }
  for (const Value& item : value.items()) {
    DCP_ASSIGN_OR_RETURN(std::vector<DeepSpeedParameter> group,
                         ParseShapes(item));
    groups.push_back(std::move(group));
  }
  return groups;
}

// ZeroStageEnum(2), or 2.
std::optional<int64_t> StageNumber(const Value& value) {
  if (value.is(Kind::kInt)) return value.int_value();
  if (value.is(Kind::kCall) && value.args().items().size() == 1 &&
      value.args().items()[0].is(Kind::kInt)) {
    return value.args().items()[0].int_value();
  }
  return std::nullopt;
}

absl::StatusOr<int> ParseStage(const Value& optim) {
  if (FindKey(optim, "local_sub_partitions_of_fp32_groups").has_value()) {
    return absl::UnimplementedError(
        "local_sub_partitions_of_fp32_groups: the partitions of DeepSpeed "
        "before 0.3.17 record no names and are not supported");
  }
  const bool flat = FindKey(optim, "fp32_flat_groups").has_value();
  const bool single =
      FindKey(optim, "single_partition_of_fp32_groups").has_value();
  if (flat == single) {
    return absl::DataLossError(
        "expected either fp32_flat_groups or single_partition_of_fp32_groups "
        "in optimizer_state_dict");
  }
  const std::optional<Value> stage = FindKey(optim, "zero_stage");
  const int64_t guess = flat ? 3 : 2;
  const int64_t found =
      stage.has_value() ? StageNumber(*stage).value_or(guess) : guess;
  if (flat || found == 3) return 3;
  return found == 1 ? 1 : 2;
}

// The rank count: an int, or one for each group, all equal.
absl::StatusOr<int64_t> PartitionCount(const Value& optim) {
  DCP_ASSIGN_OR_RETURN(const Value count, GetKey(optim, "partition_count"));
  if (count.is(Kind::kInt)) return count.int_value();
  if (!count.is(Kind::kList) || count.items().empty()) {
    return absl::DataLossError(
        absl::StrCat("partition_count is ", ToString(count, 60)));
  }
  for (const Value& item : count.items()) {
    if (!item.is(Kind::kInt)) {
      return absl::DataLossError(
          absl::StrCat("partition_count is ", ToString(count, 60)));
    }
    if (item.int_value() != count.items()[0].int_value()) {
      return absl::UnimplementedError(
          absl::StrCat("partition_count is ", ToString(count, 60),
                       ": expert-parallel ZeRO partitions are not supported"));
    }
  }
  return count.items()[0].int_value();
}

absl::Status CheckPartitionCount(const DeepSpeedState& state) {
  DCP_ASSIGN_OR_RETURN(const int64_t count,
                       PartitionCount(state.optims[0].root));
  const int64_t found = static_cast<int64_t>(state.optims.size());
  if (found != count) {
    return absl::NotFoundError(
        absl::StrCat(found, " of ", count,
                     " optim files are there; if each machine wrote "
                     "to its own disk, copy them together"));
  }
  const int64_t models = static_cast<int64_t>(state.models.size());
  if (state.stage == 3 && models != count) {
    return absl::NotFoundError(
        absl::StrCat(models, " of ", count,
                     " model files are there; if each machine wrote "
                     "to its own disk, copy them together"));
  }
  return absl::OkStatus();
}

// The stage of the checkpoint from which a universal one was made.
int UniversalStage(const DeepSpeedState& state) {
  const Value& optimizer = state.universal_optimizer.root;
  const std::optional<Value> stage = FindKey(optimizer, "zero_stage");
  const bool is_three = state.models.size() > 1 ||
                        FindKey(optimizer, "fp32_flat_groups").has_value() ||
                        (stage.has_value() && StageNumber(*stage) == 3);
  if (is_three) return 3;
  return stage.has_value() && StageNumber(*stage) == 1 ? 1 : 2;
}

// Sets the groups and the frozen parameters.
absl::Status ParseNames(const Value& model, bool may_lack_names,
                        DeepSpeedState& state) {
  const std::optional<Value> shapes = FindKey(model, "param_shapes");
  if (!shapes.has_value() || shapes->is_none()) {
    if (may_lack_names) return absl::OkStatus();
    const Value version = FindKey(model, "ds_version").value_or(Value());
    return OptionError(
        absl::StatusCode::kUnimplemented, "it was written by DeepSpeed ",
        version.is(Kind::kStr) ? version.text() : "before 0.4",
        ", which records no names of parameters in param_shapes; ",
        OptionName{"low_precision_weights"}, " reads the weights alone");
  }
  absl::StatusOr<std::vector<std::vector<DeepSpeedParameter>>> groups =
      ParseGroups(*shapes);
  if (!groups.ok()) return Annotate(groups.status(), "param_shapes");
  state.groups = *std::move(groups);
  const std::optional<Value> frozen = FindKey(model, "frozen_param_shapes");
  if (frozen.has_value() && !frozen->is_none()) {
    absl::StatusOr<std::vector<DeepSpeedParameter>> parsed =
        ParseShapes(*frozen);
    if (!parsed.ok()) return Annotate(parsed.status(), "frozen_param_shapes");
    state.frozen = *std::move(parsed);
  }
  return absl::OkStatus();
}

// Adds the parameters that only other model-parallel ranks have.
absl::Status AddParallelNames(DeepSpeedState& state) {
  absl::flat_hash_set<std::string> known;
  for (const auto& group : state.groups) {
    for (const DeepSpeedParameter& each : group) known.insert(each.name);
  }
  for (const DeepSpeedPickle& model : state.parallel_models) {
    // zero/ has the trained parameters; of the others, each of these ranks has
    // a part.
    const Value frozen =
        FindKey(model.root, "frozen_param_shapes").value_or(Value());
    if (IsMapping(frozen) && !frozen.items().empty()) {
      return absl::UnimplementedError(absl::StrCat(
          model.name, ": frozen parameters, such as ",
          ToString(frozen.items()[0], 100),
          ", are not supported with several model-parallel ranks"));
    }
    DCP_ASSIGN_OR_RETURN(const Value shapes,
                         GetKey(model.root, "param_shapes"));
    absl::StatusOr<std::vector<std::vector<DeepSpeedParameter>>> groups =
        ParseGroups(shapes);
    if (!groups.ok()) return Annotate(groups.status(), model.name);
    if (groups->size() != state.groups.size()) {
      return absl::UnimplementedError(absl::StrCat(
          model.name, ": expected ", state.groups.size(),
          " groups of parameters, as ", state.models[0].name, " has, found ",
          groups->size(), "; that is not supported"));
    }
    for (size_t g = 0; g < groups->size(); ++g) {
      for (DeepSpeedParameter& parameter : (*groups)[g]) {
        if (!known.insert(parameter.name).second) continue;
        state.groups[g].push_back(std::move(parameter));
      }
    }
  }
  return absl::OkStatus();
}

// DataLoss if the model's files come from different steps.
absl::Status CheckSameStep(const DeepSpeedState& state) {
  const DeepSpeedPickle& first = state.models[0];
  for (const auto* models : {&state.models, &state.parallel_models}) {
    for (const DeepSpeedPickle& model : *models) {
      for (const absl::string_view key : {"global_steps", "skipped_steps"}) {
        const Value expected = FindKey(first.root, key).value_or(Value());
        const Value found = FindKey(model.root, key).value_or(Value());
        if (DeepEqual(expected, found)) continue;
        return absl::DataLossError(absl::StrCat(
            model.name, ": ", key, " is ", ToString(found, 40), ", but ",
            ToString(expected, 40), " in ", first.name,
            ": the files come from different steps; put those of one step "
            "together"));
      }
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<Value> GetKey(const Value& dict, absl::string_view key) {
  const std::optional<Value> value = FindKey(dict, key);
  if (value.has_value()) return *value;
  return absl::DataLossError(absl::StrCat("the key ", key, " is missing"));
}

absl::Status ParseDeepSpeed(bool names_optional, DeepSpeedState& state) {
  const Value& model = state.models[0].root;
  const std::optional<Value> experts = FindKey(model, "ds_autoep_layers");
  if (experts.has_value() && !experts->is_none()) {
    return absl::UnimplementedError(
        "ds_autoep_layers: expert-parallel ZeRO partitions are not supported");
  }
  DCP_RETURN_IF_ERROR(CheckSameStep(state));
  for (DeepSpeedPickle& optim : state.optims) {
    absl::StatusOr<Value> root = GetKey(optim.root, "optimizer_state_dict");
    if (!root.ok()) return Annotate(root.status(), optim.name);
    optim.root = *root;
  }
  if (!state.optims.empty()) {
    DCP_ASSIGN_OR_RETURN(state.stage, ParseStage(state.optims[0].root));
    DCP_RETURN_IF_ERROR(CheckPartitionCount(state));
  } else if (!state.universal.empty()) {
    state.stage = UniversalStage(state);
  } else {
    return absl::OkStatus();
  }
  const bool may_lack_names = names_optional && state.stage != 3;
  DCP_RETURN_IF_ERROR(ParseNames(model, may_lack_names, state));
  return AddParallelNames(state);
}

}  // namespace dcp
