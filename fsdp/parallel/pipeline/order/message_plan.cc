// SPDX-License-Identifier: Apache-2.0
// Plans messages: see [Note: no circle of messages].

#include "fsdp/parallel/pipeline/order/message_plan.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <optional>
#include <set>

#include "fsdp/parallel/pipeline/order/timeline.h"

namespace fsdp {
namespace {

using MessageKind = PipelineMessage::Kind;

class Planner {
 public:
  explicit Planner(const PipelineOrder& order)
      : timeline_(MakeTimeline(order)) {
    plan_.stage_ranks = StageRanks(order);
    plan_.num_microbatches = NumMicrobatches(order);
    for (const auto& actions : timeline_) {
      plan_.ranks.emplace_back();
      for (const TimedAction& timed : actions) {
        plan_.ranks.back().push_back({timed.action, {}, {}});
      }
    }
  }

  MessagePlan Make() {
    for (size_t rank = 0; rank < plan_.ranks.size(); ++rank) ListSends(rank);
    for (size_t rank = 0; rank < plan_.ranks.size(); ++rank) PlanReceives(rank);
    for (size_t rank = 0; rank < plan_.ranks.size(); ++rank) PlanWaits(rank);
    return std::move(plan_);
  }

 private:
  // The message that an action needs, or that comes from it.
  std::optional<PipelineMessage> Needed(const PipelineAction& action) const {
    if (action.kind == PipelineAction::Kind::kForward) {
      return Between(
          {MessageKind::kActivations, action.stage, action.microbatch});
    }
    if (!action.gives_input_gradients()) return std::nullopt;
    return Between({MessageKind::kGradients, action.stage, action.microbatch});
  }
  std::optional<PipelineMessage> Result(const PipelineAction& action) const {
    if (action.kind == PipelineAction::Kind::kForward) {
      return Between(
          {MessageKind::kActivations, action.stage + 1, action.microbatch});
    }
    if (!action.gives_input_gradients()) return std::nullopt;
    return Between(
        {MessageKind::kGradients, action.stage - 1, action.microbatch});
  }
  // The message, if both stages exist and are on different ranks.
  std::optional<PipelineMessage> Between(PipelineMessage message) const {
    for (const int64_t stage : {message.to_stage, message.from_stage()}) {
      if (stage < 0 || stage >= plan_.num_stages()) return std::nullopt;
    }
    if (Sender(message) == Receiver(message)) return std::nullopt;
    return message;
  }
  int64_t Sender(const PipelineMessage& message) const {
    return plan_.rank_of(message.from_stage());
  }
  int64_t Receiver(const PipelineMessage& message) const {
    return plan_.rank_of(message.to_stage);
  }

  void ListSends(size_t rank) {
    for (const PlannedAction& planned : plan_.ranks[rank]) {
      const auto message = Result(planned.action);
      if (!message.has_value()) continue;
      sends_[{rank, Receiver(*message)}].push_back(*message);
    }
  }

  // Up to the message that an action needs, in the sender's order.
  void PlanReceives(size_t rank) {
    std::set<PipelineMessage> issued;
    std::map<int64_t, size_t> next;  // by sender
    for (size_t i = 0; i < plan_.ranks[rank].size(); ++i) {
      PlannedAction& planned = plan_.ranks[rank][i];
      const auto needed = Needed(planned.action);
      if (!needed.has_value()) continue;
      const int64_t sender = Sender(*needed);
      const auto& queue = sends_[{sender, rank}];
      while (!issued.contains(*needed)) {
        const PipelineMessage& message = queue[next[sender]++];
        planned.receives.push_back(message);
        issued.insert(message);
        received_at_[message] = timeline_[rank][i].start;
      }
    }
  }

  void PlanWaits(size_t rank) {
    const double slack = static_cast<double>(plan_.ranks.size());
    std::vector<PipelineMessage> open;
    for (size_t i = 0; i < plan_.ranks[rank].size(); ++i) {
      PlannedAction& planned = plan_.ranks[rank][i];
      const double now = timeline_[rank][i].start;
      std::erase_if(open, [&](const PipelineMessage& message) {
        if (received_at_.at(message) + slack > now) return false;
        planned.sent.push_back(message);
        return true;
      });
      const auto result = Result(planned.action);
      if (result.has_value()) open.push_back(*result);
    }
  }

  const Timeline timeline_;
  MessagePlan plan_;
  // By sender and receiver, in the sender's order.
  std::map<std::pair<int64_t, int64_t>, std::vector<PipelineMessage>> sends_;
  std::map<PipelineMessage, double> received_at_;
};

}  // namespace

std::vector<std::pair<int64_t, int64_t>> MessagePlan::rank_pairs() const {
  std::set<std::pair<int64_t, int64_t>> pairs;
  for (int64_t stage = 0; stage + 1 < num_stages(); ++stage) {
    const auto pair = std::minmax({rank_of(stage), rank_of(stage + 1)});
    if (pair.first != pair.second) pairs.insert(pair);
  }
  return {pairs.begin(), pairs.end()};
}

MessagePlan MakeMessagePlan(const PipelineOrder& order) {
  return Planner(order).Make();
}

}  // namespace fsdp
