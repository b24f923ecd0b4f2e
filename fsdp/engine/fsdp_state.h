// FsdpState: one fully_shard call: its modules, its group of parameters if it
// took any, its place in the tree of calls, and what it prefetches. FSDPModule
// is the user's handle for it. Lives as long as one of its shards or handles;
// for the thread that trains.
#ifndef FSDP_ENGINE_FSDP_STATE_H_
#define FSDP_ENGINE_FSDP_STATE_H_

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "fsdp/engine/fsdp_param_group.h"
#include "fsdp/engine/state_context.h"
#include "torch/nn/module.h"

namespace fsdp {

class FsdpState : public std::enable_shared_from_this<FsdpState> {
 public:
  explicit FsdpState(std::vector<std::weak_ptr<torch::nn::Module>> modules,
                     ReshardAfterForward reshard_after_forward);
  ~FsdpState();
  FsdpState(const FsdpState&) = delete;
  FsdpState& operator=(const FsdpState&) = delete;

  // The state of a module that is alive; null when there is none.
  static std::shared_ptr<FsdpState> Find(const torch::nn::Module& module);
  // Makes Find find this.
  void Register();

  // Makes the calls inside this one's modules its children: they share its
  // context and get new names.
  void AdoptChildren();

  const std::vector<std::weak_ptr<torch::nn::Module>>& modules() const {
    return modules_;
  }
  StateContext& context() const { return *context_; }
  std::shared_ptr<StateContext> shared_context() const { return context_; }
  void set_context(std::shared_ptr<StateContext> context) {
    context_ = std::move(context);
  }
  // Null when the call took no parameters.
  FsdpParamGroup* group() const { return group_.get(); }
  void set_group(std::unique_ptr<FsdpParamGroup> group) {
    group_ = std::move(group);
  }

  bool is_root() const { return parent_ == nullptr; }
  bool IsAbove(const FsdpState& other) const;
  // This state and those below it, itself first.
  std::vector<FsdpState*> Tree();
  const std::string& name() const { return name_; }

  // Whether this group is freed after forward: as requested, or, if unset,
  // unless it is the root.
  bool ReshardsAfterForward() const;
  void set_reshard_after_forward(bool value) {
    reshard_after_forward_ = ReshardAfterForward(value);
  }

  // Empty: implicit prefetching.
  std::vector<std::weak_ptr<FsdpState>> forward_prefetch;
  std::vector<std::weak_ptr<FsdpState>> backward_prefetch;
  // Whether some call went through fsdp::forward or fsdp::Wrapped.
  bool seen_at_boundary = false;

 private:
  void NameGroups();

  std::vector<std::weak_ptr<torch::nn::Module>> modules_;
  std::shared_ptr<StateContext> context_;  // of all states below one root
  std::unique_ptr<FsdpParamGroup> group_;
  FsdpState* parent_ = nullptr;
  std::string name_;
  ReshardAfterForward reshard_after_forward_;
};

}  // namespace fsdp

#endif  // FSDP_ENGINE_FSDP_STATE_H_
