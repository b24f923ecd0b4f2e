// SPDX-License-Identifier: Apache-2.0

#include "fsdp/parallel/pipeline/order/timeline.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "c10/util/Exception.h"

namespace fsdp {
namespace {

using Kind = PipelineAction::Kind;

double Cost(Kind kind, const ActionCosts& costs) {
  switch (kind) {
    case Kind::kForward:
      return costs.forward;
    case Kind::kBackward:
      return costs.input + costs.weight;
    case Kind::kBackwardInput:
      return costs.input;
    case Kind::kBackwardWeight:
      return costs.weight;
  }
  return 0;
}

std::vector<std::vector<PipelineAction>> Flat(const PipelineOrder& order) {
  std::vector<std::vector<PipelineAction>> ranks(order.size());
  for (size_t rank = 0; rank < order.size(); ++rank) {
    for (const PipelineSlot& slot : order[rank]) {
      ranks[rank].insert(ranks[rank].end(), slot.begin(), slot.end());
    }
  }
  return ranks;
}

// Runs all ranks, each as far as it can go, until all are done.
class Clock {
 public:
  Clock(const PipelineOrder& order, const ActionCosts& costs)
      : costs_(costs),
        last_stage_(static_cast<int64_t>(StageRanks(order).size()) - 1),
        actions_(Flat(order)),
        timeline_(order.size()) {}

  Timeline Run() {
    for (bool moves = true; moves;) {
      moves = false;
      for (size_t rank = 0; rank < actions_.size(); ++rank) {
        while (RunNext(rank)) moves = true;
      }
    }
    CheckDone();
    return std::move(timeline_);
  }

 private:
  using Ends = std::map<std::pair<int64_t, int64_t>, double>;

  bool RunNext(size_t rank) {
    const size_t next = timeline_[rank].size();
    if (next == actions_[rank].size()) return false;
    const PipelineAction& action = actions_[rank][next];
    const std::optional<double> ready = Ready(action);
    if (!ready.has_value()) return false;
    const double free = next == 0 ? 0 : timeline_[rank].back().end;
    const double start = std::max(free, *ready);
    const double end = start + Cost(action.kind, costs_);
    timeline_[rank].push_back({action, start, end});
    if (action.kind == Kind::kForward) {
      forwards_[{action.stage, action.microbatch}] = end;
    } else if (action.gives_input_gradients()) {
      backwards_[{action.stage, action.microbatch}] = end;
    }
    return true;
  }

  // When the stage next to it has given the input; empty if that is unknown.
  std::optional<double> Ready(const PipelineAction& action) const {
    const bool forward = action.kind == Kind::kForward;
    if (action.kind == Kind::kBackwardWeight) return 0;
    if (action.stage == (forward ? 0 : last_stage_)) return 0;
    const Ends& ends = forward ? forwards_ : backwards_;
    const auto found =
        ends.find({action.stage + (forward ? -1 : 1), action.microbatch});
    if (found == ends.end()) return std::nullopt;
    return found->second;
  }

  void CheckDone() const {
    std::string waiting;
    for (size_t rank = 0; rank < actions_.size(); ++rank) {
      const size_t next = timeline_[rank].size();
      if (next == actions_[rank].size()) continue;
      absl::StrAppend(&waiting, waiting.empty() ? "" : ", ", "rank ", rank,
                      " at ", to_string(actions_[rank][next]));
    }
    TORCH_CHECK_VALUE(
        waiting.empty(),
        "in this order ranks wait for each other for ever: ", waiting);
  }

  const ActionCosts costs_;
  const int64_t last_stage_;
  const std::vector<std::vector<PipelineAction>> actions_;
  Timeline timeline_;
  Ends forwards_;   // by stage and microbatch
  Ends backwards_;  // the inputs' gradients
};

}  // namespace

Timeline MakeTimeline(const PipelineOrder& order, const ActionCosts& costs) {
  return Clock(order, costs).Run();
}

double EndTime(const Timeline& timeline) {
  double end = 0;
  for (const auto& rank : timeline) {
    if (!rank.empty()) end = std::max(end, rank.back().end);
  }
  return end;
}

double BubbleTime(const Timeline& timeline) {
  double longest = 0;
  for (const auto& rank : timeline) {
    if (rank.empty()) continue;
    double idle = rank.back().end - rank.front().start;
    for (const TimedAction& timed : rank) idle -= timed.end - timed.start;
    longest = std::max(longest, idle);
  }
  return longest;
}

double BubbleFormula(ScheduleKind kind, int64_t num_ranks,
                     const ActionCosts& costs) {
  const double hops = static_cast<double>(num_ranks - 1);
  const double whole = costs.forward + costs.input + costs.weight;
  switch (kind) {
    case ScheduleKind::kInterleavedZeroBubble:
      return hops * (whole - 2 * costs.weight);
    case ScheduleKind::kZBVZeroBubble:
      return 0;
    case ScheduleKind::kDualPipeV:
      return hops * costs.forward;
    default:
      return hops * whole;
  }
}

}  // namespace fsdp
