// SPDX-License-Identifier: Apache-2.0
// A step, on each rank, for each action in the rank's plan:
//   1. Sends that must have arrived are awaited, and their tensors freed.
//   2. Receives are issued, in the order in which the other rank sends. The
//      header comes before a stage's first activations.
//   3. The message that the action needs is awaited.
//   4. The action computes, and the result is sent, or given to the next stage
//      if that is on the same rank.
// order/message_plan.h says why ranks cannot wait for each other in a circle.
//
// Tested by tests/fsdp/parallel/pipeline/schedules_test.cc.
#include "fsdp/parallel/pipeline/step_run.h"

#include <cstddef>
#include <string>
#include <utility>

#include "ATen/ops/empty.h"
#include "ATen/ops/full_like.h"
#include "ATen/ops/zeros.h"
#include "absl/strings/str_cat.h"
#include "c10/util/Exception.h"
#include "torch/csrc/api/include/torch/autograd.h"

namespace fsdp {
namespace {

using ActionKind = PipelineAction::Kind;
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

std::string Describe(const PipelineAction& action) {
  const char* name = action.kind == ActionKind::kForward ? "the forward"
                     : action.kind == ActionKind::kBackwardWeight
                         ? "the weights' backward"
                         : "the backward";
  return absl::StrCat(name, " of microbatch ", action.microbatch);
}

StageMessage MakeMessage(const PipelineMessage& message, bool sends,
                         StageTensors tensors) {
  return {.kind = message.kind == PipelineMessage::Kind::kActivations
                      ? MessageKind::kActivations
                      : MessageKind::kGradients,
          .microbatch = message.microbatch,
          .stage = sends ? message.from_stage() : message.to_stage,
          .peer = sends ? message.to_stage : message.from_stage(),
          .tensors = std::move(tensors)};
}

}  // namespace

StepRun::StepRun(const std::vector<PipelineStage>& stages, StageComm& comm,
                 const MessagePlan& messages, StepPlan plan)
    : comm_(comm), messages_(messages), plan_(std::move(plan)) {
  const auto num_microbatches =
      static_cast<size_t>(plan_.header.num_microbatches);
  for (const PipelineStage& stage : stages) {
    StageRun& run = stages_[stage.stage_index()];
    run.stage = &stage;
    run.module = &modules_[stage.module().get()];
    run.module->num_to_come += plan_.header.num_microbatches;
    run.microbatches.resize(num_microbatches);
    if (plan_.header.has_backward && !run.module->sync.has_value()) {
      run.module->sync.emplace(*stage.module());
    }
  }
  if (!IsHere(messages_.num_stages() - 1)) return;
  if (plan_.keep_outputs) outputs_.resize(num_microbatches);
  if (!plan_.targets.empty() && plan_.loss_fn) {
    losses_.resize(num_microbatches);
  }
}

StepRun::Microbatch& StepRun::At(int64_t stage, int64_t microbatch) {
  return stages_.at(stage).microbatches[static_cast<size_t>(microbatch)];
}

void StepRun::Run() {
  for (const PlannedAction& planned :
       messages_.ranks[static_cast<size_t>(comm_.rank())]) {
    const PipelineAction& action = planned.action;
    comm_.set_activity(action.stage, Describe(action));
    for (const PipelineMessage& message : planned.sent) {
      WaitFor(sent_, message);
    }
    for (const PipelineMessage& message : planned.receives) Issue(message);
    const auto kind = action.kind == ActionKind::kForward
                          ? PipelineMessage::Kind::kActivations
                          : PipelineMessage::Kind::kGradients;
    WaitFor(received_, {kind, action.stage, action.microbatch});
    Compute(action);
  }
  comm_.set_activity(stages_.begin()->first, "the end of a step");
  for (const auto& [message, transfer] : sent_) comm_.Wait(transfer);
  for (const StageTransfer& transfer : headers_sent_) comm_.Wait(transfer);
  sent_.clear();
}

// Messages without tensors were not sent.
void StepRun::WaitFor(std::map<PipelineMessage, StageTransfer>& transfers,
                      const PipelineMessage& message) {
  const auto found = transfers.find(message);
  if (found == transfers.end()) return;
  comm_.Wait(found->second);
  transfers.erase(found);
}

void StepRun::ReceiveHeader(StageRun& run) {
  const PipelineStage& stage = *run.stage;
  run.received =
      comm_.ReceiveHeader(stage.stage_index(), stage.stage_index() - 1);
  const StepHeader& mine = plan_.header;
  TORCH_CHECK_WITH(
      DistBackendError,
      run.received->schedule == mine.schedule &&
          run.received->num_microbatches == mine.num_microbatches &&
          run.received->has_backward == mine.has_backward,
      "stage ", stage.stage_index(), " of ", stage.num_stages(), " runs ",
      Describe(mine), ", but stage ", stage.stage_index() - 1, " runs ",
      Describe(*run.received),
      ": all stages must make the same calls in the same order, with a loss "
      "function on all or none");
}

// Issues a receive. The forward that determines the gradients' sizes is over:
// the sender's backward depends on it.
void StepRun::Issue(const PipelineMessage& message) {
  StageRun& run = stages_.at(message.to_stage);
  Microbatch& batch = At(message.to_stage, message.microbatch);
  StageTensors tensors;
  if (message.kind == PipelineMessage::Kind::kActivations) {
    if (!run.received.has_value()) ReceiveHeader(run);
    for (const ActivationSpec& spec : run.received->activations) {
      tensors.push_back(EmptyLike(spec, comm_.device()));
    }
    batch.inputs = tensors;
  } else {
    for (const at::Tensor& output : batch.outputs) {
      if (!output.requires_grad()) continue;
      tensors.push_back(EmptyLike(MakeActivationSpec(output), comm_.device()));
    }
    batch.grads = tensors;
  }
  if (tensors.empty()) return;
  received_.emplace(message, comm_.Receive(MakeMessage(message, /*sends=*/false,
                                                       std::move(tensors))));
}

void StepRun::Compute(const PipelineAction& action) {
  StageRun& run = stages_.at(action.stage);
  switch (action.kind) {
    case ActionKind::kForward:
      return Forward(run, action.microbatch);
    case ActionKind::kBackward:
      return Backward(run, action.microbatch);
    case ActionKind::kBackwardInput:
      return BackwardInput(run, action.microbatch);
    case ActionKind::kBackwardWeight:
      return BackwardWeight(run, action.microbatch);
  }
}

// ---- Forward ---------------------------------------------------------------

void StepRun::Forward(StageRun& run, int64_t microbatch) {
  const PipelineStage& stage = *run.stage;
  Microbatch& batch = At(stage.stage_index(), microbatch);
  if (stage.is_first()) {
    batch.inputs = plan_.inputs[static_cast<size_t>(microbatch)];
  } else if (plan_.header.has_backward && run.received.has_value()) {
    for (size_t i = 0; i < batch.inputs.size(); ++i) {
      batch.inputs[i].set_requires_grad(
          run.received->activations[i].requires_grad);
    }
  }
  batch.outputs = stage.Forward(batch.inputs);
  if (!plan_.header.has_backward) batch.inputs.clear();
  if (stage.is_last()) {
    FinishLastStage(batch, microbatch);
  } else {
    PassOn(run, microbatch);
  }
}

void StepRun::PassOn(StageRun& run, int64_t microbatch) {
  const int64_t stage = run.stage->stage_index();
  Microbatch& batch = At(stage, microbatch);
  CheckOutputs(run, batch.outputs, microbatch);
  StageTensors passed;
  for (const at::Tensor& output : batch.outputs) {
    passed.push_back(output.detach().contiguous());
  }
  if (IsHere(stage + 1)) {
    for (size_t i = 0; i < passed.size(); ++i) {
      passed[i].set_requires_grad(batch.outputs[i].requires_grad());
    }
    At(stage + 1, microbatch).inputs = std::move(passed);
  } else if (!passed.empty()) {
    const PipelineMessage message{PipelineMessage::Kind::kActivations,
                                  stage + 1, microbatch};
    sent_.emplace(message, comm_.Send(MakeMessage(message, /*sends=*/true,
                                                  std::move(passed))));
  }
  if (!plan_.header.has_backward) batch.outputs.clear();
}

// The first microbatch's outputs tell the next stage which activations to
// expect.
void StepRun::CheckOutputs(StageRun& run, const StageTensors& outputs,
                           int64_t microbatch) {
  const int64_t stage = run.stage->stage_index();
  if (!run.announced.has_value()) {
    run.announced = plan_.header;
    for (const at::Tensor& output : outputs) {
      TORCH_CHECK_VALUE(output.defined(), "stage ", stage,
                        " returned an undefined tensor");
      run.announced->activations.push_back(MakeActivationSpec(output));
    }
    if (!IsHere(stage + 1)) {
      headers_sent_.push_back(
          comm_.SendHeader(*run.announced, stage, stage + 1));
    }
  }
  const std::vector<ActivationSpec>& specs = run.announced->activations;
  TORCH_CHECK_VALUE(outputs.size() == specs.size(), "stage ", stage,
                    " returned ", outputs.size(), " tensors for microbatch ",
                    microbatch, ", but ", specs.size(), " for the first one");
  for (size_t i = 0; i < outputs.size(); ++i) {
    const at::Tensor& output = outputs[i];
    TORCH_CHECK_VALUE(
        output.sizes() == specs[i].sizes &&
            output.scalar_type() == specs[i].dtype &&
            output.requires_grad() == specs[i].requires_grad,
        "stage ", stage, " returned ", output.scalar_type(), output.sizes(),
        " for microbatch ", microbatch, ", but ", specs[i].dtype,
        at::IntArrayRef(specs[i].sizes),
        " for the first one; all microbatches must give the same");
  }
}

void StepRun::FinishLastStage(Microbatch& batch, int64_t microbatch) {
  TORCH_CHECK_VALUE(batch.outputs.size() == 1,
                    "the last stage must return one tensor, not ",
                    batch.outputs.size());
  const auto index = static_cast<size_t>(microbatch);
  const at::Tensor output = batch.outputs[0];
  batch.outputs.clear();  // the loss has the graph
  if (plan_.keep_outputs) outputs_[index] = output.detach();
  if (losses_.empty()) return;
  batch.loss = plan_.loss_fn(output, plan_.targets[index]);
  TORCH_CHECK_VALUE(batch.loss.defined() && batch.loss.numel() == 1,
                    "the loss function must return a tensor of one element");
  losses_[index] = batch.loss.detach();
}

// ---- Backward --------------------------------------------------------------

StageTensors StepRun::Roots(Microbatch& batch) const {
  if (batch.loss.defined()) {
    batch.grads = {at::full_like(batch.loss, plan_.loss_scale)};
    return {batch.loss};
  }
  StageTensors roots;
  for (const at::Tensor& output : batch.outputs) {
    if (output.requires_grad()) roots.push_back(output);
  }
  return roots;
}

// The module's last backward reduces the gradients.
void StepRun::BeforeWeights(StageRun& run) {
  ModuleRun& module = *run.module;
  if (--module.num_to_come == 0) module.sync->BeforeLastBackward();
}

void StepRun::Backward(StageRun& run, int64_t microbatch) {
  Microbatch& batch = At(run.stage->stage_index(), microbatch);
  BeforeWeights(run);
  const StageTensors roots = Roots(batch);
  if (!roots.empty()) torch::autograd::backward(roots, batch.grads);
  StageTensors grads;
  for (const at::Tensor& input : batch.inputs) {
    if (input.requires_grad()) grads.push_back(input.grad());
  }
  PassBack(run, microbatch, std::move(grads));
  batch = {};
}

void StepRun::BackwardInput(StageRun& run, int64_t microbatch) {
  Microbatch& batch = At(run.stage->stage_index(), microbatch);
  StageTensors roots = Roots(batch);
  // The first stage gives nobody a gradient.
  const StageTensors inputs =
      run.stage->is_first() ? StageTensors() : batch.inputs;
  batch.split.emplace(std::move(roots), std::move(batch.grads), inputs);
  if (batch.split->is_whole()) BeforeWeights(run);
  StageTensors grads = batch.split->ComputeInputGradients();
  PassBack(run, microbatch, std::move(grads));
  std::optional<SplitBackward> split = std::move(batch.split);
  batch = {};
  batch.split = std::move(split);
}

void StepRun::BackwardWeight(StageRun& run, int64_t microbatch) {
  Microbatch& batch = At(run.stage->stage_index(), microbatch);
  if (!batch.split->is_whole()) BeforeWeights(run);
  batch.split->AccumulateWeightGradients();
  batch = {};
}

// Gives the previous stage the gradients for the inputs that require grad.
void StepRun::PassBack(StageRun& run, int64_t microbatch, StageTensors grads) {
  const int64_t stage = run.stage->stage_index();
  if (run.stage->is_first()) return;
  size_t i = 0;
  for (const at::Tensor& input : At(stage, microbatch).inputs) {
    if (!input.requires_grad()) continue;
    // An input that the stage does not use has no gradient.
    grads[i] = grads[i].defined() ? grads[i].contiguous()
                                  : at::zeros(input.sizes(), input.options());
    ++i;
  }
  if (IsHere(stage - 1)) {
    At(stage - 1, microbatch).grads = std::move(grads);
  } else if (!grads.empty()) {
    const PipelineMessage message{PipelineMessage::Kind::kGradients, stage - 1,
                                  microbatch};
    sent_.emplace(message, comm_.Send(MakeMessage(message, /*sends=*/true,
                                                  std::move(grads))));
  }
}

}  // namespace fsdp
