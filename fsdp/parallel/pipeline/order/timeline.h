// SPDX-License-Identifier: Apache-2.0
// When each action of an order runs, if messages take no time, and how long
// ranks wait. Pure; any thread.
#ifndef FSDP_PARALLEL_PIPELINE_ORDER_TIMELINE_H_
#define FSDP_PARALLEL_PIPELINE_ORDER_TIMELINE_H_

#include <vector>

#include "fsdp/parallel/pipeline/order/pipeline_action.h"
#include "fsdp/parallel/pipeline/order/pipeline_order.h"

namespace fsdp {

// The time for each action on one stage, in any unit. A whole backward takes
// `input` + `weight`.
struct ActionCosts {
  double forward = 1;
  double input = 1;
  double weight = 1;
};

struct TimedAction {
  PipelineAction action;
  double start;
  double end;
};
// By rank: the actions in order, without idle slots.
using Timeline = std::vector<std::vector<TimedAction>>;

// Each action begins as soon as the rank is free and the stage next to it has
// given the input: idle slots do not count. Throws c10::ValueError, which names
// each waiting rank and action, if ranks wait for each other in a circle, and
// for orders that StageRanks refuses.
Timeline MakeTimeline(const PipelineOrder& order,
                      const ActionCosts& costs = {});
// The end of the last action.
double EndTime(const Timeline& timeline);
// The bubble: the time that a rank waits between its first and its last action,
// for the rank that waits longest.
double BubbleTime(const Timeline& timeline);

// The bubble of a schedule by its formula, for p ranks, costs f, i and w for
// each stage, and enough microbatches (a multiple of p, and at least twice as
// many as ranks):
//
//   GPipe, 1F1B, Interleaved1F1B   (p - 1) (f + i + w)
//   InterleavedZeroBubble          (p - 1) (f + i - w), w not above f and i
//   ZBVZeroBubble                  0, for equal f, i and w
//   DualPipeV                      (p - 1) f, for equal f, i and w
//
// Sources: https://arxiv.org/abs/2104.04473 and, for split backwards,
// https://arxiv.org/abs/2401.10241. The README of DualPipe gives
// (p - 1) (o + i - 2 w) for pairs of a forward and a backward that together
// take o. Here a pair's forward comes first and its output is sent before the
// backward begins, which leaves less.
double BubbleFormula(ScheduleKind kind, int64_t num_ranks,
                     const ActionCosts& costs = {});

}  // namespace fsdp

#endif  // FSDP_PARALLEL_PIPELINE_ORDER_TIMELINE_H_
