// SPDX-License-Identifier: Apache-2.0
// keep_modules: reduces a whole model to the part that one pipeline stage runs,
// by removing the other modules. Modules that stay keep their names
// ("layers.5.weight" on the second stage), so state dicts, checkpoints and
// optimizers need to know nothing about stages. It comes before
// parallelize_module and fully_shard, and before weights are initialised or
// loaded. For the thread that trains.
#ifndef FSDP_PARALLEL_PIPELINE_KEEP_MODULES_H_
#define FSDP_PARALLEL_PIPELINE_KEEP_MODULES_H_

#include <functional>
#include <memory>
#include <string>
#include <type_traits>
#include <vector>

#include "torch/nn/module.h"
#include "torch/nn/pimpl.h"

namespace fsdp {

// A member of the model's class through which its forward calls a child:
// `&model->norm`, where `norm` is a torch::nn::LayerNorm or a shared_ptr to a
// module. The model must outlive it.
class ModuleMember {
 public:
  template <typename Impl>
  ModuleMember(torch::nn::ModuleHolder<Impl>* holder)  // NOLINT
      : module_([holder] {
          return holder->is_empty() ? nullptr : holder->ptr().get();
        }),
        reset_([holder] { *holder = torch::nn::ModuleHolder<Impl>(nullptr); }) {
  }
  template <typename Impl>
  ModuleMember(std::shared_ptr<Impl>* pointer)  // NOLINT
      requires std::is_base_of_v<torch::nn::Module, Impl>
      : module_([pointer] { return pointer->get(); }),
        reset_([pointer] { pointer->reset(); }) {}

  // The module that the member holds; null when it is empty.
  const torch::nn::Module* module() const { return module_(); }
  // Makes the member empty.
  void reset() const { reset_(); }

 private:
  std::function<const torch::nn::Module*()> module_;
  std::function<void()> reset_;
};

// Keeps the modules in `model` that are called `names`, with everything in them
// and the modules around them, and removes the other ones:
//
//   - A ModuleList, ModuleDict or Sequential loses elements; the others keep
//     their names but move up in the container, so a loop over it, or its
//     forward, runs those that are left. A list or dict that keeps nothing
//     stays, empty.
//   - Any other child leaves the registry. The member of the model's class that
//     holds it becomes empty if `members` lists it, and must be listed:
//     otherwise the module would stay in memory, and forward would run it.
//     forward asks whether it is there, as TorchTitan's models do:
//
//       torch::Tensor h = embed ? embed(tokens) : tokens;
//
// Parameters and buffers that are registered on a module around others, such as
// the model itself, stay on every stage. `members` may also list members that
// hold kept modules, so the same list works on every stage.
//
// Everything is checked before anything changes. Throws c10::ValueError for a
// name that the model does not have, a removed module that something other than
// the model and `members` holds, a member that holds another model's module, a
// parameter that a kept and a removed module share (each stage would train a
// separate copy), and a model that is sharded or parallelized already.
void keep_modules(torch::nn::Module& model,
                  const std::vector<std::string>& names,
                  const std::vector<ModuleMember>& members = {});

}  // namespace fsdp

#endif  // FSDP_PARALLEL_PIPELINE_KEEP_MODULES_H_
