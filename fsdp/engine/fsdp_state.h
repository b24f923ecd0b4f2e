// SPDX-License-Identifier: Apache-2.0
// FsdpState: one fully_shard call: the modules, the groups of parameters, one
// for each mesh that it took any on, and the place in the tree of calls.
// FSDPModule is the user's handle for it. Lives as long as any shard or handle
// of the call; for the thread that trains.
#ifndef FSDP_ENGINE_FSDP_STATE_H_
#define FSDP_ENGINE_FSDP_STATE_H_

#include <memory>
#include <string>
#include <vector>

#include "fsdp/engine/comm/comm_context.h"
#include "fsdp/engine/fsdp_param_group.h"
#include "fsdp/engine/step_scheduler.h"
#include "torch/nn/module.h"

namespace fsdp {

class FsdpState : public std::enable_shared_from_this<FsdpState> {
 public:
  FsdpState(std::vector<std::weak_ptr<torch::nn::Module>> modules,
            std::shared_ptr<CommContext> comm);
  ~FsdpState();
  FsdpState(const FsdpState&) = delete;
  FsdpState& operator=(const FsdpState&) = delete;

  // The state of a living module; null when there is none.
  static std::shared_ptr<FsdpState> Find(const torch::nn::Module& module);
  // Makes Find find this.
  void Register();

  // Makes the calls inside this one's modules its children: they share this
  // scheduler and get new names.
  void AdoptChildren();

  const std::vector<std::weak_ptr<torch::nn::Module>>& modules() const {
    return modules_;
  }
  StepScheduler& scheduler() const { return *tree_->scheduler; }
  // Empty when the call took no parameters.
  const std::vector<std::shared_ptr<FsdpParamGroup>>& groups() const {
    return groups_;
  }
  // The only one; null when there is none. Throws c10::Error for several.
  FsdpParamGroup* group() const;
  void set_groups(std::vector<std::shared_ptr<FsdpParamGroup>> groups) {
    groups_ = std::move(groups);
  }

  bool is_root() const { return parent_ == nullptr; }
  // This state and those below it, itself first.
  std::vector<FsdpState*> Tree();
  const std::string& name() const { return name_; }

 private:
  // Shared by the calls below one root.
  struct SharedTree {
    // Root first, then in the order of modules().
    std::vector<FsdpState*> states;
    // A backward that is running owns it too.
    std::shared_ptr<StepScheduler> scheduler;
  };

  bool IsAbove(const FsdpState& other) const;
  void Leave();
  void NameGroups();
  void PlaceGroups();

  std::vector<std::weak_ptr<torch::nn::Module>> modules_;
  std::shared_ptr<SharedTree> tree_;  // owned by all states below one root
  // Owned by this state; other groups' prefetch lists refer to them.
  std::vector<std::shared_ptr<FsdpParamGroup>> groups_;
  FsdpState* parent_ = nullptr;
  std::string name_;
};

}  // namespace fsdp

#endif  // FSDP_ENGINE_FSDP_STATE_H_
