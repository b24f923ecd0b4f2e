// SPDX-License-Identifier: Apache-2.0
// Ends backwards and steps: by themselves, by hand, or after an error.
// Tested by tests/fsdp/manual_finalization_test.cc.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <mutex>

#include "fsdp/engine/step_scheduler.h"
#include "fsdp/mesh/collective_order.h"

namespace fsdp {

void StepScheduler::EndBackward(FsdpParamGroup& group) {
  if (group.OwesReduction()) {
    group.PostBackward(/*at_end=*/true);
  } else if (group.settings().reshard_after_backward) {
    group.Reshard(/*after_forward=*/false);
  }
}

void StepScheduler::FinishReductions() {
  GroupReduction::FinishAllBut(0, *comm_);
  FinishOrderCheck();
  for (FsdpParamGroup* group : groups_) group->FinishBackward();
}

void StepScheduler::FinishBackward() {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  const bool manual = *begun_manual_;
  const bool is_last = is_last_backward_ && !manual;
  for (FsdpParamGroup* group : groups_) {
    group->turn() = {};
    group->set_awaits_finalization(manual);
    if (!manual || !group->settings().requires_gradient_sync) {
      EndBackward(*group);
    }
    if (is_last) group->DropGather();
    group->ClearMarks(/*used_too=*/is_last);
  }
  if (!manual) FinishReductions();
  comm_->ReleaseGather();
  // Uses that this backward has passed are over: the next one must not prefetch
  // them.
  order_.resize(is_last ? 0 : backward_cursor_);
  if (is_last) begun_manual_.reset();
  current_ = nullptr;
  in_backward_ = false;
  // The next backward must also be told about groups that stay gathered.
  FsdpParam::BumpEpoch();
}

void StepScheduler::set_manual_finalization(bool manual) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  const char* const wish = manual ? "true" : "false";
  TORCH_CHECK(manual == manual_ || !UsePhase::Now().backward,
              "fsdp: set_manual_backward_finalization(", wish,
              ") during a backward; call it before the backward");
  TORCH_CHECK(begun_manual_.value_or(manual) == manual,
              "fsdp: set_manual_backward_finalization(", wish,
              ") after a backward has begun with the opposite; it may change "
              "once that has ended: by finalize_backward, by a last backward, "
              "or by reset_iter_state");
  manual_ = manual;
}

// Ranks make the same calls, so all of them see the same errors, before any
// collective.
void StepScheduler::CheckMayFinalize() const {
  TORCH_CHECK(finalization_ == nullptr,
              "fsdp: finalize_backward while an earlier one is pending; call "
              "wait() of the handle that it gave first");
  TORCH_CHECK(comm_->finalization() == nullptr,
              "fsdp: finalize_backward while another root's is pending, which "
              "shares its communication (share_comm_ctx); call wait() of the "
              "handle that it gave first");
  TORCH_CHECK(begun_manual_.value_or(manual_),
              "fsdp: finalize_backward, but each backward ends by itself; call "
              "set_manual_backward_finalization(true) before the forward");
  TORCH_CHECK(!in_backward_, "fsdp: finalize_backward ",
              aborted_ ? "after a backward that threw; call reset_iter_state"
                       : "during a backward; call it when backward() has "
                         "returned");
  if (begun_manual_.has_value()) return;
  for (const FsdpParamGroup* group : groups_) {
    const FsdpParam* const param = group->ParamInGraph();
    TORCH_CHECK(param == nullptr,
                "fsdp: finalize_backward between forward and backward: a "
                "forward used '",
                param->name(),
                "', and no backward has come. Call it after the backward; for "
                "an output that needs none, destroy the output first");
  }
}

void StepScheduler::CheckReducesAtOnce() const {
  for (FsdpParamGroup* group : groups_) {
    TORCH_CHECK(!group->PostponesAllReduce(), "fsdp: finalize_backward with a ",
                group->Describe("sum"),
                " that waits for a postponed all-reduce; with "
                "set_requires_all_reduce(false) let each backward end by "
                "itself (set_manual_backward_finalization(false))");
    const bool reduces = group->settings().requires_gradient_sync &&
                         group->OwesReduction(group->awaits_finalization());
    TORCH_CHECK(!reduces || !group->config().replicate_group ||
                    group->settings().requires_all_reduce,
                "fsdp: finalize_backward must all-reduce, but the ",
                group->Describe("all-reduce"),
                " is off; call set_requires_all_reduce(true) first");
  }
}

void StepScheduler::CheckWorksAlone() const {
  for (const GroupReduction* reduction : comm_->reductions()) {
    const bool is_own = std::any_of(groups_.begin(), groups_.end(),
                                    [reduction](const FsdpParamGroup* group) {
                                      return group->Has(reduction);
                                    });
    TORCH_CHECK(is_own,
                "fsdp: finalize_backward(async=true) while another root, which "
                "shares its communication (share_comm_ctx), reduces gradients; "
                "finalize that one first");
  }
}

std::shared_ptr<Finalization> StepScheduler::FinalizeBackward(bool async) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  if (!was_used_) return nullptr;
  CheckMayFinalize();
  CheckReducesAtOnce();
  if (async) CheckWorksAlone();
  // The order in which backward uses them.
  for (auto it = groups_.rbegin(); it != groups_.rend(); ++it) {
    FsdpParamGroup& group = **it;
    if (group.OwesReduction(group.awaits_finalization())) {
      group.PostBackward(/*at_end=*/true);
    } else if (group.settings().reshard_after_backward) {
      group.Reshard(/*after_forward=*/false);
    }
    if (group.settings().requires_gradient_sync) {
      group.set_awaits_finalization(false);
    }
  }
  if (!async) {
    EndIteration();
    return nullptr;
  }
  finalization_ = std::make_shared<Finalization>();
  comm_->set_finalization(finalization_);
  FsdpParam::BumpEpoch();  // the next use is refused
  return finalization_;
}

void StepScheduler::WaitForFinalization(
    const std::shared_ptr<Finalization>& finalization) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  TORCH_CHECK(finalization == finalization_,
              "fsdp: wait() of a handle of finalize_backward after "
              "reset_iter_state, which dropped its gradients");
  EndIteration();
  ForgetFinalization();
}

void StepScheduler::ForgetFinalization() {
  if (finalization_ == nullptr) return;
  finalization_ = nullptr;
  comm_->set_finalization({});
}

void StepScheduler::EndIteration() {
  FinishReductions();
  for (FsdpParamGroup* group : groups_) {
    group->DropGather();
    group->ClearMarks(/*used_too=*/true);
  }
  comm_->ReleaseGather();
  order_.clear();
  begun_manual_.reset();
  current_ = nullptr;
  FsdpParam::BumpEpoch();
}

void StepScheduler::ResetIterState() {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  TORCH_CHECK(!UsePhase::Now().backward,
              "fsdp: reset_iter_state during a backward; call it when the "
              "exception has left backward()");
  TORCH_CHECK(comm_->finalization() == finalization_,
              "fsdp: reset_iter_state while another root's finalize_backward "
              "is pending, which shares its communication (share_comm_ctx); "
              "that root must wait() for its handle or reset first");
  RecoverFromAbortedBackward();
  for (FsdpParamGroup* group : groups_) group->DropGradients();
  comm_->ReleaseGather();
  backward_cursor_ = 0;
  ForgetFinalization();
  FsdpParam::BumpEpoch();
}

void StepScheduler::NoteAborted(uint64_t backward) {
  const std::lock_guard<std::recursive_mutex> lock(mutex_);
  if (in_backward_ && backward == num_backwards_) aborted_ = true;
}

void StepScheduler::RecoverFromAbortedBackward() {
  aborted_ = false;
  in_backward_ = false;
  begun_manual_.reset();
  order_.clear();
  current_ = nullptr;
  for (FsdpParamGroup* group : groups_) group->ResetAfterError();
}

}  // namespace fsdp
