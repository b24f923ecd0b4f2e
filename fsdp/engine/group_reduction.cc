// SPDX-License-Identifier: Apache-2.0
// Takes, reduces, divides and hands out gradients.
// Tested by tests/fsdp/fsdp_module_test.cc.
#include "fsdp/engine/group_reduction.h"

#include <algorithm>
#include <utility>

#include "ATen/ops/cat.h"
#include "ATen/ops/zeros.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "c10/core/StreamGuard.h"
#include "fsdp/engine/flat_gradients.h"
#include "fsdp/engine/lazy_key.h"
#include "fsdp/engine/parallel_param.h"
#include "fsdp/mesh/collective_errors.h"
#include "fsdp/mesh/collective_order.h"
#include "torch/csrc/autograd/function_hook.h"
#include "torch/csrc/autograd/variable.h"
#include "torch/csrc/distributed/c10d/Backend.hpp"

namespace fsdp {
namespace {

// The dtype in which gradients are reduced, one for a whole group: the one that
// the dtypes in which they accumulate promote to, because ranks agree on those.
c10::ScalarType ReductionDtype(const std::vector<FsdpParam*>& params,
                               const std::vector<at::Tensor>& gradients) {
  std::optional<c10::ScalarType> all;
  for (size_t i = 0; i < gradients.size(); ++i) {
    const at::Tensor& gradient = gradients[i];
    TORCH_CHECK_NOT_IMPLEMENTED(
        !gradient.defined() || gradient.layout() == at::kStrided,
        "fsdp: the gradient of '", params[i]->name(), "' is ",
        gradient.layout(), "; only dense gradients can be reduced");
    std::optional<c10::ScalarType> dtype = params[i]->unreduced_dtype();
    if (!dtype.has_value()) dtype = gradient.scalar_type();
    all = c10::promoteTypes(all.value_or(*dtype), *dtype);
  }
  return *all;
}

void CheckZerosHaveADtype(const FsdpParam& param) {
  TORCH_CHECK_VALUE(
      !param.leaf().requires_grad() || param.unreduced_dtype().has_value(),
      "fsdp: gradients of '", param.name(),
      "' may have any dtype, so zeros in place of missing ones "
      "(set_reduce_scatter_unused_params) have none; set reduce_dtype in the "
      "MixedPrecisionPolicy");
}

at::Tensor Cast(const at::Tensor& tensor,
                std::optional<c10::ScalarType> dtype) {
  return dtype.has_value() ? tensor.to(*dtype) : tensor;
}

bool HasPremulSum(c10d::ProcessGroup& group, c10::Device device) {
  return group.getBackend(device.type())->getBackendName() == "nccl";
}

void Divide(at::Tensor& tensor, double by) {
  if (by != 1) tensor.div_(by);
}

}  // namespace

GroupReduction::~GroupReduction() {
  std::erase(data_.comm->reductions(), this);
}

bool GroupReduction::IsOwed(bool unused_too) const {
  const bool has_gradients =
      std::any_of(data_.params.begin(), data_.params.end(),
                  [](const auto& param) { return param->HasGradient(); });
  if (has_gradients) return true;
  return data_.settings.requires_gradient_sync &&
         ((unused_too && data_.settings.reduce_scatter_unused_params) ||
          (data_.settings.requires_all_reduce && partial_.has_value()));
}

std::optional<GroupReduction::Gradients> GroupReduction::Take(bool at_end) {
  const bool zeros = data_.settings.reduce_scatter_unused_params;
  const bool reduces =
      data_.settings.requires_gradient_sync && (at_end || !zeros);
  Gradients taken;
  for (const auto& param : data_.params) {
    if (!reduces) {
      param->KeepGradient();
      continue;
    }
    if (zeros) CheckZerosHaveADtype(*param);
    if (!param->HasGradient() && !(zeros && param->leaf().requires_grad())) {
      continue;
    }
    taken.params.push_back(param.get());
    taken.tensors.push_back(param->TakeGradient());
  }
  if (!reduces) return std::nullopt;
  return taken;
}

void GroupReduction::Reduce(Gradients gradients) {
  FinishAllBut(data_.comm->max_input_buffers() - 1, *data_.comm);
  if (gradients.params.empty()) {
    FinishPartial();
  } else {
    Start(std::move(gradients));
  }
}

std::string GroupReduction::DescribeWith(
    const char* collective, const std::vector<FsdpParam*>& params) const {
  std::vector<std::string> missing;
  for (const auto& param : data_.params) {
    if (!param->leaf().requires_grad()) continue;
    if (std::find(params.begin(), params.end(), param.get()) == params.end()) {
      missing.push_back(absl::StrCat("'", param->name(), "'"));
    }
  }
  std::string text = data_.Describe(collective);
  if (!missing.empty()) {
    absl::StrAppend(&text, kWithoutGradients, absl::StrJoin(missing, ", "));
  }
  return text;
}

ReductionPlan GroupReduction::PlanFor(c10::ScalarType dtype) const {
  return PlanReduction(
      {.dtype = dtype,
       .shard_world = data_.config.shard_group->getSize(),
       .replicate_world = data_.config.replicate_group
                              ? data_.config.replicate_group->getSize()
                              : 1,
       .factor = data_.settings.divide_factor,
       .force_sum = data_.settings.force_sum_reduction,
       .has_premul_sum =
           HasPremulSum(*data_.config.reduction_group(), data_.config.device)});
}

// Fills the input: a row for each rank, with that rank's part of every
// parameter.
void GroupReduction::Fill(Pending& reduction,
                          const std::vector<at::Tensor>& gradients) const {
  const int64_t world = data_.config.shard_group->getSize();
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

void GroupReduction::Start(Gradients gradients) {
  CommContext& comm = *data_.comm;
  c10d::ProcessGroup& group = *data_.config.reduction_group();
  Pending reduction;
  reduction.begin_us = StepRecorder::NowMicros();
  c10::ScalarType dtype = ReductionDtype(gradients.params, gradients.tensors);
  if (partial_.has_value()) {
    dtype = c10::promoteTypes(dtype, partial_->output.scalar_type());
  }
  reduction.plan = PlanFor(dtype);
  reduction.is_postponed =
      data_.config.replicate_group && !data_.settings.requires_all_reduce;
  const bool is_custom =
      static_cast<bool>(data_.settings.custom_reduce_scatter);
  const bool alone = group.getSize() == 1 && !is_custom;
  if (alone && !data_.config.replicate_group &&
      !data_.settings.all_reduce_hook) {
    ReduceOnOneRank(std::move(gradients), dtype);
    return;
  }
  int64_t width = 0;
  for (const FsdpParam* param : gradients.params) {
    width += param->geometry().padded_numel();
  }
  reduction.params = std::move(gradients.params);
  CheckInStep(data_.config.reduction_group(), data_.config.device.type(),
              DescribeWith("reduce-scatter", reduction.params), "backward");
  reduction.input =
      data_.EmptyBuffer(group.getSize() * width, dtype, group, is_custom);
  Fill(reduction, gradients.tensors);
  gradients.tensors.clear();
  Divide(reduction.input, reduction.plan.pre_divide);
  std::optional<c10::StreamGuard> stream;
  if (comm.has_streams()) {
    CommContext::Wait(comm.reduce_scatter(), comm.RecordCurrent());
    stream.emplace(comm.reduce_scatter());
  }
  if (alone) {
    reduction.output = reduction.input;
  } else {
    reduction.output = data_.EmptyBuffer(width, dtype, group, is_custom);
    Issue(reduction);
  }
  if (comm.has_streams()) Complete(reduction);
  pending_.push_back(std::move(reduction));
  comm.reductions().push_back(this);
}

// With one rank, the whole gradient is the shard.
void GroupReduction::ReduceOnOneRank(Gradients gradients,
                                     c10::ScalarType dtype) {
  for (size_t i = 0; i < gradients.tensors.size(); ++i) {
    const FsdpParam& param = *gradients.params[i];
    at::Tensor& gradient = gradients.tensors[i];
    gradient = gradient.defined()
                   ? gradient.to(dtype)
                   : at::zeros(param.geometry().sizes,
                               param.leaf().options().dtype(dtype));
    if (data_.settings.divide_factor.has_value()) {
      Divide(gradient, *data_.settings.divide_factor);
    }
    gradient = Cast(gradient, param.grad_dtype());
  }
  HandOut(gradients.params, gradients.tensors);
  reduced_ = data_.comm->RecordCurrent();
}

void GroupReduction::Issue(Pending& reduction) {
  c10d::ProcessGroup& group = *data_.config.reduction_group();
  StepReport& report = data_.comm->recorder().report();
  ++report.num_reduce_scatters;
  report.reduced_bytes += reduction.input.nbytes();
  reduction.work = IssueWork(
      group, [this] { return data_.Describe("reduce-scatter"); },
      [&]() -> Work {
        if (!data_.settings.custom_reduce_scatter) {
          return ReduceScatterInto(reduction.output, reduction.input,
                                   reduction.plan.reduce_scatter_op, group);
        }
        data_.settings.custom_reduce_scatter(reduction.output, reduction.input,
                                             group);
        return Work();
      });
}

void GroupReduction::FinishAllBut(size_t num_kept, CommContext& comm) {
  while (comm.reductions().size() > num_kept) {
    GroupReduction* const oldest = comm.reductions().front();
    comm.reductions().pop_front();
    oldest->FinishOldest();
  }
}

void GroupReduction::FinishOldest() {
  const EngineScope scope;
  CommContext& comm = *data_.comm;
  Pending reduction = std::move(pending_.front());
  pending_.pop_front();
  if (comm.has_streams()) {
    // The input may be reused once the current stream has waited for the read.
    comm.WaitOnCurrent(reduction.done);
    return;
  }
  const int64_t begin_us = StepRecorder::NowMicros();
  if (reduction.work) {
    WaitForWork(reduction.work, *data_.config.reduction_group(),
                [this] { return data_.Describe("reduce-scatter"); });
  }
  StepRecorder& recorder = comm.recorder();
  recorder.report().reduce_wait_seconds +=
      static_cast<double>(StepRecorder::NowMicros() - begin_us) * 1e-6;
  recorder.AddSpan("reduce-scatter", data_.name, reduction.begin_us);
  recorder.AddSpan("wait", data_.name, begin_us);
  Complete(reduction);
}

// Turns reduce-scattered rows into the shards' gradients. Called on the
// reduce-scatter's stream, or on a stream that waits for it.
void GroupReduction::Complete(Pending& reduction) {
  AddPartial(reduction);
  reduction.done = data_.comm->RecordCurrent();
  const bool is_replicated = data_.config.replicate_group != nullptr;
  if (reduction.is_postponed) {
    partial_ = reduction;
    partial_->input = at::Tensor();
    partial_->work = nullptr;
    return;
  }
  std::optional<c10::StreamGuard> stream;
  if (is_replicated) {
    if (data_.comm->has_streams()) {
      FollowCurrent(data_.comm->all_reduce(), reduction);
      stream.emplace(data_.comm->all_reduce());
    }
    AllReduceAcrossReplicas(reduction);
  }
  if (data_.settings.all_reduce_hook) {
    if (const auto& own = data_.settings.all_reduce_hook_stream;
        own.has_value()) {
      FollowCurrent(*own, reduction);
      stream.emplace(*own);
    }
    data_.settings.all_reduce_hook(reduction.output);
  }
  Divide(reduction.output, reduction.plan.post_divide);
  HandOut(reduction.params, CutOutput(reduction));
  reduced_ = data_.comm->RecordCurrent();
}

// The shards' gradients, in their dtypes. Mostly all have one: one cast then
// does for all.
std::vector<at::Tensor> GroupReduction::CutOutput(const Pending& reduction) {
  const std::optional<c10::ScalarType> first =
      reduction.params.front()->grad_dtype();
  const bool is_one = std::all_of(
      reduction.params.begin(), reduction.params.end(),
      [&](const FsdpParam* param) { return param->grad_dtype() == first; });
  const at::Tensor output =
      is_one ? Cast(reduction.output, first) : reduction.output;
  std::vector<at::Tensor> gradients;
  int64_t offset = 0;
  for (const FsdpParam* param : reduction.params) {
    const ShardGeometry& geometry = param->geometry();
    const at::Tensor part = geometry.WithoutPadding(
        output.narrow(0, offset, geometry.padded_numel()));
    gradients.push_back(is_one ? part : Cast(part, param->grad_dtype()));
    offset += geometry.padded_numel();
  }
  return gradients;
}

// Makes `stream`, which works on the output next, wait for the current one.
void GroupReduction::FollowCurrent(c10::Stream stream,
                                   const Pending& reduction) {
  CommContext::Wait(stream, data_.comm->RecordCurrent());
  held_.push_back(reduction.output);
}

// Microbatches may use different parameters.
void GroupReduction::AddPartial(Pending& reduction) {
  if (!partial_.has_value()) return;
  const Pending partial = *std::move(partial_);
  partial_.reset();
  if (data_.comm->has_streams() && data_.config.shard_group->getSize() == 1) {
    // With one rank, the sums are in the compute stream's memory.
    held_.push_back(partial.output);
  }
  FlatGradients sum = Sum(
      data_.params, {std::move(reduction.params), std::move(reduction.output)},
      {partial.params, partial.output});
  reduction.params = std::move(sum.params);
  reduction.output = std::move(sum.values);
}

// For a backward without gradients, after earlier microbatches had some.
void GroupReduction::FinishPartial() {
  if (!partial_.has_value() || !data_.settings.requires_all_reduce) return;
  Pending reduction = *std::move(partial_);
  partial_.reset();
  reduction.is_postponed = false;
  Complete(reduction);
}

void GroupReduction::AllReduceAcrossReplicas(Pending& reduction) {
  c10d::ProcessGroup& group = *data_.config.replicate_group;
  CheckInStep(data_.config.replicate_group, data_.config.device.type(),
              DescribeWith("all-reduce", reduction.params), "backward");
  StepReport& report = data_.comm->recorder().report();
  ++report.num_all_reduces;
  report.all_reduced_bytes += reduction.output.nbytes();
  const auto operation = [this] { return data_.Describe("all-reduce"); };
  WaitForWork(IssueWork(group, operation,
                        [&] {
                          return AllReduce(reduction.output,
                                           reduction.plan.all_reduce_op, group);
                        }),
              group, operation);
}

// Adds up gradients that are shared out among the ranks of a parallelism: one
// all-reduce for each such axis.
void GroupReduction::SumShares(const std::vector<FsdpParam*>& params,
                               std::vector<at::Tensor>& gradients) const {
  // In parameter order, which is the same on every rank.
  std::vector<std::pair<ProcessGroup, std::vector<size_t>>> by_group;
  for (size_t i = 0; i < params.size(); ++i) {
    const ParallelParam* parallel = params[i]->parallel();
    if (parallel == nullptr || !parallel->gradient_group ||
        parallel->gradient_group->getSize() == 1) {
      continue;
    }
    auto found =
        std::find_if(by_group.begin(), by_group.end(), [&](const auto& entry) {
          return entry.first == parallel->gradient_group;
        });
    if (found == by_group.end()) {
      found = by_group.insert(found, {parallel->gradient_group, {}});
    }
    found->second.push_back(i);
  }
  for (const auto& [group, members] : by_group) {
    std::vector<at::Tensor> flat;
    for (const size_t i : members) flat.push_back(gradients[i].reshape({-1}));
    at::Tensor sum = at::cat(flat);
    CheckInStep(group, sum.device().type(),
                DescribeWith("all-reduce of shared gradients", params),
                "backward");
    StepReport& report = data_.comm->recorder().report();
    ++report.num_all_reduces;
    report.all_reduced_bytes += sum.nbytes();
    c10d::ProcessGroup& ranks = *group;
    const auto operation = [this] { return data_.Describe("all-reduce"); };
    WaitForWork(
        IssueWork(ranks, operation,
                  [&] { return AllReduce(sum, c10d::ReduceOp::SUM, ranks); }),
        ranks, operation);
    int64_t offset = 0;
    for (const size_t i : members) {
      const int64_t numel = gradients[i].numel();
      gradients[i] = sum.narrow(0, offset, numel)
                         .view(gradients[i].sizes())
                         .to(gradients[i].scalar_type());
      offset += numel;
    }
  }
}

void GroupReduction::HandOut(const std::vector<FsdpParam*>& params,
                             std::vector<at::Tensor> gradients) {
  SumShares(params, gradients);
  for (size_t i = 0; i < params.size(); ++i) {
    const at::Tensor shard = params[i]->shard();
    at::Tensor& held = shard.mutable_grad();
    const bool offloads = data_.config.offload_policy.has_value() &&
                          !gradients[i].device().is_cpu();
    const at::Tensor gradient =
        offloads
            ? gradients[i].to(
                  c10::kCPU, gradients[i].scalar_type(),
                  /*non_blocking=*/data_.config.offload_policy->pin_memory &&
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

void GroupReduction::FinishBackward() {
  CommContext& comm = *data_.comm;
  comm.WaitOnCurrent(reduced_);
  // The optimizer reads offloaded gradients on the CPU.
  if (reduced_ && data_.config.offload_policy.has_value())
    reduced_->synchronize();
  reduced_ = nullptr;
  held_.clear();
}

void GroupReduction::Abandon() {
  // These gradients are not handed out, because the program may have zeroed the
  // gradients since.
  CommContext& comm = *data_.comm;
  std::erase(comm.reductions(), this);
  for (Pending& reduction : std::exchange(pending_, {})) {
    WaitForWork(reduction.work, *data_.config.reduction_group(),
                [this] { return data_.Describe("reduce-scatter"); });
    comm.WaitOnCurrent(reduction.done);
  }
}

bool GroupReduction::IsPostponed() const {
  return partial_.has_value() ||
         std::any_of(pending_.begin(), pending_.end(),
                     [](const Pending& one) { return one.is_postponed; });
}

void GroupReduction::AbandonAll() {
  Abandon();
  if (partial_.has_value()) data_.comm->WaitOnCurrent(partial_->done);
  partial_.reset();
  FinishBackward();
}

}  // namespace fsdp
