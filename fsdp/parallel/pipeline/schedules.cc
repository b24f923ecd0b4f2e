// SPDX-License-Identifier: Apache-2.0

#include "fsdp/parallel/pipeline/schedules.h"

#include <utility>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/cat.h"
#include "ATen/ops/stack.h"
#include "c10/util/Exception.h"
#include "fsdp/parallel/pipeline/step_run.h"

namespace fsdp {
namespace {

// Equal pieces along dim 0.
std::vector<at::Tensor> Pieces(const at::Tensor& tensor, int64_t num,
                               const char* what) {
  TORCH_CHECK_VALUE(tensor.defined() && tensor.dim() > 0 &&
                        tensor.size(0) % num == 0 && tensor.size(0) > 0,
                    "a pipeline divides ", what, " along dim 0 into ", num,
                    " equal microbatches, which cannot be done with ",
                    tensor.defined() ? c10::str("sizes ", tensor.sizes())
                                     : std::string("an undefined tensor"));
  return tensor.chunk(num);
}

std::vector<StageTensors> InputPieces(const StageTensors& args, int64_t num) {
  TORCH_CHECK_VALUE(
      !args.empty(),
      "the first stage of a pipeline needs the inputs of the model, .args");
  std::vector<StageTensors> microbatches(static_cast<size_t>(num));
  for (const at::Tensor& arg : args) {
    const std::vector<at::Tensor> pieces = Pieces(arg, num, "inputs");
    for (size_t i = 0; i < pieces.size(); ++i) {
      microbatches[i].push_back(pieces[i]);
    }
  }
  return microbatches;
}

at::Tensor Merged(const std::vector<at::Tensor>& outputs) {
  if (outputs.empty()) return {};
  return outputs[0].dim() == 0 ? at::stack(outputs) : at::cat(outputs);
}

}  // namespace

PipelineSchedule::PipelineSchedule(ScheduleKind kind, PipelineStage stage,
                                   int64_t num_microbatches,
                                   LossFunction loss_fn,
                                   const ScheduleOptions& options)
    : kind_(kind),
      stage_(std::move(stage)),
      num_microbatches_(num_microbatches),
      loss_fn_(std::move(loss_fn)),
      options_(options),
      order_(TrainingOrder(kind, stage_.stage_index(), stage_.num_stages(),
                           num_microbatches)),
      comm_(stage_.mesh()) {}

at::Tensor PipelineSchedule::step(const PipelineBatch& batch) {
  const bool has_backward = loss_fn_ != nullptr;
  StepGuard guard(comm_);
  TORCH_CHECK(!has_backward || at::GradMode::is_enabled(),
              "step() computes gradients, but grad mode is off; call eval()");
  const at::Tensor output = Run(batch, has_backward);
  guard.Finish();
  return output;
}

at::Tensor PipelineSchedule::eval(const PipelineBatch& batch) {
  const at::NoGradGuard no_grad;
  StepGuard guard(comm_);
  const at::Tensor output = Run(batch, /*has_backward=*/false);
  guard.Finish();
  return output;
}

at::Tensor PipelineSchedule::Run(const PipelineBatch& batch,
                                 bool has_backward) {
  comm_.set_activity("the division of a batch");
  StepPlan plan{.header = {.schedule = kind_,
                           .num_microbatches = num_microbatches_,
                           .has_backward = has_backward,
                           .activations = {}},
                .inputs = {},
                .targets = {},
                .loss_fn = loss_fn_,
                .loss_scale = options_.scale_grads
                                  ? 1.0 / static_cast<double>(num_microbatches_)
                                  : 1.0,
                .keep_outputs = batch.return_outputs};
  if (stage_.is_first()) {
    plan.inputs = InputPieces(batch.args, num_microbatches_);
  }
  if (stage_.is_last()) {
    TORCH_CHECK_VALUE(!has_backward || batch.target.defined(),
                      "the last stage of a pipeline needs what the loss "
                      "function compares its outputs with, .target");
    if (batch.target.defined()) {
      plan.targets = Pieces(batch.target, num_microbatches_, "targets");
    }
  }
  StepRun run(stage_, comm_, std::move(plan));
  run.Run(has_backward ? order_ : ForwardOrder(num_microbatches_));
  if (!stage_.is_last()) return {};
  if (batch.losses != nullptr) *batch.losses = run.losses();
  return Merged(run.outputs());
}

ScheduleGPipe::ScheduleGPipe(PipelineStage stage, int64_t num_microbatches,
                             LossFunction loss_fn,
                             const ScheduleOptions& options)
    : PipelineSchedule(ScheduleKind::kGPipe, std::move(stage), num_microbatches,
                       std::move(loss_fn), options) {}

Schedule1F1B::Schedule1F1B(PipelineStage stage, int64_t num_microbatches,
                           LossFunction loss_fn, const ScheduleOptions& options)
    : PipelineSchedule(ScheduleKind::k1F1B, std::move(stage), num_microbatches,
                       std::move(loss_fn), options) {}

}  // namespace fsdp
