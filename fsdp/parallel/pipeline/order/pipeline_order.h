// SPDX-License-Identifier: Apache-2.0
// The order in which each rank of a pipeline works, for each schedule. The
// orders are PyTorch's (torch/distributed/pipelining/schedules.py, 2.15),
// action by action. Pure; any thread.
#ifndef FSDP_PARALLEL_PIPELINE_ORDER_PIPELINE_ORDER_H_
#define FSDP_PARALLEL_PIPELINE_ORDER_PIPELINE_ORDER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "fsdp/parallel/pipeline/order/pipeline_action.h"

namespace fsdp {

// Stages tell one another the numbers. kCustom is an order from a file.
enum class ScheduleKind : int64_t {
  kGPipe = 0,
  k1F1B = 1,
  kInterleaved1F1B = 2,
  kInterleavedZeroBubble = 3,
  kZBVZeroBubble = 4,
  kDualPipeV = 5,
  kCustom = 6,
};
inline constexpr int64_t kNumScheduleKinds = 7;

// "ScheduleGPipe".
const char* ScheduleName(ScheduleKind kind);

// Whether stages go down the ranks and up again, so that the first rank has the
// first and the last stage. Otherwise stage s is on rank s % num_ranks.
bool IsVSchedule(ScheduleKind kind);
// The stages on a rank, ascending.
std::vector<int64_t> StagesOnRank(ScheduleKind kind, const PipelineShape& shape,
                                  int64_t rank);

// kGPipe: all forwards, then all backwards.
//
// k1F1B: as many forwards as there are stages from this one to the last, then
// one backward and one forward in turn, then the remaining backwards: stage s
// of n holds the activations of n - s microbatches at most.
//
//   rank 0 of 2, 4 microbatches: 0F0 0F1 0B0 0F2 0B1 0F3 0B2 0B3
//   rank 1 of 2:                 1F0 1B0 1F1 1B1 1F2 1B2 1F3 1B3
//
// kInterleaved1F1B: 1F1B with several stages on a rank, which take turns after
// a round of microbatches (https://arxiv.org/abs/2104.04473).
//
// kInterleavedZeroBubble: each backward in two parts; the second one fills the
// time in which a rank would wait (ZB1P in https://arxiv.org/abs/2401.10241).
//
// kZBVZeroBubble, kDualPipeV: see v_orders.h.
//
// Throws c10::ValueError, which names the value and the rule: for numbers below
// one; more than one stage on a rank with kGPipe and k1F1B, and other than two
// with V schedules; fewer microbatches than stages with k1F1B and kDualPipeV;
// and microbatches that do not make equal rounds with the interleaved ones.
PipelineOrder MakePipelineOrder(ScheduleKind kind, const PipelineShape& shape);

// The rank of each stage. Throws c10::ValueError, which names rank, slot and
// action, for an order in which a stage or microbatch is missing, comes twice,
// or is on two ranks, or a backward comes before its forward.
std::vector<int64_t> StageRanks(const PipelineOrder& order);
// How many microbatches an order has that StageRanks accepts.
int64_t NumMicrobatches(const PipelineOrder& order);

// The order without backwards and idle slots, for evaluation.
PipelineOrder ForwardsOnly(const PipelineOrder& order);

}  // namespace fsdp

#endif  // FSDP_PARALLEL_PIPELINE_ORDER_PIPELINE_ORDER_H_
