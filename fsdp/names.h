// Names of what a module and its optimizers hold, as state dicts and
// checkpoints spell them: "layers.0.weight", and optim state keyed by it. The
// same whether or not the module is sharded or checkpoints activations. Pure;
// for the thread that trains.
#ifndef FSDP_NAMES_H_
#define FSDP_NAMES_H_

#include <string>
#include <unordered_map>
#include <vector>

#include "ATen/core/Tensor.h"
#include "torch/nn/module.h"
#include "torch/optim/optimizer.h"

namespace fsdp {

// In the order of named_parameters(); a tied parameter once, by its first name
// (find_tied_parameters has the others).
std::vector<std::string> parameter_names(const torch::nn::Module& module);
// Likewise; all buffers, as torch::nn knows none that are not saved.
std::vector<std::string> buffer_names(const torch::nn::Module& module);

// From tensors of a module to names. Holds no tensors: make it anew when the
// module changes, as fully_shard changes it.
class NameMap {
 public:
  explicit NameMap(const torch::nn::Module& module);

  // Null for a tensor that the module has not registered.
  const std::string* find(const at::Tensor& tensor) const;
  // Throws c10::ValueError instead. Of a sharded module, the layer's member
  // (`linear->weight`) has the name of its shard.
  const std::string& name_of(const at::Tensor& tensor) const;

 private:
  std::unordered_map<const c10::TensorImpl*, std::string> names_;
};

// The names of the parameters that each of the optimizer's groups steps. Throws
// c10::ValueError, and says which, for one that is none of the module's: as a
// rule the optimizer was built before fully_shard.
std::vector<std::vector<std::string>> optimizer_parameter_names(
    const torch::optim::Optimizer& optimizer, const torch::nn::Module& module);

}  // namespace fsdp

#endif  // FSDP_NAMES_H_
