// SPDX-License-Identifier: Apache-2.0

#include "fsdp/fsdp_module.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "fsdp/engine/fsdp_state.h"
#include "fsdp/engine/module_access.h"
#include "fsdp/mesh/process_group.h"

namespace fsdp {
namespace {

FsdpParamGroup::PrefetchList MakePrefetchList(
    const std::vector<FSDPModule>& modules) {
  FsdpParamGroup::PrefetchList groups;
  for (const FSDPModule& module : modules) {
    // The first group of a call brings the others.
    const auto& own = module.state()->groups();
    groups.push_back(own.empty() ? nullptr : own.front());
  }
  return groups;
}

// Calls `change` with this module's groups, or with all below this module.
template <typename Change>
void ForGroups(FsdpState& state, bool recurse, const Change& change) {
  const std::vector<FsdpState*> states =
      recurse ? state.Tree() : std::vector<FsdpState*>{&state};
  for (const FsdpState* one : states) {
    for (const auto& group : one->groups()) change(*group);
  }
}

}  // namespace

void UnshardHandle::wait() {
  const std::shared_ptr<FsdpState> state = std::move(state_);
  if (!state) return;
  for (const auto& group : state->groups()) {
    if (group->gather_pending()) group->WaitForUnshard(/*in_backward=*/false);
  }
}

void GradientReductionHandle::wait() {
  if (state_ == nullptr) return;
  state_->scheduler().WaitForFinalization(finalization_);
  state_ = nullptr;
}

UnshardHandle FSDPModule::unshard(bool async) {
  for (const auto& group : state_->groups()) {
    if (group->ShardsChanged()) reshard();
    if (group->sharding() != FsdpParamGroup::Sharding::kUnsharded &&
        !group->gather_pending()) {
      group->CheckGatherInStep("unshard");
      state_->scheduler().comm().BeginGathers(nullptr);
      group->Unshard();
    }
    group->set_kept_by_user(true);
  }
  UnshardHandle handle(state_->groups().empty() ? nullptr : state_);
  if (!async) handle.wait();
  return handle;
}

void FSDPModule::reshard() {
  for (const auto& group : state_->groups()) {
    group->DropGather();
    group->Reshard(/*after_forward=*/false);
  }
}

void FSDPModule::set_is_last_backward(bool is_last_backward) {
  state_->scheduler().set_is_last_backward(is_last_backward);
}

void FSDPModule::set_manual_backward_finalization(bool enabled) {
  CheckIsRoot("set_manual_backward_finalization");
  state_->scheduler().set_manual_finalization(enabled);
}

GradientReductionHandle FSDPModule::finalize_backward(bool async) {
  CheckIsRoot("finalize_backward");
  std::shared_ptr<Finalization> finalization =
      state_->scheduler().FinalizeBackward(async);
  if (finalization == nullptr) return {};
  return {state_, std::move(finalization)};
}

void FSDPModule::reset_iter_state() {
  CheckIsRoot("reset_iter_state");
  state_->scheduler().ResetIterState();
}

void FSDPModule::CheckHasOneGroup(const char* function) const {
  TORCH_CHECK(state_->groups().size() <= 1, "fsdp: ", function,
              " is for parameters on one mesh, but those of '", name(),
              "' are on ", state_->groups().size(),
              " (shard_placement_fn); shard them in separate calls");
}

void FSDPModule::CheckIsRoot(const char* function) const {
  TORCH_CHECK(is_root(), "fsdp: ", function, " is for the root, not for '",
              name(), "'");
}

void FSDPModule::set_requires_gradient_sync(bool value, bool recurse) {
  ForGroups(*state_, recurse, [value](FsdpParamGroup& group) {
    group.settings().requires_gradient_sync = value;
    group.settings().requires_all_reduce = value;
  });
}

void FSDPModule::set_requires_all_reduce(bool value, bool recurse) {
  ForGroups(*state_, recurse, [value](FsdpParamGroup& group) {
    group.settings().requires_all_reduce = value;
  });
}

void FSDPModule::set_reduce_scatter_unused_params(bool value, bool recurse) {
  ForGroups(*state_, recurse, [value](FsdpParamGroup& group) {
    group.settings().reduce_scatter_unused_params = value;
  });
}

void FSDPModule::set_zero_missing_gradients(bool value, bool recurse) {
  set_reduce_scatter_unused_params(value, recurse);
}

void FSDPModule::set_reshard_after_forward(bool value, bool recurse) {
  ForGroups(*state_, recurse, [](FsdpParamGroup& group) {
    TORCH_CHECK(group.config().mesh.shard_axis.has_value(),
                "fsdp: set_reshard_after_forward, but nothing is sharded for "
                "the ",
                group.Describe("copies"), ", which replicate made");
  });
  ForGroups(*state_, recurse, [value](FsdpParamGroup& group) {
    group.settings().reshard_after_forward = ReshardAfterForward(value);
    group.ForgetPostForwardGroup();
  });
}

void FSDPModule::set_reshard_after_backward(bool value, bool recurse) {
  ForGroups(*state_, recurse, [value](FsdpParamGroup& group) {
    group.settings().reshard_after_backward = value;
  });
}

void FSDPModule::set_keep_unsharded_storage(bool keep, bool recurse) {
  ForGroups(*state_, recurse, [keep](FsdpParamGroup& group) {
    group.set_keep_unsharded_storage(keep);
  });
}

void FSDPModule::set_modules_to_forward_prefetch(
    const std::vector<FSDPModule>& modules) {
  ForGroups(*state_, false, [&modules](FsdpParamGroup& group) {
    group.forward_prefetch() = MakePrefetchList(modules);
  });
}

void FSDPModule::set_modules_to_backward_prefetch(
    const std::vector<FSDPModule>& modules) {
  ForGroups(*state_, false, [&modules](FsdpParamGroup& group) {
    group.backward_prefetch() = MakePrefetchList(modules);
  });
}

void FSDPModule::set_custom_all_gather(CustomAllGather custom) {
  CheckHasOneGroup("set_custom_all_gather");
  ForGroups(*state_, false, [&](FsdpParamGroup& group) {
    group.settings().custom_all_gather = std::move(custom);
  });
}

void FSDPModule::set_custom_reduce_scatter(CustomReduceScatter custom) {
  CheckHasOneGroup("set_custom_reduce_scatter");
  ForGroups(*state_, false, [&](FsdpParamGroup& group) {
    group.settings().custom_reduce_scatter = std::move(custom);
  });
}

void FSDPModule::set_all_reduce_hook(std::function<void(at::Tensor)> hook,
                                     std::optional<c10::Stream> stream) {
  CheckHasOneGroup("set_all_reduce_hook");
  ForGroups(*state_, false, [&](FsdpParamGroup& group) {
    TORCH_CHECK_VALUE(!stream.has_value() || !group.config().replicate_group,
                      "fsdp: stream cannot be set when using native HSDP");
    group.settings().all_reduce_hook = std::move(hook);
    group.settings().all_reduce_hook_stream = stream;
  });
}

void FSDPModule::set_post_optim_event(std::shared_ptr<c10::Event> event) {
  CheckIsRoot("set_post_optim_event");
  state_->scheduler().set_post_optim_event(std::move(event));
}

void FSDPModule::set_gradient_divide_factor(double factor) {
  TORCH_CHECK_VALUE(factor > 0, "fsdp: gradient divide factor ", factor,
                    " is not positive");
  ForGroups(*state_, false, [factor](FsdpParamGroup& group) {
    group.settings().divide_factor = factor;
  });
}

void FSDPModule::set_reduce_scatter_divide_factor(double factor) {
  set_gradient_divide_factor(factor);
}

void FSDPModule::set_force_sum_reduction_for_comms(bool value) {
  ForGroups(*state_, false, [value](FsdpParamGroup& group) {
    group.settings().force_sum_reduction = value;
  });
}

void FSDPModule::set_reduce_scatter_max_input_buffers(int num_buffers,
                                                      bool recurse) {
  TORCH_CHECK_VALUE(num_buffers >= 1, "fsdp: ", num_buffers,
                    " input buffers for reduce-scatters of '", name(),
                    "'; there must be at least 1");
  ForGroups(*state_, recurse, [num_buffers](FsdpParamGroup& group) {
    group.settings().reduce_scatter_max_input_buffers =
        static_cast<size_t>(num_buffers);
  });
  state_->scheduler().ResolveInputBuffers();
}

void FSDPModule::set_separate_reduce_scatter_group(bool enable, bool recurse) {
  std::map<std::vector<int64_t>, ProcessGroup> by_ranks;
  ForGroups(*state_, recurse, [enable, &by_ranks](FsdpParamGroup& group) {
    const ProcessGroup& shards = group.config().shard_group;
    if (!enable || shards->getSize() == 1) {
      group.set_reduce_scatter_group(nullptr);
      return;
    }
    ProcessGroup& separate = by_ranks[get_process_group_ranks(shards)];
    if (!separate) separate = second_group(shards);
    group.set_reduce_scatter_group(separate);
  });
}

void FSDPModule::set_unshard_in_backward(bool value) {
  ForGroups(*state_, false, [value](FsdpParamGroup& group) {
    group.settings().unshard_in_backward = value;
  });
}

void FSDPModule::set_allocate_memory_from_process_group_for_comm(bool value) {
  ForGroups(*state_, false, [value](FsdpParamGroup& group) {
    TORCH_CHECK(!value || (!group.settings().custom_all_gather &&
                           !group.settings().custom_reduce_scatter),
                "fsdp: buffers from the process group and custom collectives "
                "exclude one another");
    group.settings().allocate_from_process_group = value;
  });
}

std::string FSDPModule::name() const { return state_->name(); }

bool FSDPModule::is_root() const { return state_->is_root(); }

bool FSDPModule::is_unsharded() const {
  const auto& groups = state_->groups();
  return !groups.empty() &&
         std::all_of(groups.begin(), groups.end(), [](const auto& group) {
           return group->sharding() == FsdpParamGroup::Sharding::kUnsharded;
         });
}

std::optional<FSDPModule> find_fsdp_module(const torch::nn::Module& module) {
  std::shared_ptr<FsdpState> state = FsdpState::Find(module);
  if (!state) return std::nullopt;
  return FSDPModule(std::move(state));
}

FSDPModule get_fsdp_module(const torch::nn::Module& module) {
  std::optional<FSDPModule> found = find_fsdp_module(module);
  TORCH_CHECK_VALUE(found.has_value(), "fully_shard was not applied to this ",
                    type_name(module));
  return *found;
}

std::vector<FSDPModule> fsdp_modules(const torch::nn::Module& module) {
  std::vector<FSDPModule> found;
  for (const auto& below : module.modules()) {
    std::optional<FSDPModule> handle = find_fsdp_module(*below);
    if (handle.has_value() &&
        std::find(found.begin(), found.end(), *handle) == found.end()) {
      found.push_back(*handle);
    }
  }
  return found;
}

void share_comm_ctx(const std::vector<FSDPModule>& roots) {
  for (const FSDPModule& root : roots) {
    TORCH_CHECK_VALUE(root.is_root(), "fsdp: share_comm_ctx takes roots, and '",
                      root.name(), "' is not a root");
    root.state()->scheduler().set_comm(
        roots.front().state()->scheduler().shared_comm());
  }
}

NoSync::NoSync(FSDPModule module) : module_(std::move(module)) {
  module_.set_requires_gradient_sync(false);
}

NoSync::~NoSync() { module_.set_requires_gradient_sync(true); }

}  // namespace fsdp
