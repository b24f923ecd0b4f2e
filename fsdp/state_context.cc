#include "fsdp/state_context.h"

#include <algorithm>
#include <utility>

#include "fsdp/fsdp_param_group.h"
#include "fsdp/fsdp_state.h"
#include "torch/csrc/autograd/engine.h"

namespace fsdp {
namespace {

// Bounds the memory of a job that only ever evaluates.
constexpr size_t kMaxOrder = 1 << 17;

thread_local std::weak_ptr<StateContext> last_used;

}  // namespace

// Rides in the list of callbacks of one backward pass. When the pass throws,
// the list is destroyed without being run, and so is this.
class StateContext::BackwardGuard {
 public:
  explicit BackwardGuard(std::shared_ptr<StateContext> context)
      : context_(std::move(context)) {}
  ~BackwardGuard() {
    if (!finished_) context_->aborted_ = true;
  }
  void Finish() {
    context_->FinishBackward();
    finished_ = true;
  }

 private:
  std::shared_ptr<StateContext> context_;  // kept until the pass is over
  bool finished_ = false;
};

StateContext::StateContext(std::shared_ptr<CommContext> comm)
    : comm_(std::move(comm)) {}

std::weak_ptr<StateContext> StateContext::LastUsed() { return last_used; }

void StateContext::set_states(std::vector<FsdpState*> states) {
  states_ = std::move(states);
  order_.clear();
  backward_cursor_ = 0;
  current_ = nullptr;
}

void StateContext::Remove(FsdpState* state) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  std::vector<FsdpState*> rest;
  for (FsdpState* other : states_) {
    if (other != state) rest.push_back(other);
  }
  set_states(std::move(rest));
}

void StateContext::set_post_optim_event(std::shared_ptr<c10::Event> event) {
  post_optim_event_ = std::move(event);
}

void StateContext::OnUse(FsdpParam& param, UsePhase phase, const Use& use) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  FsdpParamGroup& group = param.group();
  if (group.sharding() != FsdpParamGroup::Sharding::kUnsharded &&
      !phase.backward && !group.gather_pending()) {
    TORCH_CHECK(
        use.may_start || ForwardScope::active(), "fsdp: ", use.op,
        " reads the parameter '", param.name(),
        "', which is sharded, and nothing else: outside a forward that would "
        "wait for ranks that never come. For the whole value call "
        "fsdp::dtensor_of(parameter)->full_tensor() on every rank; to step or "
        "inspect this rank's shard use module->named_parameters() under "
        "torch::NoGradGuard; in a forward that begins with parameters alone, "
        "put an fsdp::ForwardScope around it");
  }
  OnGroupUse(group, phase, use);
  if (phase.grad_enabled && param.leaf().requires_grad()) param.used = true;
  param.MarkCurrent(phase);
}

void StateContext::OnGroupUse(FsdpParamGroup& group, UsePhase phase,
                              const Use& use) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  if (aborted_) RecoverFromAbortedBackward();
  last_used = weak_from_this();
  TORCH_CHECK(
      !group.config().mp_policy.output_dtype.has_value() ||
          group.state().seen_at_boundary,
      "fsdp: the policy of '", group.state().name(),
      "' sets output_dtype, but its outputs are not seen: call the module "
      "through fsdp::forward(module, inputs...) or hold it as fsdp::Wrapped");
  const bool unsharded =
      group.sharding() == FsdpParamGroup::Sharding::kUnsharded;
  if (unsharded && current_ == &group &&
      current_in_backward_ == phase.backward) {
    return;
  }
  if (phase.backward) {
    QueueFinalCallback();
    FreeAfterBackward(group);
  } else {
    BeginForwardIfNew(group, phase);
    FreeAfterForward(group);
  }
  const bool gathers =
      !unsharded && (!phase.backward || group.settings().unshard_in_backward ||
                     phase.grad_enabled);
  if (gathers) {
    if (group.gather_pending()) {
      ++comm_->recorder().report().num_prefetched;
    } else {
      group.CheckGatherInStep(use.op);
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

void StateContext::AfterForward(FsdpParamGroup& group) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  if (UsePhase::Now().backward || !group.state().ReshardsAfterForward()) return;
  group.Reshard(/*after_forward=*/true);
}

// A forward begins with the first use after a backward, or, when nothing waits
// for a backward, with the use of the group that began the one before.
void StateContext::BeginForwardIfNew(FsdpParamGroup& group,
                                     UsePhase /*phase*/) {
  if (!order_.empty()) {
    const bool awaits_backward =
        std::any_of(states_.begin(), states_.end(), [](const FsdpState* state) {
          return state->group() != nullptr && state->group()->AwaitsGradients();
        });
    if (order_.front() != &group || awaits_backward) return;
  }
  order_.clear();
  comm_->BeginGathers(post_optim_event_);
  post_optim_event_ = nullptr;
}

void StateContext::FreeAfterForward(const FsdpParamGroup& used) {
  for (FsdpState* state : states_) {
    FsdpParamGroup* group = state->group();
    if (group == nullptr || group == &used || group->kept_by_user() ||
        group->sharding() != FsdpParamGroup::Sharding::kUnsharded ||
        !state->ReshardsAfterForward() || state->IsAbove(used.state())) {
      continue;
    }
    group->Reshard(/*after_forward=*/true);
  }
}

// Groups without trained parameters, or outside this graph, get no gradient
// that would free them.
void StateContext::FreeAfterBackward(const FsdpParamGroup& used) {
  for (FsdpState* state : states_) {
    FsdpParamGroup* group = state->group();
    if (group == nullptr || group == &used || group->kept_by_user() ||
        group->sharding() != FsdpParamGroup::Sharding::kUnsharded ||
        !group->settings().reshard_after_backward || group->AwaitsGradients() ||
        state->IsAbove(used.state())) {
      continue;
    }
    group->Reshard(/*after_forward=*/false);
  }
}

void StateContext::PrefetchForward(FsdpParamGroup& used) {
  for (const auto& weak : used.state().forward_prefetch) {
    if (const auto state = weak.lock()) Prefetch(state->group());
  }
}

void StateContext::Prefetch(FsdpParamGroup* group) {
  if (group == nullptr || group->gather_pending() ||
      group->sharding() == FsdpParamGroup::Sharding::kUnsharded) {
    return;
  }
  group->CheckGatherInStep("prefetch");
  group->Unshard();
}

void StateContext::PrefetchBackward(FsdpParamGroup& used) {
  if (!used.state().backward_prefetch.empty()) {
    for (const auto& weak : used.state().backward_prefetch) {
      if (const auto state = weak.lock()) Prefetch(state->group());
    }
    return;
  }
  // The latest use of this group that backward has not passed yet, and before
  // it the latest group that is not there.
  size_t end = std::min(backward_cursor_, order_.size());
  const auto first = order_.begin();
  const auto found =
      std::find(std::make_reverse_iterator(first + end), order_.rend(), &used);
  if (found == order_.rend()) return;
  backward_cursor_ = static_cast<size_t>(order_.rend() - found) - 1;
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

void StateContext::OnGradient(FsdpParam& param) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  if (aborted_) RecoverFromAbortedBackward();
  QueueFinalCallback();
  param.fired = true;
  FsdpParamGroup& group = param.group();
  if (!group.AllGradientsArrived()) return;
  group.PostBackward(/*at_end=*/false);
  if (current_ == &group) current_ = nullptr;
}

void StateContext::QueueFinalCallback() {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  if (aborted_) RecoverFromAbortedBackward();
  if (in_backward_) return;
  in_backward_ = true;
  backward_cursor_ = order_.size();
  const auto guard = std::make_shared<BackwardGuard>(shared_from_this());
  torch::autograd::Engine::get_default_engine().queue_callback(
      [guard] { guard->Finish(); });
}

void StateContext::FinishBackward() {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  for (FsdpState* state : states_) {
    FsdpParamGroup* group = state->group();
    if (group == nullptr) continue;
    if (group->OwesReduction()) {
      group->PostBackward(/*at_end=*/true);
    } else if (group->settings().reshard_after_backward) {
      group->Reshard(/*after_forward=*/false);
    }
    if (is_last_backward_) group->DropGather();
    group->ClearMarks(/*used_too=*/is_last_backward_);
  }
  if (comm_->pending_reduction != nullptr) {
    comm_->pending_reduction->FinishReduction();
  }
  for (FsdpState* state : states_) {
    if (state->group() != nullptr) state->group()->FinishBackward();
  }
  comm_->ReleaseGather();
  if (is_last_backward_) order_.clear();
  current_ = nullptr;
  in_backward_ = false;
  // The next backward wants to hear of what stays gathered, too.
  FsdpParam::BumpEpoch();
}

void StateContext::RecoverFromAbortedBackward() {
  aborted_ = false;
  in_backward_ = false;
  order_.clear();
  current_ = nullptr;
  for (FsdpState* state : states_) {
    if (state->group() != nullptr) state->group()->ResetAfterError();
  }
}

}  // namespace fsdp
