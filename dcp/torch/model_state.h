// The state dict of a module, and the plan that gives a module the values of
// one: what get_ and set_model_state_dict are made of. No communication. For
// the thread that trains.
#ifndef DCP_TORCH_MODEL_STATE_H_
#define DCP_TORCH_MODEL_STATE_H_

#include <vector>

#include "absl/status/statusor.h"
#include "dcp/torch/state_dict.h"
#include "dcp/torch/state_value.h"
#include "dcp/torch/tensor_copies.h"
#include "torch/nn/module.h"

namespace dcp {

// Aliases; DTensors where sharded.
absl::StatusOr<StateDict> ModelState(const torch::nn::Module& module,
                                     const StateDictOptions& options);

struct ModelPlan {
  std::vector<TensorCopy> copies;
  IncompatibleKeys keys;
};

// Adds what is wrong to `mismatches`. `state` must outlive nothing: the plan
// holds handles of its tensors.
absl::StatusOr<ModelPlan> PlanModel(const torch::nn::Module& module,
                                    const StateDict& state,
                                    const StateDictOptions& options,
                                    const CopyRules& rules,
                                    Mismatches& mismatches);

}  // namespace dcp

#endif  // DCP_TORCH_MODEL_STATE_H_
