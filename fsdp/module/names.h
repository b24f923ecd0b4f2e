// SPDX-License-Identifier: Apache-2.0
// Parameter, buffer and optimizer state names, as state dicts and checkpoints
// spell them: "layers.0.weight". They are the same whether or not the module is
// sharded or checkpoints activations. Pure; for the thread that trains.
#ifndef FSDP_MODULE_NAMES_H_
#define FSDP_MODULE_NAMES_H_

#include <string>
#include <unordered_map>
#include <vector>

#include "ATen/core/Tensor.h"
#include "torch/nn/module.h"
#include "torch/optim/optimizer.h"

namespace fsdp {

// In the order of named_parameters(); a tied parameter once, by the first name
// (find_tied_parameters has the others).
std::vector<std::string> parameter_names(const torch::nn::Module& module);
// The same for all buffers; torch::nn has no buffers that are not saved.
std::vector<std::string> buffer_names(const torch::nn::Module& module);

// Maps a module's tensors to names. Holds no tensors: make a new one when the
// module changes, for instance by fully_shard.
class NameMap {
 public:
  explicit NameMap(const torch::nn::Module& module);

  // Null for a tensor that the module has not registered.
  const std::string* find(const at::Tensor& tensor) const;
  // As find, but throws c10::ValueError. In a sharded module, the layer's
  // member (`linear->weight`) has the same name as the shard.
  const std::string& name_of(const at::Tensor& tensor) const;

 private:
  std::unordered_map<const c10::TensorImpl*, std::string> names_;
};

// The parameter names in each optimizer group. Throws c10::ValueError, which
// names the parameter's place, for a parameter that is not the module's
// (usually the optimizer was built before fully_shard), and for one that is
// listed twice, because it is tied.
std::vector<std::vector<std::string>> optimizer_parameter_names(
    const torch::optim::Optimizer& optimizer, const torch::nn::Module& module);

}  // namespace fsdp

#endif  // FSDP_MODULE_NAMES_H_
