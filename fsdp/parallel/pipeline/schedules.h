// SPDX-License-Identifier: Apache-2.0
// ScheduleGPipe and Schedule1F1B: train and evaluate a model whose stages are
// on different ranks, one batch at a time in microbatches. Names and meaning
// are PyTorch's (torch/distributed/pipelining/schedules.py, 2.11);
// fsdp/parallel/pipeline/README.md has an example. For the thread that trains;
// the ranks of a pipeline make the same calls in the same order.
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

// The loss of one microbatch, a tensor of one element, from the last stage's
// only output.
using LossFunction = std::function<at::Tensor(const at::Tensor& output,
                                              const at::Tensor& target)>;

struct ScheduleOptions {
  // true: gradients are those of the mean of the microbatches' losses, for a
  // loss that is a mean over its rows; false: of their sum.
  bool scale_grads = true;
};

// One batch. Every stage may be given all of it, and takes what it needs.
struct PipelineBatch {
  // For the first stage: the inputs of forward.
  StageTensors args = {};
  // For the last stage, if there is a loss.
  at::Tensor target = {};
  // For the last stage: set to the losses of the microbatches, detached.
  StageTensors* losses = nullptr;
  // false: the last stage does not keep its outputs.
  bool return_outputs = true;
};

class PipelineSchedule {
 public:
  // Runs forward and backward of all microbatches: equal pieces of `args` and
  // `target` along dim 0, whose size must be a multiple of their number.
  // Gradients are added to what parameters have. Under fully_shard they are
  // reduced once, in the last microbatch's backward, after which the settings
  // of FSDPModule are as before. Without a loss function there is only forward.
  // Returns the last stage's outputs for the whole batch, detached; undefined
  // on the other stages. The sizes and dtypes of activations may change from
  // one step to the next.
  //
  // Throws c10::ValueError for a batch that cannot be divided or lacks what
  // this stage needs, c10::Error without grad mode, and c10::DistBackendError,
  // which names ranks and stages, if a neighbour is gone, has thrown, runs
  // another schedule, or does not come within the timeout of the group. What
  // the model or the loss throws is passed on. After an error in one stage all
  // stages get one, and the pipeline's group cannot be used again.
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

// All forwards, then all backwards: holds the activations of all microbatches.
class ScheduleGPipe : public PipelineSchedule {
 public:
  // The loss function must be given on every stage if on one. Throws
  // c10::ValueError for fewer than one microbatch.
  ScheduleGPipe(PipelineStage stage, int64_t num_microbatches,
                LossFunction loss_fn = nullptr,
                const ScheduleOptions& options = {});
};

// One backward after each forward, so that a stage holds the activations of no
// more microbatches than there are stages. Throws c10::ValueError for fewer
// microbatches than stages.
class Schedule1F1B : public PipelineSchedule {
 public:
  Schedule1F1B(PipelineStage stage, int64_t num_microbatches,
               LossFunction loss_fn = nullptr,
               const ScheduleOptions& options = {});
};

}  // namespace fsdp

#endif  // FSDP_PARALLEL_PIPELINE_SCHEDULES_H_
