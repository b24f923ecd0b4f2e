// The backward half of FsdpParamGroup: from the gradients of whole parameters
// to those of shards.

#include <algorithm>
#include <utility>

#include "ATen/ops/cat.h"
#include "ATen/ops/empty.h"
#include "ATen/ops/zeros.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "fsdp/engine/fsdp_param_group.h"
#include "fsdp/engine/fsdp_state.h"
#include "fsdp/engine/state_context.h"
#include "fsdp/mesh/desync_check.h"
#include "fsdp/mesh/work.h"
#include "torch/csrc/autograd/function_hook.h"
#include "torch/csrc/autograd/variable.h"

namespace fsdp {
namespace {

// The dtype in which gradients are reduced; the same for all of a group. Those
// that accumulated without reduction have it already.
c10::ScalarType ReductionDtype(const std::vector<FsdpParam*>& params,
                               const std::vector<at::Tensor>& gradients,
                               std::optional<c10::ScalarType> reduce_dtype) {
  // A missing gradient counts with the dtype that it would have.
  c10::ScalarType first = params.front()->gathered_dtype();
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].defined()) continue;
    first = gradients[i].scalar_type();
    break;
  }
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].defined()) continue;
    TORCH_CHECK_NOT_IMPLEMENTED(gradients[i].layout() == at::kStrided,
                                "fsdp: the gradient of '", params[i]->name(),
                                "' is ", gradients[i].layout(),
                                "; only dense gradients can be reduced");
    TORCH_CHECK(reduce_dtype.has_value() || gradients[i].scalar_type() == first,
                "fsdp: gradients of one group must have one dtype: '",
                params.front()->name(), "' has ", first, ", '",
                params[i]->name(), "' has ", gradients[i].scalar_type());
  }
  return reduce_dtype.value_or(first);
}

bool HasPremulSum(c10d::ProcessGroup& group, c10::Device device) {
  return group.getBackend(device.type())->getBackendName() == "nccl";
}

void Divide(at::Tensor& tensor, double by) {
  if (by != 1) tensor.div_(by);
}

}  // namespace

bool FsdpParamGroup::OwesReduction() const {
  const bool has_gradients =
      std::any_of(params_.begin(), params_.end(),
                  [](const auto& param) { return param->HasGradient(); });
  if (has_gradients) return true;
  return settings_.requires_gradient_sync &&
         (settings_.zero_missing_gradients ||
          (settings_.requires_all_reduce && partial_reduction_.has_value()));
}

bool FsdpParamGroup::AwaitsGradients() const {
  return std::any_of(params_.begin(), params_.end(), [](const auto& param) {
    return param->used && !param->fired;
  });
}

// Considers the parameters that forward used, or, if no forward is known (a
// second backward through one graph), all that are trained.
bool FsdpParamGroup::AllGradientsArrived() const {
  const bool any_used =
      std::any_of(params_.begin(), params_.end(),
                  [](const auto& param) { return param->used; });
  return std::all_of(params_.begin(), params_.end(), [&](const auto& param) {
    return param->fired ||
           !(any_used ? param->used : param->leaf().requires_grad());
  });
}

void FsdpParamGroup::ClearMarks(bool used_too) {
  for (const auto& param : params_) {
    param->fired = false;
    if (used_too) param->used = false;
  }
}

void FsdpParamGroup::PostBackward(bool at_end) {
  const EngineScope scope;
  ClearMarks(/*used_too=*/false);
  const std::optional<c10::ScalarType> reduce_dtype =
      config_.mp_policy.reduce_dtype;
  const bool zeros = settings_.zero_missing_gradients;
  const bool reduces = settings_.requires_gradient_sync && (at_end || !zeros);
  std::vector<FsdpParam*> params;
  std::vector<at::Tensor> gradients;
  for (const auto& param : params_) {
    if (!reduces) {
      param->KeepGradient(reduce_dtype);
      continue;
    }
    if (!param->HasGradient() && !(zeros && param->leaf().requires_grad())) {
      continue;
    }
    params.push_back(param.get());
    gradients.push_back(param->TakeGradient(reduce_dtype));
  }
  if (settings_.reshard_after_backward) Reshard(/*after_forward=*/false);
  if (!reduces) return;
  CommContext& comm = context().comm();
  if (comm.pending_reduction != nullptr) {
    comm.pending_reduction->FinishReduction();
  }
  if (params.empty()) {
    FinishPartialReduction();
  } else {
    StartReduction(std::move(params), std::move(gradients));
  }
}

std::string FsdpParamGroup::DescribeReduction(
    const char* collective, const std::vector<FsdpParam*>& params) const {
  std::vector<std::string> missing;
  for (const auto& param : params_) {
    if (!param->leaf().requires_grad()) continue;
    if (std::find(params.begin(), params.end(), param.get()) == params.end()) {
      missing.push_back(absl::StrCat("'", param->name(), "'"));
    }
  }
  std::string text = Describe(collective);
  if (!missing.empty()) {
    absl::StrAppend(&text, kWithoutGradients, absl::StrJoin(missing, ", "));
  }
  return text;
}

ReductionPlan FsdpParamGroup::PlanFor(c10::ScalarType dtype) const {
  return PlanReduction(
      {.dtype = dtype,
       .shard_world = config_.shard_group->getSize(),
       .replicate_world =
           config_.replicate_group ? config_.replicate_group->getSize() : 1,
       .factor = settings_.divide_factor,
       .force_sum = settings_.force_sum_reduction,
       .has_premul_sum = HasPremulSum(*config_.shard_group, config_.device)});
}

// Fills the input: a row for each rank, with its part of every parameter.
void FsdpParamGroup::FillReduction(
    PendingReduction& reduction,
    const std::vector<at::Tensor>& gradients) const {
  const int64_t world = config_.shard_group->getSize();
  const at::Tensor rows = reduction.input.view({world, -1});
  int64_t offset = 0;
  for (size_t i = 0; i < gradients.size(); ++i) {
    const ShardGeometry& geometry = reduction.params[i]->geometry();
    at::Tensor part = rows.narrow(1, offset, geometry.padded_numel());
    if (gradients[i].defined()) {
      CopyInGradient(gradients[i], geometry, part);
    } else {
      part.zero_();
    }
    offset += geometry.padded_numel();
  }
}

void FsdpParamGroup::StartReduction(std::vector<FsdpParam*> params,
                                    std::vector<at::Tensor> gradients) {
  CommContext& comm = context().comm();
  c10d::ProcessGroup& group = *config_.shard_group;
  PendingReduction reduction;
  reduction.begin_us = StepRecorder::NowMicros();
  const c10::ScalarType dtype =
      ReductionDtype(params, gradients, config_.mp_policy.reduce_dtype);
  reduction.plan = PlanFor(dtype);
  if (group.getSize() == 1 && !config_.replicate_group &&
      !settings_.all_reduce_hook) {
    for (size_t i = 0; i < gradients.size(); ++i) {
      at::Tensor& gradient = gradients[i];
      gradient = gradient.defined()
                     ? gradient.to(dtype)
                     : at::zeros(params[i]->geometry().sizes,
                                 params[i]->leaf().options().dtype(dtype));
      if (settings_.divide_factor.has_value()) {
        Divide(gradient, *settings_.divide_factor);
      }
    }
    HandOutAlone(params, gradients);
    return;
  }
  int64_t width = 0;
  for (const FsdpParam* param : params)
    width += param->geometry().padded_numel();
  reduction.params = std::move(params);
  CheckInStep(config_.shard_group,
              DescribeReduction("reduce-scatter", reduction.params),
              "backward");
  const bool is_custom = static_cast<bool>(settings_.custom_reduce_scatter);
  reduction.input =
      EmptyBuffer(group.getSize() * width, dtype, group, is_custom);
  FillReduction(reduction, gradients);
  gradients.clear();
  Divide(reduction.input, reduction.plan.pre_divide);
  std::optional<c10::StreamGuard> stream;
  if (comm.has_streams()) {
    CommContext::Wait(comm.reduce_scatter(), comm.RecordCurrent());
    stream.emplace(comm.reduce_scatter());
  }
  if (group.getSize() == 1) {
    reduction.output = reduction.input;
  } else {
    reduction.output = EmptyBuffer(width, dtype, group, is_custom);
    StepReport& report = comm.recorder().report();
    ++report.num_reduce_scatters;
    report.reduced_bytes += reduction.input.nbytes();
    reduction.work = IssueWork(
        group, [this] { return Describe("reduce-scatter"); },
        [&]() -> Work {
          if (!settings_.custom_reduce_scatter) {
            return ReduceScatterInto(reduction.output, reduction.input,
                                     reduction.plan.reduce_scatter_op, group);
          }
          settings_.custom_reduce_scatter(reduction.output, reduction.input,
                                          group);
          return Work();
        });
  }
  if (comm.has_streams()) {
    reduction.done = comm.Record(comm.reduce_scatter());
    CompleteReduction(reduction);
  }
  pending_reduction_ = std::move(reduction);
  comm.pending_reduction = this;
}

void FsdpParamGroup::FinishReduction() {
  if (!pending_reduction_.has_value()) return;
  const EngineScope scope;
  CommContext& comm = context().comm();
  PendingReduction reduction = std::move(*pending_reduction_);
  pending_reduction_.reset();
  comm.pending_reduction = nullptr;
  if (comm.has_streams()) {
    // The input may be reused once the current stream has waited for its
    // reading.
    comm.WaitOnCurrent(reduction.done);
    return;
  }
  const int64_t begin_us = StepRecorder::NowMicros();
  if (reduction.work) {
    WaitForWork(reduction.work, *config_.shard_group,
                [this] { return Describe("reduce-scatter"); });
  }
  StepRecorder& recorder = comm.recorder();
  recorder.report().reduce_wait_seconds +=
      static_cast<double>(StepRecorder::NowMicros() - begin_us) * 1e-6;
  recorder.AddSpan("reduce-scatter", state_->name(), reduction.begin_us);
  recorder.AddSpan("wait", state_->name(), begin_us);
  CompleteReduction(reduction);
}

// From the reduce-scattered rows to the gradients of shards; on the stream of
// reduction.
void FsdpParamGroup::CompleteReduction(PendingReduction& reduction) {
  CommContext& comm = context().comm();
  std::optional<c10::StreamGuard> stream;
  if (config_.replicate_group) {
    if (comm.has_streams()) {
      CommContext::Wait(comm.all_reduce(), reduction.done);
      stream.emplace(comm.all_reduce());
    }
    if (!AllReduceAcrossReplicas(reduction)) return;
    if (comm.has_streams()) held_all_reduce_ = reduction.output;
  }
  Divide(reduction.output, reduction.plan.post_divide);
  if (settings_.all_reduce_hook) {
    std::optional<c10::StreamGuard> hook_stream;
    if (settings_.all_reduce_hook_stream.has_value()) {
      CommContext::Wait(*settings_.all_reduce_hook_stream, reduction.done);
      hook_stream.emplace(*settings_.all_reduce_hook_stream);
    }
    settings_.all_reduce_hook(reduction.output);
  }
  const at::Tensor output =
      reduction.output.to(reduction.params.front()->orig_dtype());
  std::vector<at::Tensor> gradients;
  int64_t offset = 0;
  for (const FsdpParam* param : reduction.params) {
    const ShardGeometry& geometry = param->geometry();
    gradients.push_back(output.narrow(0, offset, geometry.padded_numel())
                            .view(geometry.padded_sizes())
                            .narrow(geometry.dim, 0, geometry.local_size()));
    offset += geometry.padded_numel();
  }
  HandOut(reduction.params, gradients);
  reduced_ = comm.RecordCurrent();
}

// Microbatches may use different parameters, so the sum has all that any of
// them used.
void FsdpParamGroup::AddPartialReduction(PendingReduction& reduction) {
  if (!partial_reduction_.has_value()) return;
  const PendingReduction partial = *std::move(partial_reduction_);
  partial_reduction_.reset();
  if (partial.params == reduction.params) {
    reduction.output.add_(partial.output);
    return;
  }
  const std::unordered_set<const FsdpParam*> in_partial(partial.params.begin(),
                                                        partial.params.end());
  const std::unordered_set<const FsdpParam*> in_new(reduction.params.begin(),
                                                    reduction.params.end());
  std::vector<FsdpParam*> all;
  std::vector<at::Tensor> parts;
  int64_t partial_offset = 0;
  int64_t new_offset = 0;
  for (const auto& param : params_) {
    const int64_t width = param->geometry().padded_numel();
    at::Tensor part;
    if (in_new.count(param.get()) != 0) {
      part = reduction.output.narrow(0, new_offset, width);
      new_offset += width;
    }
    if (in_partial.count(param.get()) != 0) {
      const at::Tensor held = partial.output.narrow(0, partial_offset, width);
      part = part.defined() ? part.add_(held) : held;
      partial_offset += width;
    }
    if (!part.defined()) continue;
    all.push_back(param.get());
    parts.push_back(part);
  }
  reduction.params = std::move(all);
  reduction.output = at::cat(parts);
}

// For a backward without gradients, after earlier microbatches had some.
void FsdpParamGroup::FinishPartialReduction() {
  if (!partial_reduction_.has_value() || !settings_.requires_all_reduce) return;
  PendingReduction reduction = *std::move(partial_reduction_);
  partial_reduction_.reset();
  CompleteReduction(reduction);
}

// Returns false when the sum is kept for a later backward.
bool FsdpParamGroup::AllReduceAcrossReplicas(PendingReduction& reduction) {
  AddPartialReduction(reduction);
  if (!settings_.requires_all_reduce) {
    reduction.input = at::Tensor();
    reduction.work = nullptr;
    partial_reduction_ = std::move(reduction);
    return false;
  }
  c10d::ProcessGroup& group = *config_.replicate_group;
  CheckInStep(config_.replicate_group,
              DescribeReduction("all-reduce", reduction.params), "backward");
  StepReport& report = context().comm().recorder().report();
  ++report.num_all_reduces;
  report.all_reduced_bytes += reduction.output.nbytes();
  const auto operation = [this] { return Describe("all-reduce"); };
  WaitForWork(IssueWork(group, operation,
                        [&] {
                          return AllReduce(reduction.output,
                                           reduction.plan.all_reduce_op, group);
                        }),
              group, operation);
  return true;
}

// With one rank, a whole gradient is its own shard.
void FsdpParamGroup::HandOutAlone(const std::vector<FsdpParam*>& params,
                                  const std::vector<at::Tensor>& gradients) {
  std::vector<at::Tensor> own;
  for (size_t i = 0; i < params.size(); ++i) {
    own.push_back(gradients[i].to(params[i]->orig_dtype()));
  }
  HandOut(params, own);
  reduced_ = context().comm().RecordCurrent();
}

void FsdpParamGroup::HandOut(const std::vector<FsdpParam*>& params,
                             const std::vector<at::Tensor>& gradients) {
  for (size_t i = 0; i < params.size(); ++i) {
    const at::Tensor shard = params[i]->shard();
    at::Tensor& held = shard.mutable_grad();
    const bool offloads =
        config_.offload_policy.has_value() && !gradients[i].device().is_cpu();
    const at::Tensor gradient =
        offloads ? gradients[i].to(
                       c10::kCPU, gradients[i].scalar_type(),
                       /*non_blocking=*/config_.offload_policy->pin_memory &&
                           !held.defined())
                 : gradients[i];
    if (held.defined()) {
      held.add_(gradient);
    } else {
      held = gradient;
    }
    params[i]->PlaceGradientNotice();
    const auto& hook = torch::autograd::impl::post_acc_grad_hooks(shard);
    if (hook) (*hook)(shard);
  }
}

void FsdpParamGroup::FinishBackward() {
  CommContext& comm = context().comm();
  comm.WaitOnCurrent(reduced_);
  // The optimizer reads offloaded gradients on the CPU.
  if (reduced_ && config_.offload_policy.has_value()) reduced_->synchronize();
  reduced_ = nullptr;
  held_all_reduce_ = at::Tensor();
}

void FsdpParamGroup::ResetAfterError() {
  const EngineScope scope;
  CommContext& comm = context().comm();
  DropGather();
  if (pending_reduction_.has_value()) {
    // These gradients are not handed out, because the program may have zeroed
    // the gradients since.
    PendingReduction reduction = std::move(*pending_reduction_);
    pending_reduction_.reset();
    comm.pending_reduction = nullptr;
    WaitForWork(reduction.work, *config_.shard_group,
                [this] { return Describe("reduce-scatter"); });
    comm.WaitOnCurrent(reduction.done);
  }
  for (const auto& param : params_) param->TakeGradient(std::nullopt);
  ClearMarks(/*used_too=*/true);
  Reshard(/*after_forward=*/false);
}

}  // namespace fsdp
