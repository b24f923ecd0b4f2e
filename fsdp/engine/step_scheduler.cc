// SPDX-License-Identifier: Apache-2.0
// Follows the uses of groups through forward and backward: see [Note: a step].
// Tested by tests/fsdp/fsdp_module_test.cc.
#include "fsdp/engine/step_scheduler.h"

#include <algorithm>
#include <utility>

#include "fsdp/engine/lazy_key.h"
#include "torch/csrc/autograd/engine.h"

namespace fsdp {
namespace {

// Whether the group is gathered, and neither used now nor kept by the user.
bool MayBeFreed(const FsdpParamGroup& group, const FsdpParamGroup& used,
                const StepScheduler::Use& use) {
  return &group != &used && !group.IsTogetherWith(used) &&
         !group.kept_by_user() &&
         group.sharding() == FsdpParamGroup::Sharding::kUnsharded &&
         std::none_of(
             use.together.begin(), use.together.end(),
             [&group](FsdpParam* param) { return &param->group() == &group; });
}

// Bounds memory in a job that only evaluates.
constexpr size_t kMaxOrder = 1 << 17;

thread_local std::weak_ptr<StepScheduler> last_used;

}  // namespace

// An element in one backward pass's callback list. When the pass throws, the
// list is destroyed without being run, and so is the guard.
class StepScheduler::BackwardGuard {
 public:
  BackwardGuard(std::shared_ptr<StepScheduler> scheduler, uint64_t backward)
      : scheduler_(std::move(scheduler)), backward_(backward) {}
  ~BackwardGuard() {
    if (!finished_) scheduler_->NoteAborted(backward_);
  }
  void Finish() {
    scheduler_->FinishBackward();
    finished_ = true;
  }

 private:
  std::shared_ptr<StepScheduler> scheduler_;  // kept until the pass is over
  const uint64_t backward_;
  bool finished_ = false;
};

StepScheduler::StepScheduler(std::shared_ptr<CommContext> comm)
    : comm_(std::move(comm)) {}

std::weak_ptr<StepScheduler> StepScheduler::LastUsed() { return last_used; }

void StepScheduler::set_groups(std::vector<FsdpParamGroup*> groups) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  groups_ = std::move(groups);
  for (FsdpParamGroup* group : groups_) group->JoinScheduler(this, comm_);
  ResolveInputBuffers();
  order_.clear();
  backward_cursor_ = 0;
  current_ = nullptr;
}

void StepScheduler::ResolveInputBuffers() {
  comm_->set_max_input_buffers(MostInputBuffers());
}

size_t StepScheduler::MostInputBuffers() const {
  size_t most = 1;
  for (FsdpParamGroup* group : groups_) {
    most = std::max(most, group->settings().reduce_scatter_max_input_buffers);
  }
  return most;
}

void StepScheduler::set_comm(std::shared_ptr<CommContext> comm) {
  TORCH_CHECK(finalization_ == nullptr,
              "fsdp: share_comm_ctx while gradients are being reduced: call "
              "wait() of the handle that finalize_backward(async=true) gave "
              "first");
  comm_ = std::move(comm);
  comm_->set_max_input_buffers(
      std::max(comm_->max_input_buffers(), MostInputBuffers()));
  for (FsdpParamGroup* group : groups_) group->JoinScheduler(this, comm_);
}

void StepScheduler::set_post_optim_event(std::shared_ptr<c10::Event> event) {
  post_optim_event_ = std::move(event);
}

void StepScheduler::OnUse(FsdpParam& param, UsePhase phase, const Use& use) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  FsdpParamGroup& group = param.group();
  if (!phase.backward &&
      (group.ShardsChanged() ||
       (group.sharding() != FsdpParamGroup::Sharding::kUnsharded &&
        !group.gather_pending()))) {
    TORCH_CHECK(
        use.may_start || ForwardScope::active(), "fsdp: ", use.op,
        " reads the parameter '", param.name(),
        "', which is sharded, and nothing else, so nothing tells whether all "
        "ranks come here, as they do in a forward. In a forward, put an "
        "fsdp::ForwardScope around it or call the module through "
        "fsdp::forward. Elsewhere, for the whole value call "
        "fsdp::dtensor_of(parameter)->full_tensor() on every rank; to step or "
        "inspect this rank's shard use module->named_parameters() under "
        "torch::NoGradGuard, from which optimizers are built, too");
  }
  OnGroupUse(group, phase, use);
  if (!phase.backward) param.AgreeOnRequiresGrad();
  if (phase.grad_enabled && param.leaf().requires_grad()) {
    param.marks().used = true;
    param.RemoveGradientNotice();
  }
  param.marks().touched = true;
  param.MarkCurrent(phase);
}

// A view made before the gather must already have the dtype that to() gave the
// shards, and record a gradient if they require one: `weight.t()` comes before
// the operator that gathers `weight`.
void StepScheduler::OnView(FsdpParam& param) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  FsdpParamGroup& group = param.group();
  param.AgreeOnRequiresGrad();
  if (group.sharding() != FsdpParamGroup::Sharding::kSharded ||
      group.gather_pending()) {
    return;
  }
  const EngineScope scope;
  group.RefreshShards();
}

void StepScheduler::OnShardWritten(FsdpParamGroup& group) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  group.OnShardWritten();
}

void StepScheduler::OnGroupUse(FsdpParamGroup& group, UsePhase phase,
                               const Use& use) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  // An autograd thread may drop the failed pass after the training thread has
  // gone on.
  if (aborted_ || (in_backward_ && !phase.backward)) {
    RecoverFromAbortedBackward();
  }
  last_used = weak_from_this();
  was_used_ = true;
  TORCH_CHECK(comm_->finalization() == nullptr, "fsdp: ", use.op, " is a ",
              group.Describe("use"),
              " while gradients are being reduced: call wait() of the handle "
              "that finalize_backward(async=true) gave first");
  TORCH_CHECK(
      !group.config().mp_policy.output_dtype.has_value() ||
          group.seen_at_boundary(),
      "fsdp: the policy of '", group.name(),
      "' sets output_dtype, but fully_shard does not see its outputs: call "
      "the module "
      "through fsdp::forward(module, inputs...) or hold it as fsdp::Wrapped");
  if (!phase.backward && group.ShardsChanged()) {
    group.DropGather();
    group.Reshard(/*after_forward=*/false);
  }
  const bool unsharded =
      group.sharding() == FsdpParamGroup::Sharding::kUnsharded;
  if (unsharded && current_ == &group &&
      current_in_backward_ == phase.backward) {
    return;
  }
  if (phase.backward) {
    QueueFinalCallback();
    MoveBackwardCursor(group, phase);
    FreeAfterBackward(group, phase, use);
    group.turn().passed = true;
  } else {
    BeginForwardIfNew(group);
    FreeAfterForward(group, use);
  }
  const bool gathers =
      !unsharded && (!phase.backward || group.settings().unshard_in_backward ||
                     phase.grad_enabled);
  if (gathers) {
    if (group.gather_pending()) {
      ++comm_->recorder().report().num_prefetched;
    } else {
      StartGathers(group, use.op);
    }
    group.WaitForUnshard(phase.backward);
  }
  group.set_kept_by_user(false);
  current_ = &group;
  current_in_backward_ = phase.backward;
  if (phase.backward) {
    PrefetchBackward(group);
  } else {
    if (order_.size() >= kMaxOrder) order_.clear();
    order_.push_back(&group);
    PrefetchForward(group);
  }
  FsdpParam::BumpEpoch();
}

void StepScheduler::AfterForward(FsdpParamGroup& group) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  if (UsePhase::Now().backward || !group.ReshardsAfterForward()) return;
  group.Reshard(/*after_forward=*/true);
}

// A forward begins with the first use after a backward, or, when nothing waits
// for a backward, with a use of the group that began the previous forward.
void StepScheduler::BeginForwardIfNew(FsdpParamGroup& group) {
  if (!order_.empty()) {
    const bool awaits_backward = std::any_of(
        groups_.begin(), groups_.end(),
        [](const FsdpParamGroup* other) { return other->AwaitsGradients(); });
    // Another group's parameter may be used between two parameters in this one.
    const bool goes_on =
        group.sharding() == FsdpParamGroup::Sharding::kUnsharded &&
        !group.AllTouched();
    if (order_.front() != &group || awaits_backward || goes_on) return;
  }
  order_.clear();
  comm_->BeginGathers(post_optim_event_);
  post_optim_event_ = nullptr;
  for (FsdpParamGroup* other : groups_) other->NoteGathersBegan();
}

void StepScheduler::FreeAfterForward(const FsdpParamGroup& used,
                                     const Use& use) {
  for (FsdpParamGroup* group : groups_) {
    if (!MayBeFreed(*group, used, use) || !group->ReshardsAfterForward() ||
        group->IsAbove(used) ||
        // Another group may be used between two uses of this group.
        (used.IsAbove(*group) && !group->AllTouched())) {
      continue;
    }
    group->Reshard(/*after_forward=*/true);
  }
}

// Groups without trained parameters, or outside this graph, get no gradient
// that would free them.
void StepScheduler::FreeAfterBackward(const FsdpParamGroup& used,
                                      UsePhase phase, const Use& use) {
  for (FsdpParamGroup* group : groups_) {
    if (!MayBeFreed(*group, used, use) ||
        !group->settings().reshard_after_backward || group->IsAbove(used) ||
        KeepsInBackward(*group, used, phase)) {
      continue;
    }
    group->Reshard(/*after_forward=*/false);
  }
}

// Whether backward will use the group, or its gradients are still to arrive.
bool StepScheduler::KeepsInBackward(const FsdpParamGroup& group,
                                    const FsdpParamGroup& used,
                                    UsePhase phase) const {
  // Kept since forward, or prefetched.
  if (group.turn().in_forward && !group.turn().passed) return true;
  const bool comes_again = group.turn().num_to_come > 0;
  if (used.IsAbove(group)) {
    return comes_again || group.AwaitsGradients();
  }
  // A group that comes again belongs to another forward; PyTorch frees it
  // between the two.
  return group.AwaitsGradients() && (!comes_again || phase.grad_enabled);
}

void StepScheduler::CountUsesToCome() {
  for (FsdpParamGroup* group : groups_) group->turn() = {};
  for (FsdpParamGroup* group : order_) {
    ++group->turn().num_to_come;
    group->turn().in_forward = true;
  }
}

// Moves the cursor to the group's latest use that backward has not passed yet.
// A recomputed group has passed that use with the recomputation.
void StepScheduler::MoveBackwardCursor(FsdpParamGroup& used, UsePhase phase) {
  if (!phase.grad_enabled && used.turn().recomputed) return;
  used.turn().recomputed = phase.grad_enabled;
  if (used.turn().num_to_come == 0) return;
  while (backward_cursor_ > 0) {
    FsdpParamGroup* passed = order_[--backward_cursor_];
    --passed->turn().num_to_come;
    if (passed == &used) return;
  }
}

void StepScheduler::PrefetchForward(FsdpParamGroup& used) {
  for (const auto& weak : used.forward_prefetch()) {
    Prefetch(weak.lock().get());
  }
}

void StepScheduler::Prefetch(FsdpParamGroup* group) {
  if (group == nullptr || group->gather_pending() ||
      group->sharding() == FsdpParamGroup::Sharding::kUnsharded) {
    return;
  }
  StartGathers(*group, "prefetch");
}

// Starts the gathers of all groups of the call, in one order on every rank,
// whichever is used first.
void StepScheduler::StartGathers(FsdpParamGroup& group,
                                 const std::string& reason) {
  for (FsdpParamGroup* one : group.together()) {
    if (one->gather_pending() ||
        one->sharding() == FsdpParamGroup::Sharding::kUnsharded) {
      continue;
    }
    one->CheckGatherInStep(reason);
    one->Unshard();
  }
}

void StepScheduler::PrefetchBackward(FsdpParamGroup& used) {
  if (!used.backward_prefetch().empty()) {
    for (const auto& weak : used.backward_prefetch()) {
      Prefetch(weak.lock().get());
    }
    return;
  }
  // The latest group before this use that is not gathered.
  if (backward_cursor_ >= order_.size() || order_[backward_cursor_] != &used) {
    return;
  }
  for (size_t i = backward_cursor_; i-- > 0;) {
    FsdpParamGroup* group = order_[i];
    if (group == &used ||
        group->sharding() == FsdpParamGroup::Sharding::kUnsharded) {
      continue;
    }
    if (group->settings().unshard_in_backward) Prefetch(group);
    return;
  }
}

void StepScheduler::OnGradient(FsdpParam& param) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  if (aborted_) RecoverFromAbortedBackward();
  QueueFinalCallback();
  param.marks().fired = true;
  FsdpParamGroup& group = param.group();
  if (!group.AllGradientsArrived() || group.turn().GradientsMayGrow()) return;
  group.PostBackward(/*at_end=*/false);
  if (current_ == &group) current_ = nullptr;
}

void StepScheduler::QueueFinalCallback() {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  if (aborted_) RecoverFromAbortedBackward();
  if (in_backward_) return;
  in_backward_ = true;
  if (!begun_manual_.has_value()) begun_manual_ = manual_;
  backward_cursor_ = order_.size();
  CountUsesToCome();
  const auto guard =
      std::make_shared<BackwardGuard>(shared_from_this(), ++num_backwards_);
  torch::autograd::Engine::get_default_engine().queue_callback(
      [guard] { guard->Finish(); });
}

}  // namespace fsdp
