// SPDX-License-Identifier: Apache-2.0
// ScheduleGPipe and Schedule1F1B: train and evaluate a model in stages on
// different ranks, one batch at a time in microbatches. Names and meaning are
// PyTorch's (torch/distributed/pipelining/schedules.py, 2.11);
// fsdp/parallel/pipeline/README.md has an example. For the thread that trains;
// all ranks in a pipeline make the same calls in the same order.
#ifndef FSDP_PARALLEL_PIPELINE_SCHEDULES_H_
#define FSDP_PARALLEL_PIPELINE_SCHEDULES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "ATen/core/Tensor.h"
#include "fsdp/parallel/pipeline/pipeline_stage.h"
#include "fsdp/parallel/pipeline/schedule_order.h"
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

// One batch. Every stage may be given the whole batch, and takes the parts that
// it needs.
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
  // fully_shard they are reduced once, in the last microbatch's backward, after
  // which FSDPModule's settings are as before. Without a loss function there is
  // only forward. Returns the last stage's outputs for the whole batch,
  // detached; undefined on the other stages. Activations may change sizes and
  // dtypes from one step to the next.
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

 protected:
  PipelineSchedule(ScheduleKind kind, PipelineStage stage,
                   int64_t num_microbatches, LossFunction loss_fn,
                   const ScheduleOptions& options);

 private:
  at::Tensor Run(const PipelineBatch& batch, bool has_backward);

  ScheduleKind kind_;
  PipelineStage stage_;
  int64_t num_microbatches_;
  LossFunction loss_fn_;
  ScheduleOptions options_;
  std::vector<PipelineAction> order_;
  StageComm comm_;
};

// All forwards, then all backwards: holds all microbatches' activations.
class ScheduleGPipe : public PipelineSchedule {
 public:
  // If one stage has a loss function, every stage must have it. Throws
  // c10::ValueError for fewer than one microbatch.
  ScheduleGPipe(PipelineStage stage, int64_t num_microbatches,
                LossFunction loss_fn = nullptr,
                const ScheduleOptions& options = {});
};

// One backward after each forward, so that a stage holds activations for at
// most as many microbatches as there are stages. Throws c10::ValueError for
// fewer microbatches than stages.
class Schedule1F1B : public PipelineSchedule {
 public:
  Schedule1F1B(PipelineStage stage, int64_t num_microbatches,
               LossFunction loss_fn = nullptr,
               const ScheduleOptions& options = {});
};

}  // namespace fsdp

#endif  // FSDP_PARALLEL_PIPELINE_SCHEDULES_H_
