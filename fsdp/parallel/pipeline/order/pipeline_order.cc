// SPDX-License-Identifier: Apache-2.0

#include "fsdp/parallel/pipeline/order/pipeline_order.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "c10/util/Exception.h"
#include "fsdp/parallel/pipeline/order/v_orders.h"

namespace fsdp {
namespace {

using Kind = PipelineAction::Kind;
using Slots = std::vector<PipelineSlot>;

Slots GPipeSlots(const PipelineShape& shape, int64_t rank) {
  Slots slots;
  for (const Kind kind : {Kind::kForward, Kind::kBackward}) {
    for (int64_t i = 0; i < shape.num_microbatches; ++i) {
      slots.push_back({{kind, rank, i}});
    }
  }
  return slots;
}

Slots OneForwardOneBackwardSlots(const PipelineShape& shape, int64_t rank) {
  const int64_t ahead = shape.num_ranks - rank;
  Slots slots;
  for (int64_t i = 0; i < ahead; ++i) {
    slots.push_back({{Kind::kForward, rank, i}});
  }
  for (int64_t i = 0; i < shape.num_microbatches; ++i) {
    slots.push_back({{Kind::kBackward, rank, i}});
    if (i + ahead < shape.num_microbatches) {
      slots.push_back({{Kind::kForward, rank, i + ahead}});
    }
  }
  return slots;
}

// The actions of one rank in a schedule with several stages on each rank. Some
// forwards come first, then a forward and a backward in turn, then the
// backwards that are left.
class LoopedSlots {
 public:
  LoopedSlots(const PipelineShape& shape, int64_t rank, bool splits_backward)
      : shape_(shape), rank_(rank), splits_backward_(splits_backward) {
    const int64_t rounds =
        std::max<int64_t>(1, shape.num_microbatches / shape.num_ranks);
    per_round_ = shape.num_microbatches / rounds;
    num_ops_ = shape.stages_per_rank * shape.num_microbatches;
    const int64_t hops = shape.num_ranks - 1 - rank;
    num_ahead_ = std::min((shape.stages_per_rank - 1) * per_round_ +
                              (splits_backward ? 1 : 2) * hops,
                          num_ops_);
  }

  Slots Make() {
    Idle(rank_);
    for (int64_t i = 0; i < num_ahead_; ++i) Add(Kind::kForward, Turn(i));
    if (num_ahead_ > 0) Idle(WaitForFirstBackward());
    for (int64_t i = 0; i < num_ops_; ++i) {
      const int64_t next = num_ahead_ + i;
      if (next < num_ops_) {
        Add(Kind::kForward, Turn(next));
      } else if (!splits_backward_) {
        Idle(1);
      }
      AddBackward(i);
    }
    while (splits_backward_ && num_weights_ < num_ops_) AddWeight();
    return std::move(slots_);
  }

 private:
  struct Place {
    int64_t local;  // the stage among the rank's
    int64_t microbatch;
  };

  // The i-th forward.
  Place Turn(int64_t i) const {
    const int64_t round = i / (per_round_ * shape_.stages_per_rank);
    return {.local = i / per_round_ % shape_.stages_per_rank,
            .microbatch = round * per_round_ + i % per_round_};
  }
  Place BackwardTurn(int64_t i) const {
    Place place = Turn(i);
    place.local = shape_.stages_per_rank - 1 - place.local;
    return place;
  }

  int64_t WaitForFirstBackward() const {
    const int64_t hops = shape_.num_ranks - 1 - rank_;
    if (splits_backward_) return hops;
    return shape_.num_stages() + 2 * hops - num_ahead_ - rank_;
  }

  void Idle(int64_t count) {
    for (int64_t i = 0; i < count; ++i) slots_.emplace_back();
  }
  void Add(Kind kind, const Place& place) {
    slots_.push_back(
        {{kind, place.local * shape_.num_ranks + rank_, place.microbatch}});
  }
  void AddBackward(int64_t i) {
    Add(splits_backward_ ? Kind::kBackwardInput : Kind::kBackward,
        BackwardTurn(i));
    if (splits_backward_ && i >= rank_) AddWeight();
  }
  void AddWeight() { Add(Kind::kBackwardWeight, BackwardTurn(num_weights_++)); }

  const PipelineShape shape_;
  const int64_t rank_;
  const bool splits_backward_;
  int64_t per_round_;
  int64_t num_ops_;    // forwards on the rank, as many as backwards
  int64_t num_ahead_;  // forwards in front of the first backward
  int64_t num_weights_ = 0;
  Slots slots_;
};

// Makes a forward wait, in idle slots, until the stage before it is done.
PipelineOrder WithIdleSlots(const PipelineOrder& order) {
  PipelineOrder result(order.size());
  std::vector<size_t> next(order.size(), 0);
  std::set<std::pair<int64_t, int64_t>> done;  // stage and microbatch
  for (bool goes_on = true; goes_on;) {
    goes_on = false;
    std::set<std::pair<int64_t, int64_t>> done_now;
    for (size_t rank = 0; rank < order.size(); ++rank) {
      if (next[rank] >= order[rank].size()) continue;
      goes_on = true;
      const PipelineSlot& slot = order[rank][next[rank]];
      const bool is_forward = !slot.empty() && slot[0].kind == Kind::kForward;
      if (is_forward && slot[0].stage > 0 &&
          !done.contains({slot[0].stage - 1, slot[0].microbatch})) {
        result[rank].emplace_back();
        continue;
      }
      if (is_forward) done_now.insert({slot[0].stage, slot[0].microbatch});
      result[rank].push_back(slot);
      ++next[rank];
    }
    done.merge(done_now);
  }
  return result;
}

void CheckRounds(ScheduleKind kind, const PipelineShape& shape) {
  const int64_t rounds =
      std::max<int64_t>(1, shape.num_microbatches / shape.num_ranks);
  TORCH_CHECK_VALUE(shape.num_microbatches % rounds == 0, ScheduleName(kind),
                    " runs microbatches in equal rounds, one for each ",
                    shape.num_ranks, " microbatches because there are ",
                    shape.num_ranks, " ranks, but ", shape.num_microbatches,
                    " microbatches are not a multiple of ", rounds, " rounds");
}

void CheckShape(ScheduleKind kind, const PipelineShape& shape) {
  const char* name = ScheduleName(kind);
  TORCH_CHECK_VALUE(kind != ScheduleKind::kCustom,
                    "an order of its own is given, not made");
  TORCH_CHECK_VALUE(shape.num_microbatches >= 1, name,
                    " needs at least one microbatch, not ",
                    shape.num_microbatches);
  TORCH_CHECK_VALUE(shape.num_ranks >= 1 && shape.stages_per_rank >= 1, name,
                    " needs at least one rank and one stage on it, not ",
                    shape.num_ranks, " ranks with ", shape.stages_per_rank,
                    " stages");
  const bool is_single =
      kind == ScheduleKind::kGPipe || kind == ScheduleKind::k1F1B;
  TORCH_CHECK_VALUE(!is_single || shape.stages_per_rank == 1, name,
                    " has one stage on each rank, not ", shape.stages_per_rank,
                    "; use ScheduleInterleaved1F1B");
  TORCH_CHECK_VALUE(!IsVSchedule(kind) || shape.stages_per_rank == 2, name,
                    " has exactly 2 stages on each rank, not ",
                    shape.stages_per_rank);
  const bool fills =
      kind == ScheduleKind::k1F1B || kind == ScheduleKind::kDualPipeV;
  TORCH_CHECK_VALUE(
      !fills || shape.num_microbatches >= shape.num_stages(), name,
      " needs at least as many microbatches as stages, but there are ",
      shape.num_microbatches, " microbatches and ", shape.num_stages(),
      " stages; use more microbatches or ",
      kind == ScheduleKind::k1F1B ? "ScheduleGPipe" : "ScheduleZBVZeroBubble");
  if (kind == ScheduleKind::kInterleaved1F1B ||
      kind == ScheduleKind::kInterleavedZeroBubble) {
    CheckRounds(kind, shape);
  }
}

// The facts about one microbatch on one stage.
struct Progress {
  bool forward = false;
  bool input = false;
  bool weight = false;
};

// Whether the action may come now. Notes that it came.
bool Advance(const PipelineAction& action, Progress& progress) {
  if (action.kind == Kind::kForward) {
    return !std::exchange(progress.forward, true);
  }
  if (action.kind == Kind::kBackwardWeight) {
    return progress.input && !std::exchange(progress.weight, true);
  }
  if (!progress.forward || std::exchange(progress.input, true)) return false;
  if (action.kind == Kind::kBackward) progress.weight = true;
  return true;
}

// Follows an order and finds the rank of each stage.
class OrderCheck {
 public:
  explicit OrderCheck(const PipelineOrder& order) {
    for (size_t rank = 0; rank < order.size(); ++rank) {
      for (size_t i = 0; i < order[rank].size(); ++i) {
        for (const PipelineAction& action : order[rank][i]) {
          Follow(static_cast<int64_t>(rank), i, action);
        }
      }
    }
    CheckComplete();
  }

  int64_t num_microbatches() const { return num_microbatches_; }
  std::vector<int64_t> ranks() const {
    std::vector<int64_t> ranks;
    for (const auto& [stage, rank] : ranks_) ranks.push_back(rank);
    return ranks;
  }

 private:
  void Follow(int64_t rank, size_t slot, const PipelineAction& action) {
    const auto where = [&] {
      return absl::StrCat("rank ", rank, ", slot ", slot, ": ",
                          to_string(action), " ");
    };
    const auto [place, is_new] = ranks_.emplace(action.stage, rank);
    TORCH_CHECK_VALUE(place->second == rank, where(), "is a stage of rank ",
                      place->second, " too");
    TORCH_CHECK_VALUE(
        Advance(action, progress_[{action.stage, action.microbatch}]), where(),
        "comes twice, or before the action that it depends on");
    num_microbatches_ = std::max(num_microbatches_, action.microbatch + 1);
  }

  void CheckComplete() const {
    TORCH_CHECK_VALUE(!ranks_.empty(), "the order of a pipeline is empty");
    const bool has_backward =
        std::any_of(progress_.begin(), progress_.end(),
                    [](const auto& item) { return item.second.input; });
    for (int64_t stage = 0; stage <= ranks_.rbegin()->first; ++stage) {
      for (int64_t i = 0; i < num_microbatches_; ++i) {
        const auto found = progress_.find({stage, i});
        TORCH_CHECK_VALUE(found != progress_.end() && found->second.forward &&
                              found->second.input == has_backward &&
                              found->second.weight == has_backward,
                          "the order of a pipeline lacks a part of stage ",
                          stage, "'s work on microbatch ", i, " of ",
                          num_microbatches_);
      }
    }
  }

  std::map<int64_t, int64_t> ranks_;
  std::map<std::pair<int64_t, int64_t>, Progress> progress_;
  int64_t num_microbatches_ = 0;
};

}  // namespace

const char* ScheduleName(ScheduleKind kind) {
  switch (kind) {
    case ScheduleKind::kGPipe:
      return "ScheduleGPipe";
    case ScheduleKind::k1F1B:
      return "Schedule1F1B";
    case ScheduleKind::kInterleaved1F1B:
      return "ScheduleInterleaved1F1B";
    case ScheduleKind::kInterleavedZeroBubble:
      return "ScheduleInterleavedZeroBubble";
    case ScheduleKind::kZBVZeroBubble:
      return "ScheduleZBVZeroBubble";
    case ScheduleKind::kDualPipeV:
      return "ScheduleDualPipeV";
    case ScheduleKind::kCustom:
      return "ScheduleFromOrder";
  }
  TORCH_CHECK(false, "no such schedule: ", static_cast<int64_t>(kind));
}

bool IsVSchedule(ScheduleKind kind) {
  return kind == ScheduleKind::kZBVZeroBubble ||
         kind == ScheduleKind::kDualPipeV;
}

std::vector<int64_t> StagesOnRank(ScheduleKind kind, const PipelineShape& shape,
                                  int64_t rank) {
  if (IsVSchedule(kind)) return {rank, shape.num_stages() - 1 - rank};
  std::vector<int64_t> stages;
  for (int64_t i = 0; i < shape.stages_per_rank; ++i) {
    stages.push_back(i * shape.num_ranks + rank);
  }
  return stages;
}

PipelineOrder MakePipelineOrder(ScheduleKind kind, const PipelineShape& shape) {
  CheckShape(kind, shape);
  const bool splits_backward = kind == ScheduleKind::kInterleavedZeroBubble;
  PipelineOrder order;
  for (int64_t rank = 0; rank < shape.num_ranks; ++rank) {
    if (kind == ScheduleKind::kGPipe) {
      order.push_back(GPipeSlots(shape, rank));
    } else if (kind == ScheduleKind::k1F1B) {
      order.push_back(OneForwardOneBackwardSlots(shape, rank));
    } else if (kind == ScheduleKind::kZBVZeroBubble) {
      order.push_back(ZBVSlots(shape, rank));
    } else if (kind == ScheduleKind::kDualPipeV) {
      order.push_back(DualPipeVSlots(shape, rank));
    } else {
      order.push_back(LoopedSlots(shape, rank, splits_backward).Make());
    }
  }
  return splits_backward ? WithIdleSlots(order) : order;
}

std::vector<int64_t> StageRanks(const PipelineOrder& order) {
  return OrderCheck(order).ranks();
}

int64_t NumMicrobatches(const PipelineOrder& order) {
  return OrderCheck(order).num_microbatches();
}

PipelineOrder ForwardsOnly(const PipelineOrder& order) {
  PipelineOrder result(order.size());
  for (size_t rank = 0; rank < order.size(); ++rank) {
    for (const PipelineSlot& slot : order[rank]) {
      for (const PipelineAction& action : slot) {
        if (action.kind == Kind::kForward) result[rank].push_back({action});
      }
    }
  }
  return result;
}

}  // namespace fsdp
