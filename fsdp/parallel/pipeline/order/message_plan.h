// SPDX-License-Identifier: Apache-2.0
// The messages between ranks that an order of a pipeline needs, and when a rank
// issues receives and waits for sends. Pure; any thread.
//
// [Note: no circle of messages]
// A backend may keep one queue for all messages from one rank to another, in
// which a send and the receive end together, and in which the host cannot wait
// for a later message before an earlier one. So a rank issues receives from
// another rank in the order in which that rank sends. It issues those up to the
// one that it needs; the earlier ones were sent before. And it waits for a send
// only before an action that begins, in the order's timeline, after the action
// for which the other rank receives. Then every wait is for something earlier
// on one clock, and ranks cannot wait for each other in a circle. The clock is
// a few units ahead, so that a rank that is a little late stops nobody.
#ifndef FSDP_PARALLEL_PIPELINE_ORDER_MESSAGE_PLAN_H_
#define FSDP_PARALLEL_PIPELINE_ORDER_MESSAGE_PLAN_H_

#include <cstdint>
#include <utility>
#include <vector>

#include "fsdp/parallel/pipeline/order/pipeline_action.h"
#include "fsdp/parallel/pipeline/order/pipeline_order.h"

namespace fsdp {

// A microbatch's activations or gradients between neighbouring stages on
// different ranks.
struct PipelineMessage {
  enum class Kind { kActivations, kGradients };
  Kind kind;
  int64_t to_stage;
  int64_t microbatch;

  int64_t from_stage() const {
    return to_stage + (kind == Kind::kActivations ? -1 : 1);
  }
  friend auto operator<=>(const PipelineMessage&,
                          const PipelineMessage&) = default;
};

// One action on a rank. Before it, in this order: the rank waits for `sent`,
// issues `receives`, and waits for the message that the action needs, if any.
// After it, the rank sends the action's result, if the stage for it is on
// another rank.
struct PlannedAction {
  PipelineAction action;
  std::vector<PipelineMessage> sent;
  std::vector<PipelineMessage> receives;
};

struct MessagePlan {
  std::vector<int64_t> stage_ranks;  // by stage
  int64_t num_microbatches = 0;
  // By rank. Sends that no action waits for are awaited at the end.
  std::vector<std::vector<PlannedAction>> ranks;

  int64_t num_stages() const {
    return static_cast<int64_t>(stage_ranks.size());
  }
  int64_t rank_of(int64_t stage) const {
    return stage_ranks.at(static_cast<size_t>(stage));
  }
  // Pairs of ranks that exchange messages, the lower one first, ascending.
  std::vector<std::pair<int64_t, int64_t>> rank_pairs() const;
};

// Throws as MakeTimeline does.
MessagePlan MakeMessagePlan(const PipelineOrder& order);

}  // namespace fsdp

#endif  // FSDP_PARALLEL_PIPELINE_ORDER_MESSAGE_PLAN_H_
