// SPDX-License-Identifier: Apache-2.0
// Computes each parameter's place in the partitions, with gaps and padding.
// Tested by tests/dcp/checkpoint/open/dialects/dialects_test.cc.
#include "dcp/checkpoint/dialects/deepspeed/partitioned_groups.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "dcp/base/status.h"
#include "dcp/checkpoint/dialects/deepspeed/zero_state.h"
#include "dcp/format/value/value_lookup.h"

namespace dcp {
namespace {

using Kind = Value::Kind;

// The size rounded up to the multiple to which DeepSpeed pads a group.
int64_t PaddedSize(int64_t size, int64_t num_ranks) {
  const int64_t multiple = 2 * num_ranks;
  return (size + multiple - 1) / multiple * multiple;
}

// One group in the optimizer.
class PartitionedGroup {
 public:
  // `states` has all groups' states, by rank.
  PartitionedGroup(const DeepSpeedState& state,
                   const std::vector<std::vector<Value>>& states, size_t group,
                   bool with_masters)
      : state_(state),
        states_(states),
        group_(group),
        with_masters_(with_masters) {}

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
    if (PaddedSize(start, num_ranks) !=
        PaddedSize(size_ * num_ranks, num_ranks)) {
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
      DCP_RETURN_IF_ERROR(Annotate(ReadRank(pickle), pickle.name));
    }
    return absl::OkStatus();
  }

  absl::Status ReadRank(const DeepSpeedPickle& pickle) {
    DCP_ASSIGN_OR_RETURN(
        const Value masters,
        GetKey(pickle.root, "single_partition_of_fp32_groups"));
    DCP_ASSIGN_OR_RETURN(
        const Value master,
        GetItem(masters, group_, "single_partition_of_fp32_groups"));
    ZeroVectors& vectors = ranks_.emplace_back();
    DCP_ASSIGN_OR_RETURN(TensorEntry tensor, TensorIn(pickle, master));
    DCP_RETURN_IF_ERROR(vectors[kMasterKey].Append(std::move(tensor)));
    return AppendStates(pickle, states_[ranks_.size() - 1][group_], vectors);
  }

  // Moments keep the partition's padding, master weights do not.
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

  // The elements after each parameter that belong to no parameter.
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
      ZeroVector::Range range;
      if (stop > begin) {
        range = {.begin = begin - rank * size_,
                 .count = stop - begin,
                 .parameter_begin = begin - start};
      }
      for (const auto& [key, vector] : ranks_[static_cast<size_t>(rank)]) {
        if (key == kMasterKey && !with_masters_) continue;
        DCP_RETURN_IF_ERROR(vector.AddTo(collector, ZeroPath(parameter, key),
                                         rank, range, parameter.shape));
      }
    }
    for (size_t r = 0; r < ranks_.size(); ++r) {
      DCP_RETURN_IF_ERROR(
          AddCommonStates(state_.optims[r], static_cast<int64_t>(r),
                          states_[r][group_], parameter, collector));
    }
    return absl::OkStatus();
  }

  static constexpr int64_t kMaxPadding = int64_t{1} << 32;

  const DeepSpeedState& state_;
  const std::vector<std::vector<Value>>& states_;
  const size_t group_;
  const bool with_masters_;
  std::vector<ZeroVectors> ranks_;
  int64_t size_ = 0;  // elements in a partition
};

}  // namespace

absl::Status AddPartitionedGroups(const DeepSpeedState& state,
                                  bool with_masters,
                                  StateCollector& collector) {
  std::vector<std::vector<Value>> states;
  for (const DeepSpeedPickle& pickle : state.optims) {
    absl::StatusOr<Value> inner = GetKey(pickle.root, "base_optimizer_state");
    if (!inner.ok()) return Annotate(inner.status(), pickle.name);
    absl::StatusOr<std::vector<Value>> found =
        ParseGroupStates(*inner, state.groups.size());
    if (!found.ok()) return Annotate(found.status(), pickle.name);
    states.push_back(*std::move(found));
  }
  for (size_t g = 0; g < state.groups.size(); ++g) {
    DCP_RETURN_IF_ERROR(
        PartitionedGroup(state, states, g, with_masters).AddTo(collector));
  }
  return absl::OkStatus();
}

}  // namespace dcp
