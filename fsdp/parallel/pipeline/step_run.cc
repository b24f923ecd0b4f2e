// SPDX-License-Identifier: Apache-2.0
// A step, on each stage, for each action in the stage's order:
//   1. The previous action's results are sent, and this action's inputs are
//      received: activations from the previous stage, gradients from the next
//      stage. The header comes before the first activations.
//   2. The action computes.
// Nobody waits for a sent message before it is necessary: the wait for
// activations comes when their microbatch's gradients have come back, so they
// have arrived; the wait for other messages when the next one of their kind is
// sent. So a stage waits only for messages with lower microbatches, and stages
// cannot wait for each other in a circle.
//
// Tested by tests/fsdp/parallel/pipeline/schedules_test.cc.
#include "fsdp/parallel/pipeline/step_run.h"

#include <utility>

#include "ATen/ops/empty.h"
#include "ATen/ops/full_like.h"
#include "ATen/ops/zeros.h"
#include "absl/strings/str_cat.h"
#include "c10/util/Exception.h"
#include "torch/csrc/api/include/torch/autograd.h"

namespace fsdp {
namespace {

using Kind = PipelineAction::Kind;
using MessageKind = StageMessage::Kind;

at::Tensor EmptyLike(const ActivationSpec& spec, c10::Device device) {
  return at::empty(spec.sizes, at::TensorOptions(spec.dtype).device(device));
}

ActivationSpec MakeActivationSpec(const at::Tensor& tensor) {
  return {.dtype = tensor.scalar_type(),
          .sizes = tensor.sizes().vec(),
          .requires_grad = tensor.requires_grad()};
}

std::string Describe(const StepHeader& header) {
  return absl::StrCat(header.has_backward ? "" : "only the forward of ",
                      ScheduleName(header.schedule), " with ",
                      header.num_microbatches, " microbatches");
}

bool AnyRequiresGrad(const StageTensors& tensors) {
  for (const at::Tensor& tensor : tensors) {
    if (tensor.requires_grad()) return true;
  }
  return false;
}

}  // namespace

StepRun::StepRun(const PipelineStage& stage, StageComm& comm, StepPlan plan)
    : stage_(stage),
      comm_(comm),
      plan_(std::move(plan)),
      backwards_left_(plan_.header.num_microbatches),
      microbatches_(static_cast<size_t>(plan_.header.num_microbatches)) {
  if (plan_.header.has_backward) sync_.emplace(*stage_.module());
}

void StepRun::Run(const std::vector<PipelineAction>& order) {
  std::optional<StageMessage> computed;
  for (const PipelineAction& action : order) {
    const std::optional<StageMessage> needed = MessageBefore(action);
    Keep(comm_.Exchange(std::move(computed), needed));
    computed = Compute(action);
  }
  Keep(comm_.Exchange(std::move(computed), std::nullopt));
  comm_.set_activity("the end of a step");
  for (Microbatch& batch : microbatches_) comm_.Wait(batch.sent);
  comm_.Wait(last_sent_);
  comm_.Wait(header_sent_);
}

// Keeps a sent message until it must have arrived.
void StepRun::Keep(std::optional<StageTransfer> transfer) {
  if (!transfer.has_value()) return;
  const StageMessage& message = transfer->message;
  if (plan_.header.has_backward && message.kind == MessageKind::kActivations) {
    microbatches_[static_cast<size_t>(message.microbatch)].sent =
        std::move(transfer);
    return;
  }
  comm_.Wait(last_sent_);
  last_sent_ = std::move(transfer);
}

void StepRun::ReceiveHeader() {
  received_ = comm_.ReceiveHeader(stage_.stage_index() - 1);
  const StepHeader& mine = plan_.header;
  TORCH_CHECK_WITH(
      DistBackendError,
      received_.schedule == mine.schedule &&
          received_.num_microbatches == mine.num_microbatches &&
          received_.has_backward == mine.has_backward,
      "stage ", stage_.stage_index(), " of ", stage_.num_stages(), " runs ",
      Describe(mine), ", but stage ", stage_.stage_index() - 1, " runs ",
      Describe(received_),
      ": all stages must make the same calls in the same order, with a loss "
      "function on all or none");
}

// The message that must be received before `action` can compute.
std::optional<StageMessage> StepRun::MessageBefore(
    const PipelineAction& action) {
  Microbatch& batch = microbatches_[static_cast<size_t>(action.microbatch)];
  if (action.kind == Kind::kForward) {
    comm_.set_activity(
        absl::StrCat("the forward of microbatch ", action.microbatch));
    if (stage_.is_first()) return std::nullopt;
    if (action.microbatch == 0) ReceiveHeader();
    for (const ActivationSpec& spec : received_.activations) {
      batch.inputs.push_back(EmptyLike(spec, comm_.device()));
    }
    return StageMessage{.kind = MessageKind::kActivations,
                        .microbatch = action.microbatch,
                        .peer = stage_.stage_index() - 1,
                        .tensors = batch.inputs};
  }
  comm_.set_activity(
      absl::StrCat("the backward of microbatch ", action.microbatch));
  if (stage_.is_last() || !AnyRequiresGrad(batch.outputs)) return std::nullopt;
  for (const at::Tensor& output : batch.outputs) {
    if (!output.requires_grad()) continue;
    batch.grads.push_back(
        EmptyLike(MakeActivationSpec(output), comm_.device()));
  }
  return StageMessage{.kind = MessageKind::kGradients,
                      .microbatch = action.microbatch,
                      .peer = stage_.stage_index() + 1,
                      .tensors = batch.grads};
}

std::optional<StageMessage> StepRun::Compute(const PipelineAction& action) {
  return action.kind == Kind::kForward ? Forward(action.microbatch)
                                       : Backward(action.microbatch);
}

std::optional<StageMessage> StepRun::Forward(int64_t microbatch) {
  Microbatch& batch = microbatches_[static_cast<size_t>(microbatch)];
  if (stage_.is_first()) {
    batch.inputs = plan_.inputs[static_cast<size_t>(microbatch)];
  } else if (plan_.header.has_backward) {
    for (size_t i = 0; i < batch.inputs.size(); ++i) {
      batch.inputs[i].set_requires_grad(received_.activations[i].requires_grad);
    }
  }
  batch.outputs = stage_.Forward(batch.inputs);
  if (!plan_.header.has_backward) batch.inputs.clear();
  if (stage_.is_last()) {
    FinishLastStage(batch, microbatch);
    return std::nullopt;
  }
  if (microbatch == 0) AnnounceOutputs(batch.outputs);
  StageMessage message{.kind = MessageKind::kActivations,
                       .microbatch = microbatch,
                       .peer = stage_.stage_index() + 1,
                       .tensors = {}};
  TORCH_CHECK_VALUE(batch.outputs.size() == announced_.activations.size(),
                    "stage ", stage_.stage_index(), " returned ",
                    batch.outputs.size(), " tensors for microbatch ",
                    microbatch, ", but ", announced_.activations.size(),
                    " for the first one");
  for (size_t i = 0; i < batch.outputs.size(); ++i) {
    const at::Tensor& output = batch.outputs[i];
    const ActivationSpec& spec = announced_.activations[i];
    TORCH_CHECK_VALUE(
        output.sizes() == spec.sizes && output.scalar_type() == spec.dtype &&
            output.requires_grad() == spec.requires_grad,
        "stage ", stage_.stage_index(), " returned ", output.scalar_type(),
        output.sizes(), " for microbatch ", microbatch, ", but ", spec.dtype,
        at::IntArrayRef(spec.sizes),
        " for the first one; all microbatches must give the same");
    message.tensors.push_back(output.detach().contiguous());
  }
  if (!plan_.header.has_backward) batch.outputs.clear();
  return message;
}

// Tells the next stage which activations to expect.
void StepRun::AnnounceOutputs(const StageTensors& outputs) {
  announced_ = plan_.header;
  for (const at::Tensor& output : outputs) {
    TORCH_CHECK_VALUE(output.defined(), "stage ", stage_.stage_index(),
                      " returned an undefined tensor");
    announced_.activations.push_back(MakeActivationSpec(output));
  }
  header_sent_ = comm_.SendHeader(announced_, stage_.stage_index() + 1);
}

void StepRun::FinishLastStage(Microbatch& batch, int64_t microbatch) {
  TORCH_CHECK_VALUE(batch.outputs.size() == 1,
                    "the last stage must return one tensor, not ",
                    batch.outputs.size());
  const at::Tensor output = batch.outputs[0];
  batch.outputs.clear();  // the loss has the graph
  if (plan_.keep_outputs) outputs_.push_back(output.detach());
  if (plan_.targets.empty() || !plan_.loss_fn) return;
  batch.loss =
      plan_.loss_fn(output, plan_.targets[static_cast<size_t>(microbatch)]);
  TORCH_CHECK_VALUE(batch.loss.defined() && batch.loss.numel() == 1,
                    "the loss function must return a tensor of one element");
  losses_.push_back(batch.loss.detach());
}

std::optional<StageMessage> StepRun::Backward(int64_t microbatch) {
  Microbatch& batch = microbatches_[static_cast<size_t>(microbatch)];
  comm_.Wait(batch.sent);
  if (--backwards_left_ == 0) sync_->BeforeLastBackward();
  StageTensors roots;
  for (const at::Tensor& output : batch.outputs) {
    if (output.requires_grad()) roots.push_back(output);
  }
  if (batch.loss.defined()) {
    roots = {batch.loss};
    batch.grads = {at::full_like(batch.loss, plan_.loss_scale)};
  }
  if (!roots.empty()) torch::autograd::backward(roots, batch.grads);
  StageMessage message{.kind = MessageKind::kGradients,
                       .microbatch = microbatch,
                       .peer = stage_.stage_index() - 1,
                       .tensors = {}};
  if (!stage_.is_first()) {
    for (const at::Tensor& input : batch.inputs) {
      if (!input.requires_grad()) continue;
      // An input that the stage does not use has no gradient.
      message.tensors.push_back(
          input.grad().defined() ? input.grad().contiguous()
                                 : at::zeros(input.sizes(), input.options()));
    }
  }
  batch = {};
  if (message.tensors.empty()) return std::nullopt;
  return message;
}

}  // namespace fsdp
