// SPDX-License-Identifier: Apache-2.0
// Access to torch::nn::Module's private members: the registries that hold
// parameters, buffers and children. The engine replaces parameters with shards,
// wrap policies walk children, and checkpoints look for shared tensors; this is
// the only file that bypasses the class's interface. For the thread that
// trains.
#ifndef FSDP_ENGINE_MODULE_ACCESS_H_
#define FSDP_ENGINE_MODULE_ACCESS_H_

#include <memory>
#include <string>
#include <vector>

#include "ATen/core/Tensor.h"
#include "torch/nn/module.h"
#include "torch/ordered_dict.h"

namespace torch::nn {
class AnyModule;
struct AnyModulePlaceholder;
class ModuleListImpl;
class SequentialImpl;
}  // namespace torch::nn

namespace fsdp {

// The registries themselves, not copies: assigning to an entry replaces the
// tensor registered under that name (not the class's member). They live as long
// as the module.
torch::OrderedDict<std::string, at::Tensor>& ParameterRegistry(
    torch::nn::Module& module);
torch::OrderedDict<std::string, at::Tensor>& BufferRegistry(
    torch::nn::Module& module);
torch::OrderedDict<std::string, std::shared_ptr<torch::nn::Module>>&
ChildRegistry(torch::nn::Module& module);

const torch::OrderedDict<std::string, at::Tensor>& ParameterRegistry(
    const torch::nn::Module& module);
const torch::OrderedDict<std::string, at::Tensor>& BufferRegistry(
    const torch::nn::Module& module);
const torch::OrderedDict<std::string, std::shared_ptr<torch::nn::Module>>&
ChildRegistry(const torch::nn::Module& module);

// The content of an AnyModule, a child of a Sequential; null when it is empty.
std::unique_ptr<torch::nn::AnyModulePlaceholder>& AnyModuleContent(
    torch::nn::AnyModule& module);

// A container's elements, in the order of children().
std::vector<std::shared_ptr<torch::nn::Module>>& SequentialItems(
    torch::nn::ModuleListImpl& list);
std::vector<torch::nn::AnyModule>& SequentialItems(
    torch::nn::SequentialImpl& sequence);

// Makes Module::clone() of `module` fail, because the copy would have shards
// where the code expects whole parameters.
void RefuseClone(torch::nn::Module& module);

// Whether the module only holds others: ModuleList, ModuleDict, ParameterList,
// ParameterDict. Sequential has a forward and is not one of them.
bool is_container_without_forward(const torch::nn::Module& module);

// The type as torch names it: "torch::nn::LinearImpl", "Block".
std::string type_name(const torch::nn::Module& module);

}  // namespace fsdp

#endif  // FSDP_ENGINE_MODULE_ACCESS_H_
