// SPDX-License-Identifier: Apache-2.0
// Makes the orders of V schedules.
//
// Tested by tests/fsdp/parallel/pipeline/order/pipeline_order_test.cc.
#include "fsdp/parallel/pipeline/order/v_orders.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <deque>
#include <utility>

namespace fsdp {
namespace {

using Kind = PipelineAction::Kind;
using Slots = std::vector<PipelineSlot>;

// A rank's slots, with the next microbatch for each kind of action on each of
// both stages: 0 on the way down, 1 on the way up.
class VSlots {
 public:
  VSlots(const PipelineShape& shape, int64_t rank)
      : stages_{rank, shape.num_stages() - 1 - rank} {}

  // The next microbatch's action. A whole backward counts as both parts.
  PipelineAction Next(Kind kind, size_t side) {
    int64_t& input = Count(Kind::kBackwardInput, side);
    int64_t& weight = Count(Kind::kBackwardWeight, side);
    int64_t& next = kind == Kind::kBackward ? input : Count(kind, side);
    const PipelineAction action{kind, stages_[side], next++};
    if (kind == Kind::kBackward) ++weight;
    if (kind == Kind::kBackwardInput) {
      weights_.push_back(
          {Kind::kBackwardWeight, action.stage, action.microbatch});
    }
    return action;
  }
  void Add(Kind kind, size_t side) { slots_.push_back({Next(kind, side)}); }
  void AddForwardWithBackward(size_t forward_side) {
    const PipelineAction forward = Next(Kind::kForward, forward_side);
    slots_.push_back({forward, Next(Kind::kBackward, 1 - forward_side)});
  }
  // The weights' part of the oldest backward that lacks it, if any does.
  void AddOldestWeight() {
    if (weights_.empty()) return;
    slots_.push_back({weights_.front()});
    weights_.pop_front();
  }
  void Idle(int64_t count) {
    for (int64_t i = 0; i < count; ++i) slots_.emplace_back();
  }

  // How many actions of this kind there are.
  int64_t& Count(Kind kind, size_t side) {
    return counts_[static_cast<size_t>(kind)][side];
  }
  Slots Take() { return std::move(slots_); }

 private:
  const std::array<int64_t, 2> stages_;
  std::array<std::array<int64_t, 2>, 4> counts_{};
  std::deque<PipelineAction> weights_;  // for AddOldestWeight
  Slots slots_;
};

void AddBothParts(VSlots& slots, size_t side) {
  slots.Add(Kind::kBackwardInput, side);
  slots.Add(Kind::kBackwardWeight, side);
}

// The forwards until each stage has a microbatch to go back with.
void AddZBVStart(VSlots& slots, int64_t num_ranks, int64_t rank) {
  slots.Idle(rank);
  for (int64_t i = 0; i < 2 * (num_ranks - rank) - 1; ++i) {
    slots.Add(Kind::kForward, 0);
  }
  for (int64_t i = 0; i < rank; ++i) {
    slots.Add(Kind::kForward, 1);
    slots.Add(Kind::kForward, 0);
  }
  for (int64_t i = 0; i < num_ranks - rank; ++i) {
    slots.Add(Kind::kForward, 1);
    AddBothParts(slots, 1);
  }
}

// The backwards that are left; the weights' parts come last.
void AddZBVEnd(VSlots& slots, int64_t num_ranks, int64_t rank) {
  for (int64_t i = 0; i < rank; ++i) {
    slots.Add(Kind::kBackwardInput, 0);
    slots.Add(Kind::kBackwardInput, 1);
  }
  for (int64_t i = 0; i < num_ranks - rank; ++i) AddBothParts(slots, 0);
  for (const size_t side : {size_t{1}, size_t{0}}) {
    while (slots.Count(Kind::kBackwardWeight, side) <
           slots.Count(Kind::kBackwardInput, side)) {
      slots.Add(Kind::kBackwardWeight, side);
    }
  }
}

// The backwards of DualPipeV that no forward goes with: the later ones are
// split, so that their first parts reach the earlier stages sooner.
void AddDualPipeVEnd(VSlots& slots, int64_t num_ranks, int64_t rank) {
  const int64_t num_pairs = rank + 1;
  Kind kind = Kind::kBackward;
  for (int64_t i = 0; i < num_pairs; ++i) {
    const bool begins = i == num_pairs / 2;
    if (begins && rank % 2 == 1) kind = Kind::kBackwardInput;
    slots.Add(kind, 1);
    if (begins && rank % 2 == 0) kind = Kind::kBackwardInput;
    slots.Add(kind, 0);
  }
  for (int64_t i = 0; i < num_ranks - rank - 1; ++i) {
    slots.AddOldestWeight();
    slots.Add(kind, 0);
  }
  for (int64_t i = 0; i < num_pairs; ++i) slots.AddOldestWeight();
}

}  // namespace

std::vector<PipelineSlot> ZBVSlots(const PipelineShape& shape, int64_t rank) {
  const int64_t num_microbatches =
      std::max(2 * shape.num_ranks - 1, shape.num_microbatches);
  VSlots slots(shape, rank);
  AddZBVStart(slots, shape.num_ranks, rank);
  const int64_t& forwards_down = slots.Count(Kind::kForward, 0);
  const int64_t& forwards_up = slots.Count(Kind::kForward, 1);
  while (forwards_up < forwards_down || forwards_down < num_microbatches) {
    if (forwards_down < num_microbatches) slots.Add(Kind::kForward, 0);
    AddBothParts(slots, 0);
    slots.Add(Kind::kForward, 1);
    AddBothParts(slots, 1);
  }
  AddZBVEnd(slots, shape.num_ranks, rank);
  Slots result = slots.Take();
  for (PipelineSlot& slot : result) {
    if (!slot.empty() && slot[0].microbatch >= shape.num_microbatches) {
      slot.clear();
    }
  }
  return result;
}

std::vector<PipelineSlot> DualPipeVSlots(const PipelineShape& shape,
                                         int64_t rank) {
  const int64_t hops = shape.num_ranks - 1 - rank;
  VSlots slots(shape, rank);
  for (int64_t i = 0; i < 2 * hops; ++i) slots.Add(Kind::kForward, 0);
  for (int64_t i = 0; i < rank + 1; ++i) {
    slots.Add(Kind::kForward, 0);
    slots.Add(Kind::kForward, 1);
  }
  for (int64_t i = 0; i < hops; ++i) {
    slots.Add(Kind::kBackwardInput, 1);
    slots.AddOldestWeight();
    slots.Add(Kind::kForward, 1);
  }
  const int64_t num_pairs =
      shape.num_microbatches - shape.num_stages() + rank + 1;
  for (int64_t i = 0; i < num_pairs; ++i) {
    if (i == 0 && hops == 0) {
      // Apart, the last rank's first two leave less time idle.
      slots.Add(Kind::kForward, 0);
      slots.Add(Kind::kBackward, 1);
    } else {
      slots.AddForwardWithBackward(0);
    }
    slots.AddForwardWithBackward(1);
  }
  for (int64_t i = 0; i < hops; ++i) {
    slots.Add(Kind::kBackward, 1);
    slots.AddForwardWithBackward(1);
  }
  AddDualPipeVEnd(slots, shape.num_ranks, rank);
  return slots.Take();
}

}  // namespace fsdp
