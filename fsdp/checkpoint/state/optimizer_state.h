// SPDX-License-Identifier: Apache-2.0
// Makes an optimizer's state dict, and plans how to set an optimizer from one:
// the core of get_optimizer_state_dict and set_optimizer_state_dict. No
// communication. For the thread that trains.
#ifndef FSDP_CHECKPOINT_STATE_OPTIMIZER_STATE_H_
#define FSDP_CHECKPOINT_STATE_OPTIMIZER_STATE_H_

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "fsdp/checkpoint/state/optimizer_kind.h"
#include "fsdp/checkpoint/state/state_dict_options.h"
#include "fsdp/checkpoint/state/state_value.h"
#include "fsdp/checkpoint/state/tensor_copies.h"
#include "torch/nn/module.h"
#include "torch/optim/optimizer.h"

namespace fsdp {

// Nested; tensors alias. `step` is a step_number.h tensor if the optimizer
// counts in an integer. Parameters without state get the state before a first
// step.
absl::StatusOr<StateDict> OptimizerState(const torch::nn::Module& module,
                                         torch::optim::Optimizer& optimizer);

// The changes to an optimizer: copies of tensors, then Commit.
class OptimizerPlan {
 public:
  // Copies into the optimizer's state, or into state that Commit gives it.
  std::vector<TensorCopy> copies;

  // Sets hyperparameters and state; call it after the copies.
  absl::Status Commit(torch::optim::Optimizer& optimizer) &&;

 private:
  friend class OptimizerPlanner;

  struct NewState {
    void* key = nullptr;  // the parameter's key in the optimizer's state
    const OptimizerKind* kind = nullptr;
    std::unique_ptr<ParamState> state;
    at::Tensor step;  // undefined unless the step count is set from it
  };

  // By optimizer group:
  std::vector<const OptimizerKind*> kinds_;
  std::vector<StateDict> hyperparameters_;
  std::vector<NewState> states_;
};

// Adds every error to `mismatches`; the optimizer stays as it is.
absl::StatusOr<OptimizerPlan> PlanOptimizer(
    const torch::nn::Module& module, const torch::optim::Optimizer& optimizer,
    const StateDict& state, const StateDictOptions& options,
    const CopyRules& rules, Mismatches& mismatches);

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_STATE_OPTIMIZER_STATE_H_
