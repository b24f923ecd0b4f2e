// SPDX-License-Identifier: Apache-2.0
// FSDPModule: the handle that controls a module to which fully_shard was
// applied. Names and meaning are PyTorch's (torch/distributed/fsdp). For the
// thread that trains, between passes; every rank must make the same calls in
// the same order.
#ifndef FSDP_FSDP_MODULE_H_
#define FSDP_FSDP_MODULE_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "c10/core/Event.h"
#include "c10/core/Stream.h"
#include "fsdp/engine/policies.h"
#include "torch/nn/module.h"

namespace fsdp {

class FsdpState;
struct Finalization;

// A gather in flight.
class UnshardHandle {
 public:
  explicit UnshardHandle(std::shared_ptr<FsdpState> state)
      : state_(std::move(state)) {}
  // Makes the parameters usable. Does nothing the second time.
  void wait();

 private:
  std::shared_ptr<FsdpState> state_;
};

// The end of a backward, in flight: see FSDPModule::finalize_backward.
class GradientReductionHandle {
 public:
  GradientReductionHandle() = default;
  GradientReductionHandle(std::shared_ptr<FsdpState> state,
                          std::shared_ptr<Finalization> finalization)
      : state_(std::move(state)), finalization_(std::move(finalization)) {}
  // Makes the gradients usable. Does nothing the second time, or where nothing
  // is in flight. Throws c10::Error after reset_iter_state.
  void wait();

 private:
  std::shared_ptr<FsdpState> state_;  // null: nothing is in flight
  std::shared_ptr<Finalization> finalization_;
};

// A module to which fully_shard was applied. A cheap handle; it keeps the
// engine's state for the module alive, but not the module.
class FSDPModule {
 public:
  // Gathers this module's own group (not its children's) and waits, unless
  // `async`. For a group without parameters the handle does nothing.
  UnshardHandle unshard(bool async = false);
  // Frees the gathered parameters in this module's own group.
  void reshard();

  // false: after this backward, the order and the pending reduction are kept
  // for the next one. Applies to this module and all below it.
  void set_is_last_backward(bool is_last_backward);
  // For the root, between steps. true: the end of a backward leaves gradients
  // and gathered parameters as they are, and finalize_backward ends one or
  // several backwards; set_is_last_backward has no effect then. Errors
  // (c10::Error): another module than the root; a change during a backward, or
  // after one that is not finalized.
  void set_manual_backward_finalization(bool enabled);
  // For the root, after backwards: completes the reductions and frees
  // parameters, as the modules' switches say at this moment. To reduce once
  // after several backwards, turn set_requires_gradient_sync off for those, and
  // on again before this call. Shards have gradients when this returns,
  // or, with `async`, when wait() of the handle does, which must come before
  // anything else in this root, and in others with the same communication
  // (share_comm_ctx). Does nothing before the first forward.
  // Errors (c10::Error): another module than the root; without
  // set_manual_backward_finalization(true); during a backward, or between a
  // forward and the backward; while an earlier handle is pending; a postponed
  // all-reduce (set_requires_all_reduce).
  GradientReductionHandle finalize_backward(bool async = false);
  // For the root, on every rank, after an exception in forward or backward on
  // any rank: waits for communication that has begun, frees all parameters, and
  // drops all gradients, those of earlier microbatches among them. The next
  // step then trains as if this one had not begun. Handles of finalize_backward
  // become invalid. Errors (c10::Error): another module than the root; during a
  // backward; another root with the same communication has a pending handle.
  void reset_iter_state();
  // false: gradients stay unreduced, full size, on each rank.
  void set_requires_gradient_sync(bool value, bool recurse = true);
  // HSDP. false: reduce-scatter, and keep the sum until it is true again.
  void set_requires_all_reduce(bool value, bool recurse = true);
  // true: parameters that got no gradient in this rank's backward count as zero
  // when the rest of their group is reduced, as in Megatron. Needed where ranks
  // use different parameters in one group (experts without tokens); without it,
  // that is an error. Such a group is reduced when each backward ends, whether
  // or not it was used. Set it on every rank.
  void set_reduce_scatter_unused_params(bool value, bool recurse = true);
  // As set_reduce_scatter_unused_params, under its older name.
  void set_zero_missing_gradients(bool value, bool recurse = true);
  void set_reshard_after_forward(bool value, bool recurse = true);
  void set_reshard_after_backward(bool value, bool recurse = true);
  // true: the memory of gathered parameters is kept while they are sharded, so
  // that it has the same address each time (for a captured CUDA graph). Raw
  // pointers into parameters that are sharded are refused nevertheless. A
  // change of the shards' device or dtype, and false, free it.
  void set_keep_unsharded_storage(bool keep, bool recurse = true);

  // The modules that this one gathers, in this order, once this module's own
  // parameters have arrived, instead of the implicit ones.
  void set_modules_to_forward_prefetch(const std::vector<FSDPModule>& modules);
  void set_modules_to_backward_prefetch(const std::vector<FSDPModule>& modules);

  // This and the next two are refused (c10::Error) for a module that has
  // parameters on several meshes.
  void set_custom_all_gather(CustomAllGather custom);
  void set_custom_reduce_scatter(CustomReduceScatter custom);
  // Called with the group's reduced gradients, flat: after the reduce-scatter,
  // or with HSDP after the all-reduce, and before a division that follows the
  // reduction (float16, and forced sums). With HSDP a `stream` is refused
  // (c10::ValueError). Without HSDP the hook runs on it, and the rest of the
  // reduction follows there.
  void set_all_reduce_hook(std::function<void(at::Tensor)> hook,
                           std::optional<c10::Stream> stream = {});
  // For the root: the next forward's gathers wait for this event, not for all
  // work issued so far. Recorded after the optimizer's step; consumed once.
  void set_post_optim_event(std::shared_ptr<c10::Event> event);

  // Gradients are divided by this, not by the rank count.
  void set_gradient_divide_factor(double factor);
  // As set_gradient_divide_factor, under its older name.
  void set_reduce_scatter_divide_factor(double factor);
  // Collectives only sum; division is done before and after.
  void set_force_sum_reduction_for_comms(bool value);
  // How many reductions' inputs there may be at once, at least 1, the default:
  // the next reduction's gradients are then copied in once the last reduction
  // has read its input. More costs memory, and on a GPU helps where
  // communication takes longer than the backward that hides it. The largest
  // number among the groups below one root, or below roots with one context, is
  // in effect.
  void set_reduce_scatter_max_input_buffers(int num_buffers,
                                            bool recurse = true);
  void set_reduce_scatter_max_input_buffers(bool, bool = true) = delete;
  // true: gradients are reduce-scattered in a process group of their own, one
  // for each set of ranks. On a GPU a group's collectives run one after the
  // other; then those of backward need not wait for reductions. Collective over
  // the ranks that share a copy of the parameters.
  void set_separate_reduce_scatter_group(bool enable = true,
                                         bool recurse = true);
  // false: backward does not gather this group (embeddings do not need it).
  void set_unshard_in_backward(bool value);
  // Staging buffers come from the process group's own allocator. Refused after
  // a custom collective was set; one that is set later gets ordinary memory,
  // and the other collective keeps the allocator's.
  void set_allocate_memory_from_process_group_for_comm(bool value);

  // The module's name below the root; empty for the root itself. The names in a
  // list of modules are joined with ", ".
  std::string name() const;
  bool is_root() const;
  // Whether the parameters of this module's own group are gathered now.
  bool is_unsharded() const;

  friend bool operator==(const FSDPModule&, const FSDPModule&) = default;

  // For use in this library.
  explicit FSDPModule(std::shared_ptr<FsdpState> state)
      : state_(std::move(state)) {}
  const std::shared_ptr<FsdpState>& state() const { return state_; }

 private:
  void CheckIsRoot(const char* function) const;
  void CheckHasOneGroup(const char* function) const;

  std::shared_ptr<FsdpState> state_;
};

// A sharded module's handle; absent when fully_shard was not called on it.
// `get` throws c10::ValueError instead.
std::optional<FSDPModule> find_fsdp_module(const torch::nn::Module& module);
FSDPModule get_fsdp_module(const torch::nn::Module& module);
// Handles to all sharded modules in `module`, itself first, in the order of
// modules().
std::vector<FSDPModule> fsdp_modules(const torch::nn::Module& module);

// Makes roots that never run inside one another (pipeline stages) share the
// first root's communication streams and buffers.
void share_comm_ctx(const std::vector<FSDPModule>& roots);

// Gradient accumulation: while it lives, no gradients of `module` are reduced.
class NoSync {
 public:
  explicit NoSync(FSDPModule module);
  ~NoSync();
  NoSync(const NoSync&) = delete;
  NoSync& operator=(const NoSync&) = delete;

 private:
  FSDPModule module_;
};

}  // namespace fsdp

#endif  // FSDP_FSDP_MODULE_H_
