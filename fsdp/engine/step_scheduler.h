// SPDX-License-Identifier: Apache-2.0
// StepScheduler: decides when the groups below one root are gathered, freed,
// prefetched and reduced. The lazy key reports every use of a parameter to it,
// and autograd every gradient. It keeps the order in which groups are used, the
// communication under way, and the current backward's position. Internally
// locked; callbacks run on the threads of forward and backward, one at a time.
//
// [Note: a step]
// Forward, when a group is first used:
//   - The other groups that are not above it are freed, if they reshard after
//     forward. A group below it may be in the middle of a forward, and is freed
//     once all of that group's parameters have been used.
//   - If any shard in the group has changed since the gather, the group is
//     freed too.
//   - The group is gathered (or a prefetch awaited), and gathers of the other
//     groups of its call, and of those that it prefetches, are started.
//   - The use is appended to the order.
//
// Backward, when a group is first used: the same, with two differences. The
// freed groups are those that backward has used and that wait for no gradient,
// or only for an earlier forward's gradient. The prefetched group is the one
// before it in the order. When the last gradient that a group waits for has
// arrived, the group is freed and its gradients are reduced, after the previous
// reduction is awaited. When backward ends, called by autograd's engine, groups
// that still have gradients are reduced, all are freed, and everything in
// flight is awaited. If the program finalizes backward, the last sentence is
// left to FinalizeBackward: nothing is freed or awaited when a backward ends,
// and groups that still have gradients, and are to be reduced, keep them.
#ifndef FSDP_ENGINE_STEP_SCHEDULER_H_
#define FSDP_ENGINE_STEP_SCHEDULER_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "c10/util/ArrayRef.h"
#include "fsdp/engine/comm/comm_context.h"
#include "fsdp/engine/fsdp_param.h"
#include "fsdp/engine/fsdp_param_group.h"

namespace fsdp {

// An end of backward that nobody has awaited yet; only the identity counts.
struct Finalization {};

class StepScheduler : public std::enable_shared_from_this<StepScheduler> {
 public:
  struct Use {
    std::string op;  // for errors
    // Whether this operator may start a gather outside backward: it takes
    // something other than parameters, or comes from the module's boundary. See
    // strict mode in fsdp/README.md.
    bool may_start = false;
    // All parameters that the operator takes; their groups stay gathered.
    c10::ArrayRef<FsdpParam*> together = {};
  };

  explicit StepScheduler(std::shared_ptr<CommContext> comm);

  // Called by the lazy key and by a module's boundary. May communicate.
  void OnUse(FsdpParam& param, UsePhase phase, const Use& use);
  void OnGroupUse(FsdpParamGroup& group, UsePhase phase, const Use& use);
  // Called by the lazy key for an operator that only makes a view. Settles the
  // dtype and requires_grad that a view made before the gather must have.
  void OnView(FsdpParam& param);
  // Called when an operator writes into a shard in `group`.
  void OnShardWritten(FsdpParamGroup& group);
  // Called by autograd when `param`'s gradient is complete.
  void OnGradient(FsdpParam& param);
  // Inside a backward: registers a callback for its end. Call it before a
  // nested backward, so that it is called when the outer one ends.
  void QueueFinalCallback();

  // Frees a group when the module's forward ends, if the boundary is known.
  void AfterForward(FsdpParamGroup& group);
  // The scheduler that owns the parameter this thread used last.
  static std::weak_ptr<StepScheduler> LastUsed();

  // The groups below the root, root first, then in the order of modules(); they
  // join this scheduler, which forgets any step in progress.
  void set_groups(std::vector<FsdpParamGroup*> groups);

  CommContext& comm() { return *comm_; }
  const std::shared_ptr<CommContext>& shared_comm() const { return comm_; }
  // Makes the groups communicate in another context.
  void set_comm(std::shared_ptr<CommContext> comm);
  // Tells the context how many inputs of reductions the groups allow at most.
  void ResolveInputBuffers();

  // See FSDPModule::set_manual_backward_finalization.
  void set_manual_finalization(bool manual);
  bool manual_finalization() const { return manual_; }
  // See FSDPModule::finalize_backward. With `async` the caller calls
  // WaitForFinalization with the result; null if there is nothing to wait for.
  std::shared_ptr<Finalization> FinalizeBackward(bool async);
  void WaitForFinalization(const std::shared_ptr<Finalization>& finalization);
  // See FSDPModule::reset_iter_state.
  void ResetIterState();

  void set_is_last_backward(bool value) { is_last_backward_ = value; }
  // The next forward's first gather waits for this, not for everything issued
  // so far.
  void set_post_optim_event(std::shared_ptr<c10::Event> event);

 private:
  class BackwardGuard;

  size_t MostInputBuffers() const;
  void NoteAborted(uint64_t backward);
  void RecoverFromAbortedBackward();
  void BeginForwardIfNew(FsdpParamGroup& group);
  void FreeAfterForward(const FsdpParamGroup& used, const Use& use);
  void FreeAfterBackward(const FsdpParamGroup& used, UsePhase phase,
                         const Use& use);
  bool KeepsInBackward(const FsdpParamGroup& group, const FsdpParamGroup& used,
                       UsePhase phase) const;
  void CountUsesToCome();
  void MoveBackwardCursor(FsdpParamGroup& used, UsePhase phase);
  void Prefetch(FsdpParamGroup* group);
  static void StartGathers(FsdpParamGroup& group, const std::string& reason);
  void PrefetchForward(FsdpParamGroup& used);
  void PrefetchBackward(FsdpParamGroup& used);
  void FinishBackward();
  void CheckMayFinalize() const;
  void CheckReducesAtOnce() const;
  void CheckWorksAlone() const;
  static void EndBackward(FsdpParamGroup& group);
  void FinishReductions();
  void EndIteration();
  void ForgetFinalization();

  std::recursive_mutex mutex_;
  // Shared with the groups, and by the schedulers of several roots.
  std::shared_ptr<CommContext> comm_;
  std::vector<FsdpParamGroup*> groups_;

  // Uses in forward, in order and with repeats, and how far back backward has
  // come.
  std::vector<FsdpParamGroup*> order_;
  size_t backward_cursor_ = 0;
  FsdpParamGroup* current_ = nullptr;
  bool current_in_backward_ = false;

  bool in_backward_ = false;  // a callback is registered for the end
  bool aborted_ = false;      // that backward threw, so no callback comes
  uint64_t num_backwards_ = 0;
  bool is_last_backward_ = true;
  std::shared_ptr<c10::Event> post_optim_event_;

  bool was_used_ = false;
  bool manual_ = false;  // the program finalizes backward
  // The same, as it was when the first backward began that is not finalized.
  std::optional<bool> begun_manual_;
  std::shared_ptr<Finalization> finalization_;  // null: none is pending
};

}  // namespace fsdp

#endif  // FSDP_ENGINE_STEP_SCHEDULER_H_
