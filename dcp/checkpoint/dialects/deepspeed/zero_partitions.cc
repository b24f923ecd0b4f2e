// SPDX-License-Identifier: Apache-2.0
// Adds ZeRO's weights and optimizer state by stage, and frozen parameters.
// Tested by tests/dcp/checkpoint/open/dialects/dialects_test.cc.
#include "dcp/checkpoint/dialects/deepspeed/zero_partitions.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/dialects/deepspeed/partitioned_groups.h"
#include "dcp/checkpoint/dialects/deepspeed/piecewise_groups.h"
#include "dcp/checkpoint/dialects/deepspeed/zero_state.h"
#include "dcp/checkpoint/dialects/deepspeed/zero_vector.h"
#include "dcp/format/value/value_lookup.h"

namespace dcp {
namespace {

using Kind = Value::Kind;

// Adds rank `rank`'s part of a frozen parameter: a piece, or with one rank the
// whole in its shape.
absl::Status AddFragment(const DeepSpeedPickle& model, const Value& fragment,
                         const DeepSpeedParameter& parameter, int64_t rank,
                         int64_t num_ranks, StateCollector& collector) {
  DCP_ASSIGN_OR_RETURN(TensorEntry tensor, TensorIn(model, fragment));
  const StatePath path = ZeroPath(parameter, kMasterKey);
  if (num_ranks == 1 && tensor.shape == parameter.shape) {
    CheckpointEntry entry;
    entry.value = std::move(tensor);
    return collector.AddValue(path, rank, std::move(entry));
  }
  const int64_t piece = (parameter.numel + num_ranks - 1) / num_ranks;
  const int64_t begin = std::min(rank * piece, parameter.numel);
  ZeroVector vector;
  DCP_RETURN_IF_ERROR(vector.Append(std::move(tensor)));
  return vector.AddTo(collector, path, rank,
                      {.begin = 0,
                       .count = std::min(piece, parameter.numel - begin),
                       .parameter_begin = begin},
                      parameter.shape);
}

}  // namespace

absl::Status AddZeroPartitions(const DeepSpeedState& state, bool with_masters,
                               StateCollector& collector) {
  return state.stage == 3
             ? AddPiecewiseGroups(state, collector)
             : AddPartitionedGroups(state, with_masters, collector);
}

absl::Status AddFrozenParameters(const DeepSpeedState& state,
                                 StateCollector& collector) {
  const std::optional<Value> first =
      FindKey(state.models[0].root, "frozen_param_fragments");
  if (!first.has_value() || first->is_none()) return absl::OkStatus();
  const int64_t num_ranks =
      state.stage == 3 ? static_cast<int64_t>(state.models.size()) : 1;
  for (int64_t rank = 0; rank < num_ranks; ++rank) {
    const DeepSpeedPickle& model = state.models[static_cast<size_t>(rank)];
    const Value dict =
        FindKey(model.root, "frozen_param_fragments").value_or(Value());
    const auto fragments = ValuesByKey(dict);
    for (const DeepSpeedParameter& parameter : state.frozen) {
      const auto found = fragments.find(parameter.name);
      if (found == fragments.end()) {
        return absl::DataLossError(absl::StrCat(
            model.name, ": frozen_param_fragments has no ", parameter.name));
      }
      DCP_RETURN_IF_ERROR(Annotate(AddFragment(model, found->second, parameter,
                                               rank, num_ranks, collector),
                                   parameter.name));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Value> NamedGroups(const DeepSpeedState& state,
                                  const Value& inner, ValueArena& arena) {
  const std::optional<Value> groups = FindKey(inner, "param_groups");
  // Elastic checkpoints have none.
  if (!groups.has_value() || !groups->is(Kind::kList)) return arena.List();
  std::vector<Value> result;
  size_t next = 0;  // into state.groups
  for (const Value& group : groups->items()) {
    DCP_ASSIGN_OR_RETURN(const Value params, GetKey(group, "params"));
    if (!params.is(Kind::kList)) {
      return absl::DataLossError("params of a group is not a list");
    }
    std::vector<Value> names;
    for (size_t k = 0; k < params.items().size(); ++k, ++next) {
      if (next >= state.groups.size()) {
        return absl::DataLossError(
            "the optimizer has more groups than param_shapes");
      }
      for (const DeepSpeedParameter& parameter : state.groups[next]) {
        names.push_back(arena.Str(parameter.name));
      }
    }
    std::vector<Value> items(group.items().begin(), group.items().end());
    for (size_t i = 0; i < items.size(); i += 2) {
      if (items[i].is(Kind::kStr) && items[i].text() == "params") {
        items[i + 1] = arena.List(names);
      }
    }
    result.push_back(arena.Dict(items));
  }
  return arena.List(result);
}

}  // namespace dcp
