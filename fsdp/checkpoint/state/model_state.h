// SPDX-License-Identifier: Apache-2.0
// Makes a module's state dict, and plans how to set a module from one: the core
// of get_model_state_dict and set_model_state_dict. No communication. For the
// thread that trains.
#ifndef FSDP_CHECKPOINT_STATE_MODEL_STATE_H_
#define FSDP_CHECKPOINT_STATE_MODEL_STATE_H_

#include <vector>

#include "absl/status/statusor.h"
#include "fsdp/checkpoint/state/state_dict_options.h"
#include "fsdp/checkpoint/state/state_value.h"
#include "fsdp/checkpoint/state/tensor_copies.h"
#include "torch/nn/module.h"

namespace fsdp {

// Tensors alias the module's; sharded ones are DTensors.
absl::StatusOr<StateDict> ModelState(const torch::nn::Module& module,
                                     const StateDictOptions& options);

struct ModelPlan {
  std::vector<TensorCopy> copies;
  IncompatibleKeys keys;
};

// Adds every error to `mismatches`. The plan holds handles of the tensors, so
// `state` need not outlive it.
absl::StatusOr<ModelPlan> PlanModel(const torch::nn::Module& module,
                                    const StateDict& state,
                                    const StateDictOptions& options,
                                    const CopyRules& rules,
                                    Mismatches& mismatches);

}  // namespace fsdp

#endif  // FSDP_CHECKPOINT_STATE_MODEL_STATE_H_
