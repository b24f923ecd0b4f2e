// SPDX-License-Identifier: Apache-2.0

#include "fsdp/parallel/pipeline/schedules.h"

#include <algorithm>
#include <cstddef>
#include <string>
#include <utility>

#include "ATen/core/grad_mode.h"
#include "ATen/ops/cat.h"
#include "ATen/ops/stack.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "c10/util/Exception.h"
#include "fsdp/mesh/collective_errors.h"
#include "fsdp/parallel/pipeline/schedule_checks.h"
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

PipelineSchedule::PipelineSchedule(ScheduleKind kind,
                                   std::vector<PipelineStage> stages,
                                   int64_t num_microbatches,
                                   LossFunction loss_fn,
                                   const ScheduleOptions& options,
                                   PipelineOrder order)
    : kind_(kind),
      stages_(std::move(stages)),
      loss_fn_(std::move(loss_fn)),
      options_(options),
      order_(CheckedOrder(kind, stages_, num_microbatches, loss_fn_ != nullptr,
                          std::move(order))),
      training_(MakeMessagePlan(order_)),
      evaluation_(MakeMessagePlan(ForwardsOnly(order_))),
      comm_(stages_.front().mesh(), training_.stage_ranks,
            training_.rank_pairs()) {
  std::sort(stages_.begin(), stages_.end(),
            [](const PipelineStage& a, const PipelineStage& b) {
              return a.stage_index() < b.stage_index();
            });
}

bool PipelineSchedule::HasStage(int64_t stage) const {
  return training_.rank_of(stage) == comm_.rank();
}

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
  const int64_t num_microbatches = training_.num_microbatches;
  comm_.set_activity(stages_.front().stage_index(), "the division of a batch");
  StepPlan plan{.header = {.schedule = kind_,
                           .num_microbatches = num_microbatches,
                           .has_backward = has_backward,
                           .activations = {}},
                .inputs = {},
                .targets = {},
                .loss_fn = loss_fn_,
                .loss_scale = options_.scale_grads
                                  ? 1.0 / static_cast<double>(num_microbatches)
                                  : 1.0,
                .keep_outputs = batch.return_outputs};
  const bool has_last = HasStage(training_.num_stages() - 1);
  if (HasStage(0)) plan.inputs = InputPieces(batch.args, num_microbatches);
  if (has_last) {
    TORCH_CHECK_VALUE(!has_backward || batch.target.defined(),
                      "the last stage of a pipeline needs what the loss "
                      "function compares its outputs with, .target");
    if (batch.target.defined()) {
      plan.targets = Pieces(batch.target, num_microbatches, "targets");
    }
  }
  StepRun run(stages_, comm_, has_backward ? training_ : evaluation_,
              std::move(plan));
  run.Run();
  if (!has_last) return {};
  if (batch.losses != nullptr) *batch.losses = run.losses();
  return Merged(run.outputs());
}

ScheduleGPipe::ScheduleGPipe(PipelineStage stage, int64_t num_microbatches,
                             LossFunction loss_fn,
                             const ScheduleOptions& options)
    : PipelineSchedule(ScheduleKind::kGPipe, {std::move(stage)},
                       num_microbatches, std::move(loss_fn), options) {}

Schedule1F1B::Schedule1F1B(PipelineStage stage, int64_t num_microbatches,
                           LossFunction loss_fn, const ScheduleOptions& options)
    : PipelineSchedule(ScheduleKind::k1F1B, {std::move(stage)},
                       num_microbatches, std::move(loss_fn), options) {}

ScheduleInterleaved1F1B::ScheduleInterleaved1F1B(
    std::vector<PipelineStage> stages, int64_t num_microbatches,
    LossFunction loss_fn, const ScheduleOptions& options)
    : PipelineSchedule(ScheduleKind::kInterleaved1F1B, std::move(stages),
                       num_microbatches, std::move(loss_fn), options) {}

ScheduleInterleavedZeroBubble::ScheduleInterleavedZeroBubble(
    std::vector<PipelineStage> stages, int64_t num_microbatches,
    LossFunction loss_fn, const ScheduleOptions& options)
    : PipelineSchedule(ScheduleKind::kInterleavedZeroBubble, std::move(stages),
                       num_microbatches, std::move(loss_fn), options) {}

ScheduleZBVZeroBubble::ScheduleZBVZeroBubble(std::vector<PipelineStage> stages,
                                             int64_t num_microbatches,
                                             LossFunction loss_fn,
                                             const ScheduleOptions& options)
    : PipelineSchedule(ScheduleKind::kZBVZeroBubble, std::move(stages),
                       num_microbatches, std::move(loss_fn), options) {}

ScheduleDualPipeV::ScheduleDualPipeV(std::vector<PipelineStage> stages,
                                     int64_t num_microbatches,
                                     LossFunction loss_fn,
                                     const ScheduleOptions& options)
    : PipelineSchedule(ScheduleKind::kDualPipeV, std::move(stages),
                       num_microbatches, std::move(loss_fn), options) {}

ScheduleFromOrder::ScheduleFromOrder(std::vector<PipelineStage> stages,
                                     PipelineOrder order, LossFunction loss_fn,
                                     const ScheduleOptions& options)
    : PipelineSchedule(ScheduleKind::kCustom, std::move(stages),
                       /*num_microbatches=*/0, std::move(loss_fn), options,
                       std::move(order)) {}

std::unique_ptr<PipelineSchedule> MakeSchedule(
    ScheduleKind kind, std::vector<PipelineStage> stages,
    int64_t num_microbatches, LossFunction loss_fn,
    const ScheduleOptions& options) {
  // The constructor is not public, because each schedule has a class.
  struct AnySchedule : PipelineSchedule {
    AnySchedule(ScheduleKind kind, std::vector<PipelineStage> stages,
                int64_t num_microbatches, LossFunction loss_fn,
                const ScheduleOptions& options)
        : PipelineSchedule(kind, std::move(stages), num_microbatches,
                           std::move(loss_fn), options) {}
  };
  return std::make_unique<AnySchedule>(
      kind, std::move(stages), num_microbatches, std::move(loss_fn), options);
}

}  // namespace fsdp
