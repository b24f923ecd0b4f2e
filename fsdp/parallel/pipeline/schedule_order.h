// SPDX-License-Identifier: Apache-2.0
// The order in which a pipeline stage runs forwards and backwards of
// microbatches, for each schedule. The orders are those in PyTorch 2.11
// (torch/distributed/pipelining/schedules.py). Pure; any thread.
#ifndef FSDP_PARALLEL_PIPELINE_SCHEDULE_ORDER_H_
#define FSDP_PARALLEL_PIPELINE_SCHEDULE_ORDER_H_

#include <cstdint>
#include <vector>

namespace fsdp {

// Stages tell one another the numbers.
enum class ScheduleKind : int64_t { kGPipe = 0, k1F1B = 1 };

// "ScheduleGPipe".
const char* ScheduleName(ScheduleKind kind);

struct PipelineAction {
  enum class Kind { kForward, kBackward };
  Kind kind;
  int64_t microbatch;

  friend bool operator==(const PipelineAction&,
                         const PipelineAction&) = default;
};

// All forwards; the order for evaluation.
std::vector<PipelineAction> ForwardOrder(int64_t num_microbatches);

// kGPipe: all forwards, then all backwards.
//
// k1F1B: as many forwards as there are stages from this one to the last, then
// one backward and one forward in turn, then the remaining backwards: stage s
// of n holds the activations of n - s microbatches at most.
//
//   stage 0 of 2, 4 microbatches: F0 F1 B0 F2 B1 F3 B2 B3
//   stage 1 of 2:                 F0 B0 F1 B1 F2 B2 F3 B3
//
// Throws c10::ValueError for less than one microbatch, and with k1F1B for fewer
// microbatches than stages.
std::vector<PipelineAction> TrainingOrder(ScheduleKind kind,
                                          int64_t stage_index,
                                          int64_t num_stages,
                                          int64_t num_microbatches);

}  // namespace fsdp

#endif  // FSDP_PARALLEL_PIPELINE_SCHEDULE_ORDER_H_
