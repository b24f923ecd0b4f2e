// SPDX-License-Identifier: Apache-2.0
// Schedules: train and evaluate a model in stages on different ranks, one batch
// at a time in microbatches. Names and meaning are PyTorch's
// (torch/distributed/ pipelining/schedules.py, 2.15);
// fsdp/parallel/pipeline/README.md has an example. For the thread that trains;
// all ranks in a pipeline make the same calls in the same order.
#ifndef FSDP_PARALLEL_PIPELINE_SCHEDULES_H_
#define FSDP_PARALLEL_PIPELINE_SCHEDULES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "ATen/core/Tensor.h"
#include "fsdp/parallel/pipeline/order/message_plan.h"
#include "fsdp/parallel/pipeline/order/pipeline_order.h"
#include "fsdp/parallel/pipeline/pipeline_stage.h"
#include "fsdp/parallel/pipeline/stage_comm.h"

namespace fsdp {

// One microbatch's loss, a tensor with one element, from the last stage's only
// output.
using LossFunction = std::function<at::Tensor(const at::Tensor& output,
                                              const at::Tensor& target)>;

struct ScheduleOptions {
  // true: gradients are those of the microbatch losses' mean, for a loss that
  // is a mean over rows; false: those of the losses' sum.
  bool scale_grads = true;
};

// One batch. Every rank may be given the whole batch, and takes the parts that
// its stages need.
struct PipelineBatch {
  // For the first stage: the inputs to forward.
  StageTensors args = {};
  // For the last stage, if there is a loss.
  at::Tensor target = {};
  // For the last stage: set to the microbatches' losses, detached.
  StageTensors* losses = nullptr;
  // false: the last stage does not keep outputs.
  bool return_outputs = true;
};

class PipelineSchedule {
 public:
  // Runs forward and backward on all microbatches: equal pieces of `args` and
  // `target` along dim 0. That size must be a multiple of the microbatch count.
  // Gradients are added to those that parameters already have. Under
  // fully_shard they are reduced once, in each stage's last backward, after
  // which FSDPModule's settings are as before. Without a loss function there is
  // only forward. Returns the last stage's outputs for the whole batch,
  // detached, on that stage's rank; undefined on the others. Activations may
  // change sizes and dtypes from one step to the next.
  //
  // Throws c10::ValueError for a batch that cannot be divided or lacks tensors
  // that this stage needs, and c10::Error without grad mode. Throws
  // c10::DistBackendError, which names ranks and stages, if a neighbour is
  // gone, has thrown, runs another schedule, or does not come within the
  // group's timeout. Errors from the model or the loss are passed on. After an
  // error in one stage all stages get one, and the pipeline's group cannot be
  // used again.
  at::Tensor step(const PipelineBatch& batch = {});
  // Forward without gradients, and the losses if there is a target.
  at::Tensor eval(const PipelineBatch& batch = {});

  // The work of all ranks. order_text.h prints and draws it.
  const PipelineOrder& pipeline_order() const { return order_; }

 protected:
  // `order` is empty for the schedule's own. The constructors of all schedules
  // throw on all ranks if they throw on one, before any collective:
  // c10::ValueError, which names the rank and the value, for numbers that
  // MakePipelineOrder refuses; for stages that are not the rank's, as
  // StagesOnRank lists them, or not on one mesh; and for a stage without
  // parameters if there is a loss function.
  PipelineSchedule(ScheduleKind kind, std::vector<PipelineStage> stages,
                   int64_t num_microbatches, LossFunction loss_fn,
                   const ScheduleOptions& options, PipelineOrder order = {});

 private:
  at::Tensor Run(const PipelineBatch& batch, bool has_backward);
  bool HasStage(int64_t stage) const;

  ScheduleKind kind_;
  std::vector<PipelineStage> stages_;  // ascending
  LossFunction loss_fn_;
  ScheduleOptions options_;
  PipelineOrder order_;
  MessagePlan training_;
  MessagePlan evaluation_;
  StageComm comm_;
};

// All forwards, then all backwards: holds all microbatches' activations.
class ScheduleGPipe : public PipelineSchedule {
 public:
  // If one stage has a loss function, every stage must have it.
  ScheduleGPipe(PipelineStage stage, int64_t num_microbatches,
                LossFunction loss_fn = nullptr,
                const ScheduleOptions& options = {});
};

// One backward after each forward, so that a stage holds activations for at
// most as many microbatches as there are stages.
class Schedule1F1B : public PipelineSchedule {
 public:
  Schedule1F1B(PipelineStage stage, int64_t num_microbatches,
               LossFunction loss_fn = nullptr,
               const ScheduleOptions& options = {});
};

// Several stages on each rank, which has stages rank, rank + num_ranks ...
class ScheduleInterleaved1F1B : public PipelineSchedule {
 public:
  ScheduleInterleaved1F1B(std::vector<PipelineStage> stages,
                          int64_t num_microbatches,
                          LossFunction loss_fn = nullptr,
                          const ScheduleOptions& options = {});
};

// The same with split backwards: see split_backward.h.
class ScheduleInterleavedZeroBubble : public PipelineSchedule {
 public:
  ScheduleInterleavedZeroBubble(std::vector<PipelineStage> stages,
                                int64_t num_microbatches,
                                LossFunction loss_fn = nullptr,
                                const ScheduleOptions& options = {});
};

// Two stages on each rank: rank and 2 num_ranks - 1 - rank, so that rank 0 has
// the first and the last one.
class ScheduleZBVZeroBubble : public PipelineSchedule {
 public:
  ScheduleZBVZeroBubble(std::vector<PipelineStage> stages,
                        int64_t num_microbatches,
                        LossFunction loss_fn = nullptr,
                        const ScheduleOptions& options = {});
};

// The same stages; at least as many microbatches as stages.
class ScheduleDualPipeV : public PipelineSchedule {
 public:
  ScheduleDualPipeV(std::vector<PipelineStage> stages, int64_t num_microbatches,
                    LossFunction loss_fn = nullptr,
                    const ScheduleOptions& options = {});
};

// An order of one's own, with backwards: for example ParseOrderCsv's result
// (order_text.h). It says how many microbatches there are, and which rank has
// which stages. Throws also for an order that MakeMessagePlan refuses.
class ScheduleFromOrder : public PipelineSchedule {
 public:
  ScheduleFromOrder(std::vector<PipelineStage> stages, PipelineOrder order,
                    LossFunction loss_fn = nullptr,
                    const ScheduleOptions& options = {});
};

// A schedule by its kind, except for kCustom; kGPipe and k1F1B take one stage.
std::unique_ptr<PipelineSchedule> MakeSchedule(
    ScheduleKind kind, std::vector<PipelineStage> stages,
    int64_t num_microbatches, LossFunction loss_fn = nullptr,
    const ScheduleOptions& options = {});

}  // namespace fsdp

#endif  // FSDP_PARALLEL_PIPELINE_SCHEDULES_H_
