// SPDX-License-Identifier: Apache-2.0
// Reads one rank's flat vectors and common values for each group.
// Tested by tests/dcp/checkpoint/open/dialects/dialects_test.cc.
#include "dcp/checkpoint/dialects/deepspeed/zero_state.h"

#include <cstdint>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/formats/torch_opener.h"
#include "dcp/format/torch/torch_tensor.h"
#include "dcp/format/value/value_lookup.h"

namespace dcp {
namespace {

using Kind = Value::Kind;

bool IsVector(const Value& value) {
  if (!IsTensor(value)) return false;
  const absl::StatusOr<TorchTensor> tensor = ParseTensor(value);
  return tensor.ok() && tensor->sizes.size() == 1;
}

}  // namespace

StatePath ZeroPath(const DeepSpeedParameter& parameter,
                   const std::string& key) {
  if (key == kMasterKey) return {"model", parameter.name};
  return {"optimizer", "state", parameter.name, key};
}

absl::StatusOr<TensorEntry> TensorIn(const DeepSpeedPickle& pickle,
                                     const Value& value) {
  if (!IsTensor(value)) {
    return absl::DataLossError(absl::StrCat(
        pickle.name, ": expected a tensor, found ", ToString(value, 60)));
  }
  absl::StatusOr<TensorEntry> tensor =
      TensorInArchive(*pickle.archive, value, pickle.file, 0);
  if (!tensor.ok()) return Annotate(tensor.status(), pickle.name);
  return tensor;
}

absl::StatusOr<Value> GetItem(const Value& list, size_t index,
                              absl::string_view name) {
  if (!list.is(Kind::kList) || index >= list.items().size()) {
    return absl::DataLossError(
        absl::StrCat(name, " has no item ", index, " in a list"));
  }
  return list.items()[index];
}

absl::StatusOr<std::vector<Value>> ParseGroupStates(const Value& inner,
                                                    size_t num_groups) {
  std::vector<Value> states(num_groups);
  if (inner.is(Kind::kList)) {  // elastic checkpoints: one dict for each group
    for (size_t g = 0; g < num_groups; ++g) {
      DCP_ASSIGN_OR_RETURN(states[g],
                           GetItem(inner, g, "base_optimizer_state"));
    }
    return states;
  }
  DCP_ASSIGN_OR_RETURN(const Value groups, GetKey(inner, "param_groups"));
  DCP_ASSIGN_OR_RETURN(const Value all, GetKey(inner, "state"));
  if (!groups.is(Kind::kList) || !IsMapping(all)) {
    return absl::DataLossError("the optimizer's state is not one of torch");
  }
  std::vector<Value> order;
  for (const Value& group : groups.items()) {
    DCP_ASSIGN_OR_RETURN(const Value params, GetKey(group, "params"));
    if (!params.is(Kind::kList)) {
      return absl::DataLossError("params of a group is not a list");
    }
    order.insert(order.end(), params.items().begin(), params.items().end());
  }
  if (order.size() != num_groups) {
    return absl::DataLossError(
        absl::StrCat("the optimizer has ", order.size(),
                     " flat groups, but param_shapes has ", num_groups));
  }
  absl::flat_hash_map<int64_t, Value> by_number;
  for (size_t i = 0; i < all.items().size(); i += 2) {
    const Value& number = all.items()[i];
    if (!number.is(Kind::kInt)) continue;
    by_number[number.int_value()] = all.items()[i + 1];
  }
  for (size_t g = 0; g < num_groups; ++g) {
    if (!order[g].is(Kind::kInt)) continue;
    const auto found = by_number.find(order[g].int_value());
    if (found != by_number.end()) states[g] = found->second;
  }
  return states;
}

absl::Status AppendStates(const DeepSpeedPickle& pickle, const Value& state,
                          ZeroVectors& vectors) {
  for (const auto& [key, value] : ItemsByKey(state)) {
    if (!IsVector(value)) continue;
    if (key == kMasterKey) return absl::DataLossError("a state without a name");
    DCP_ASSIGN_OR_RETURN(TensorEntry tensor, TensorIn(pickle, value));
    DCP_RETURN_IF_ERROR(
        Annotate(vectors[std::string(key)].Append(std::move(tensor)), key));
  }
  return absl::OkStatus();
}

absl::Status AddCommonStates(const DeepSpeedPickle& pickle, int64_t rank,
                             const Value& state,
                             const DeepSpeedParameter& parameter,
                             StateCollector& collector) {
  for (const auto& [key, value] : ItemsByKey(state)) {
    if (IsVector(value) || key == kMasterKey) continue;
    DCP_ASSIGN_OR_RETURN(CheckpointEntry entry,
                         EntryInArchive(*pickle.archive, value, pickle.file));
    DCP_RETURN_IF_ERROR(
        Annotate(collector.AddValue(ZeroPath(parameter, std::string(key)), rank,
                                    std::move(entry)),
                 pickle.name));
  }
  return absl::OkStatus();
}

}  // namespace dcp
