// SPDX-License-Identifier: Apache-2.0
// fully_shard: FSDP2 for unmodified torch::nn modules. Names and meaning are
// PyTorch's (torch/distributed/fsdp); fsdp/README.md lists the differences. For
// the thread that trains; every rank must make the same calls in the same
// order.
#ifndef FSDP_FULLY_SHARD_H_
#define FSDP_FULLY_SHARD_H_

#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "ATen/core/Tensor.h"
#include "fsdp/engine/fully_shard_options.h"
#include "fsdp/fsdp_module.h"
#include "fsdp/mesh/dtensor.h"
#include "torch/nn/module.h"
#include "torch/nn/pimpl.h"

namespace fsdp {

// Shards the parameters of `module` that no earlier call on a module inside it
// took, as one group: one all-gather before use, one reduce-scatter after
// backward. Call it on a model's blocks first and on the model last. Everything
// is validated before anything changes; on an error the module is as it was.
// Collective when an int reshard_after_forward needs new groups. Errors:
// c10::ValueError, c10::NotImplementedError, c10::Error.
FSDPModule fully_shard(const std::shared_ptr<torch::nn::Module>& module,
                       const FullyShardOptions& options = {});
// Several modules as one group (PyTorch's list of modules). A module inside
// another listed module is ignored.
FSDPModule fully_shard(
    const std::vector<std::shared_ptr<torch::nn::Module>>& modules,
    const FullyShardOptions& options = {});
template <typename Impl>
FSDPModule fully_shard(const torch::nn::ModuleHolder<Impl>& module,
                       const FullyShardOptions& options = {}) {
  return fully_shard(std::static_pointer_cast<torch::nn::Module>(module.ptr()),
                     options);
}

// One element in fully_shard({norm, head}): anything that holds a module.
class ListedModule {
 public:
  template <typename Impl>
  ListedModule(const torch::nn::ModuleHolder<Impl>& module)  // NOLINT
      : module_(module.ptr()) {}
  template <typename Impl>
  ListedModule(const std::shared_ptr<Impl>& module)  // NOLINT
      requires std::is_base_of_v<torch::nn::Module, Impl> : module_(module) {}

  const std::shared_ptr<torch::nn::Module>& ptr() const { return module_; }

 private:
  std::shared_ptr<torch::nn::Module> module_;
};
FSDPModule fully_shard(std::initializer_list<ListedModule> modules,
                       const FullyShardOptions& options = {});
// A module by reference must be owned by a shared_ptr, because the engine must
// know when it is gone; one on the stack is refused (c10::ValueError).
FSDPModule fully_shard(torch::nn::Module& module,
                       const FullyShardOptions& options = {});

// The parameters as DTensors, in the order and under the names of
// named_parameters(). `dtensor_of` is absent for a plain tensor.
std::vector<std::pair<std::string, DTensor>> named_parameters(
    const torch::nn::Module& module);
std::vector<DTensor> parameters(const torch::nn::Module& module);
std::optional<DTensor> dtensor_of(const at::Tensor& parameter);

}  // namespace fsdp

#endif  // FSDP_FULLY_SHARD_H_
