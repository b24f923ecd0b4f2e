// Tested by tests/dcp/checkpoint/open/dialects/dialects_test.cc.
#include "dcp/checkpoint/open/dialects/deepspeed/zero_partitions.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/open/dialects/deepspeed/zero_vector.h"
#include "dcp/checkpoint/open/torch_opener.h"
#include "dcp/format/torch_tensor.h"
#include "dcp/format/value_lookup.h"

namespace dcp {
namespace {

using Kind = Value::Kind;

StatePath ModelPath(const DeepSpeedParameter& parameter) {
  return {"model", parameter.name};
}

StatePath StatePathOf(const DeepSpeedParameter& parameter,
                      const std::string& key) {
  return {"optimizer", "state", parameter.name, key};
}

absl::StatusOr<TensorEntry> TensorIn(const DeepSpeedPickle& pickle,
                                     const Value& value) {
  if (!IsTensor(value)) {
    return absl::DataLossError(
        absl::StrCat("expected a tensor, found ", ToString(value, 60)));
  }
  return TensorInArchive(*pickle.archive, value, pickle.file, 0);
}

absl::StatusOr<Value> ItemOf(const Value& list, size_t index,
                             absl::string_view name) {
  if (!list.is(Kind::kList) || index >= list.items().size()) {
    return absl::DataLossError(
        absl::StrCat(name, " has no item ", index, " in a list"));
  }
  return list.items()[index];
}

// The optimizer's state of each group (for stage 3, sub-group) on one rank; an
// empty one where the optimizer has made none.
absl::StatusOr<std::vector<Value>> StatesOf(const Value& inner,
                                            size_t num_groups) {
  std::vector<Value> states(num_groups);
  if (inner.is(Kind::kList)) {  // elastic checkpoints: one dict for each group
    for (size_t g = 0; g < num_groups; ++g) {
      DCP_ASSIGN_OR_RETURN(states[g], ItemOf(inner, g, "base_optimizer_state"));
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
    return absl::DataLossError(absl::StrCat("the optimizer has ", order.size(),
                                            " flat groups, but "
                                            "param_shapes has ",
                                            num_groups));
  }
  for (size_t g = 0; g < num_groups; ++g) {
    for (size_t i = 0; i < all.items().size(); i += 2) {
      if (DeepEqual(all.items()[i], order[g])) states[g] = all.items()[i + 1];
    }
  }
  return states;
}

// The flat vectors of one group on one rank: "" is the master weights, other
// keys are the optimizer's.
using Vectors = std::map<std::string, ZeroVector>;

bool IsVector(const Value& value) {
  if (!IsTensor(value)) return false;
  const absl::StatusOr<TorchTensor> tensor = ParseTensor(value);
  return tensor.ok() && tensor->sizes.size() == 1;
}

absl::Status AppendStates(const DeepSpeedPickle& pickle, const Value& state,
                          Vectors& vectors) {
  if (!IsMapping(state)) return absl::OkStatus();
  for (size_t i = 0; i < state.items().size(); i += 2) {
    const Value& key = state.items()[i];
    if (!key.is(Kind::kStr) || !IsVector(state.items()[i + 1])) continue;
    DCP_ASSIGN_OR_RETURN(TensorEntry tensor,
                         TensorIn(pickle, state.items()[i + 1]));
    DCP_RETURN_IF_ERROR(
        Annotate(vectors[std::string(key.text())].Append(std::move(tensor)),
                 key.text()));
  }
  return absl::OkStatus();
}

// Adds what a group has for all of its parameters, such as the step.
absl::Status AddCommonStates(const DeepSpeedPickle& pickle, const Value& state,
                             const DeepSpeedParameter& parameter,
                             StateCollector& collector) {
  if (!IsMapping(state)) return absl::OkStatus();
  for (size_t i = 0; i < state.items().size(); i += 2) {
    const Value& key = state.items()[i];
    const Value& value = state.items()[i + 1];
    if (!key.is(Kind::kStr) || IsVector(value)) continue;
    DCP_ASSIGN_OR_RETURN(CheckpointEntry entry,
                         EntryInArchive(*pickle.archive, value, pickle.file));
    DCP_RETURN_IF_ERROR(
        collector.AddValue(StatePathOf(parameter, std::string(key.text())),
                           /*rank=*/0, std::move(entry)));
  }
  return absl::OkStatus();
}

StatePath PathOf(const DeepSpeedParameter& parameter, const std::string& key) {
  return key.empty() ? ModelPath(parameter) : StatePathOf(parameter, key);
}

// Rounded up to the multiple to which DeepSpeed pads a group.
int64_t Padded(int64_t size, int64_t num_ranks) {
  const int64_t multiple = 2 * num_ranks;
  return (size + multiple - 1) / multiple * multiple;
}

// ---- Stages 1 and 2 ---------------------------------------------------------

// One group of the optimizer.
class PartitionedGroup {
 public:
  PartitionedGroup(const DeepSpeedState& state, size_t group)
      : state_(state), group_(group) {}

  absl::Status AddTo(StateCollector& collector) {
    DCP_RETURN_IF_ERROR(ReadRanks());
    DCP_RETURN_IF_ERROR(FindPartitionSize());
    DCP_ASSIGN_OR_RETURN(const std::vector<int64_t> gaps, Gaps());
    int64_t start = 0;
    for (size_t i = 0; i < state_.groups[group_].size(); ++i) {
      const DeepSpeedParameter& parameter = state_.groups[group_][i];
      DCP_RETURN_IF_ERROR(
          Annotate(AddParameter(parameter, start, collector), parameter.name));
      start += parameter.numel + gaps[i];
    }
    const int64_t num_ranks = static_cast<int64_t>(ranks_.size());
    if (Padded(start, num_ranks) != Padded(size_ * num_ranks, num_ranks)) {
      return absl::DataLossError(
          absl::StrCat("group ", group_, ": its parameters have ", start,
                       " elements, but its ", num_ranks, " partitions have ",
                       size_, " each"));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status ReadRanks() {
    for (const DeepSpeedPickle& pickle : state_.optims) {
      DCP_ASSIGN_OR_RETURN(
          const Value masters,
          GetKey(pickle.root, "single_partition_of_fp32_groups"));
      DCP_ASSIGN_OR_RETURN(
          const Value master,
          ItemOf(masters, group_, "single_partition_of_fp32_groups"));
      Vectors& vectors = ranks_.emplace_back();
      DCP_ASSIGN_OR_RETURN(TensorEntry tensor, TensorIn(pickle, master));
      DCP_RETURN_IF_ERROR(vectors[""].Append(std::move(tensor)));
      DCP_ASSIGN_OR_RETURN(const Value inner,
                           GetKey(pickle.root, "base_optimizer_state"));
      DCP_ASSIGN_OR_RETURN(const std::vector<Value> states,
                           StatesOf(inner, state_.groups.size()));
      DCP_RETURN_IF_ERROR(AppendStates(pickle, states[group_], vectors));
      if (ranks_.size() == 1) first_state_ = states[group_];
    }
    return absl::OkStatus();
  }

  // Moments keep the padding of the partition, master weights do not.
  absl::Status FindPartitionSize() {
    for (const auto& [key, vector] : ranks_[0]) {
      size_ = std::max(size_, vector.size());
    }
    if (ranks_[0].size() > 1) return absl::OkStatus();
    const Value& root = state_.optims[0].root;
    const std::optional<Value> paddings = FindKey(root, "group_paddings");
    if (!paddings.has_value() || !paddings->is(Kind::kList) ||
        group_ >= paddings->items().size()) {
      return absl::OkStatus();
    }
    const Value& padding = paddings->items()[group_];
    if (!padding.is(Kind::kInt)) return absl::OkStatus();
    if (padding.int_value() < 0 || padding.int_value() > kMaxPadding) {
      return absl::DataLossError(
          absl::StrCat("group_paddings holds ", padding.int_value()));
    }
    size_ += padding.int_value();
    return absl::OkStatus();
  }

  // The elements after each parameter that belong to none.
  absl::StatusOr<std::vector<int64_t>> Gaps() const {
    std::vector<int64_t> gaps(state_.groups[group_].size(), 0);
    const std::optional<Value> all =
        FindKey(state_.optims[0].root, "param_alignment_paddings");
    if (!all.has_value() || !all->is(Kind::kList) ||
        group_ >= all->items().size() ||
        !all->items()[group_].is(Kind::kList)) {
      return gaps;
    }
    const absl::Span<const Value> given = all->items()[group_].items();
    for (size_t i = 0; i < std::min(gaps.size(), given.size()); ++i) {
      if (!given[i].is(Kind::kInt) || given[i].int_value() < 0 ||
          given[i].int_value() > kMaxPadding) {
        return absl::DataLossError(absl::StrCat(
            "param_alignment_paddings holds ", ToString(given[i], 40)));
      }
      gaps[i] = given[i].int_value();
    }
    return gaps;
  }

  absl::Status AddParameter(const DeepSpeedParameter& parameter, int64_t start,
                            StateCollector& collector) const {
    const int64_t end = start + parameter.numel;
    const int64_t num_ranks = static_cast<int64_t>(ranks_.size());
    if (end > size_ * num_ranks) {
      return absl::DataLossError(
          absl::StrCat("elements ", start, " to ", end, " of group ", group_,
                       " are needed, but its ", num_ranks, " partitions have ",
                       size_, " each"));
    }
    const int64_t first = parameter.numel == 0 ? 0 : start / size_;
    const int64_t last = parameter.numel == 0 ? 0 : (end - 1) / size_;
    for (int64_t rank = first; rank <= last; ++rank) {
      const int64_t begin = std::max(start, rank * size_);
      const int64_t stop = std::min(end, (rank + 1) * size_);
      const int64_t count = std::max<int64_t>(0, stop - begin);
      for (const auto& [key, vector] : ranks_[static_cast<size_t>(rank)]) {
        DCP_RETURN_IF_ERROR(
            vector.AddTo(collector, PathOf(parameter, key), rank,
                         count == 0 ? 0 : begin - rank * size_, count,
                         parameter.shape, count == 0 ? 0 : begin - start));
      }
    }
    return AddCommonStates(state_.optims[0], first_state_, parameter,
                           collector);
  }

  static constexpr int64_t kMaxPadding = int64_t{1} << 32;

  const DeepSpeedState& state_;
  const size_t group_;
  std::vector<Vectors> ranks_;
  Value first_state_;  // of rank 0
  int64_t size_ = 0;   // elements of a partition
};

// ---- Stage 3 ----------------------------------------------------------------

// All sub-groups: older writers let a piece cross from one to the next.
class PiecewiseGroups {
 public:
  explicit PiecewiseGroups(const DeepSpeedState& state) : state_(state) {}

  absl::Status AddTo(StateCollector& collector) {
    for (const DeepSpeedPickle& pickle : state_.optims) {
      DCP_RETURN_IF_ERROR(ReadRank(pickle));
    }
    const int64_t num_ranks = static_cast<int64_t>(ranks_.size());
    int64_t at = 0;
    for (size_t g = 0; g < state_.groups.size(); ++g) {
      for (const DeepSpeedParameter& parameter : state_.groups[g]) {
        const int64_t piece = (parameter.numel + num_ranks - 1) / num_ranks;
        DCP_RETURN_IF_ERROR(Annotate(
            AddParameter(parameter, at, piece, collector), parameter.name));
        DCP_RETURN_IF_ERROR(AddCommonStates(state_.optims[0], first_states_[g],
                                            parameter, collector));
        at += piece;
      }
    }
    if (at != ranks_[0][""].size()) {
      return absl::DataLossError(
          absl::StrCat("the parameters in param_shapes have ", at,
                       " elements on each rank, but fp32_flat_groups have ",
                       ranks_[0][""].size()));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status ReadRank(const DeepSpeedPickle& pickle) {
    DCP_ASSIGN_OR_RETURN(const Value flat,
                         GetKey(pickle.root, "fp32_flat_groups"));
    DCP_ASSIGN_OR_RETURN(const Value inner,
                         GetKey(pickle.root, "optimizer_state_dict"));
    DCP_ASSIGN_OR_RETURN(const std::vector<Value> states,
                         StatesOf(inner, state_.groups.size()));
    Vectors& vectors = ranks_.emplace_back();
    if (!flat.is(Kind::kList)) {
      return absl::DataLossError("fp32_flat_groups is not a list");
    }
    for (const Value& group : flat.items()) {
      DCP_ASSIGN_OR_RETURN(TensorEntry tensor, TensorIn(pickle, group));
      DCP_RETURN_IF_ERROR(vectors[""].Append(std::move(tensor)));
    }
    for (const Value& state : states) {
      DCP_RETURN_IF_ERROR(AppendStates(pickle, state, vectors));
    }
    if (ranks_.size() == 1) first_states_ = states;
    return absl::OkStatus();
  }

  absl::Status AddParameter(const DeepSpeedParameter& parameter, int64_t at,
                            int64_t piece, StateCollector& collector) const {
    for (size_t d = 0; d < ranks_.size(); ++d) {
      const int64_t rank = static_cast<int64_t>(d);
      const int64_t begin = std::min(rank * piece, parameter.numel);
      const int64_t count = std::min(piece, parameter.numel - begin);
      for (const auto& [key, vector] : ranks_[d]) {
        DCP_RETURN_IF_ERROR(vector.AddTo(collector, PathOf(parameter, key),
                                         rank, at, count, parameter.shape,
                                         begin));
      }
    }
    return absl::OkStatus();
  }

  const DeepSpeedState& state_;
  std::vector<Vectors> ranks_;
  std::vector<Value> first_states_;  // of rank 0, by sub-group
};

// The value of a frozen parameter on one rank.
absl::StatusOr<TensorEntry> Fragment(const DeepSpeedPickle& model,
                                     const DeepSpeedParameter& parameter) {
  DCP_ASSIGN_OR_RETURN(const Value fragments,
                       GetKey(model.root, "frozen_param_fragments"));
  DCP_ASSIGN_OR_RETURN(const Value fragment, GetKey(fragments, parameter.name));
  return TensorIn(model, fragment);
}

}  // namespace

absl::Status AddZeroPartitions(const DeepSpeedState& state,
                               StateCollector& collector) {
  if (state.stage == 3) return PiecewiseGroups(state).AddTo(collector);
  for (size_t g = 0; g < state.groups.size(); ++g) {
    DCP_RETURN_IF_ERROR(PartitionedGroup(state, g).AddTo(collector));
  }
  return absl::OkStatus();
}

absl::Status AddFrozenParameters(const DeepSpeedState& state,
                                 StateCollector& collector) {
  const std::optional<Value> fragments =
      FindKey(state.models[0].root, "frozen_param_fragments");
  if (!fragments.has_value() || fragments->is_none()) return absl::OkStatus();
  const int64_t num_ranks =
      state.stage == 3 ? static_cast<int64_t>(state.models.size()) : 1;
  for (const DeepSpeedParameter& parameter : state.frozen) {
    const int64_t piece = (parameter.numel + num_ranks - 1) / num_ranks;
    for (int64_t rank = 0; rank < num_ranks; ++rank) {
      const int64_t begin = std::min(rank * piece, parameter.numel);
      const int64_t count = std::min(piece, parameter.numel - begin);
      absl::StatusOr<TensorEntry> fragment =
          Fragment(state.models[static_cast<size_t>(rank)], parameter);
      if (!fragment.ok()) return Annotate(fragment.status(), parameter.name);
      // Stage 2 keeps the shape.
      if (fragment->shape == parameter.shape && num_ranks == 1) {
        CheckpointEntry entry;
        entry.value = *std::move(fragment);
        DCP_RETURN_IF_ERROR(
            collector.AddValue(ModelPath(parameter), rank, std::move(entry)));
        continue;
      }
      ZeroVector vector;
      absl::Status status = vector.Append(*std::move(fragment));
      if (status.ok()) {
        status = vector.AddTo(collector, ModelPath(parameter), rank, 0, count,
                              parameter.shape, begin);
      }
      DCP_RETURN_IF_ERROR(Annotate(status, parameter.name));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<Value> NamedGroups(const DeepSpeedState& state,
                                  ValueArena& arena) {
  DCP_ASSIGN_OR_RETURN(
      const Value inner,
      GetKey(state.optims[0].root, state.stage == 3 ? "optimizer_state_dict"
                                                    : "base_optimizer_state"));
  const std::optional<Value> groups = FindKey(inner, "param_groups");
  // Elastic checkpoints have none.
  if (!groups.has_value() || !groups->is(Kind::kList)) return arena.List();
  std::vector<Value> result;
  size_t next = 0;  // of state.groups
  for (const Value& group : groups->items()) {
    DCP_ASSIGN_OR_RETURN(const Value params, GetKey(group, "params"));
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
