// What torch::nn::Module keeps to itself: the registries of parameters, buffers
// and children. The engine puts shards where parameters were, wrap policies
// walk children, checkpoints look for what is shared; this is the only file
// that reaches behind the class. For the thread that trains.
#ifndef FSDP_MODULE_ACCESS_H_
#define FSDP_MODULE_ACCESS_H_

#include <memory>
#include <string>

#include "ATen/core/Tensor.h"
#include "torch/nn/module.h"
#include "torch/ordered_dict.h"

namespace torch::nn {
class AnyModule;
struct AnyModulePlaceholder;
}  // namespace torch::nn

namespace fsdp {

// The registries themselves, not copies: to assign to an entry is to replace
// what the module has registered under that name (not the member of the class
// that the entry was made from). They live as long as the module.
torch::OrderedDict<std::string, at::Tensor>& ParametersOf(
    torch::nn::Module& module);
torch::OrderedDict<std::string, at::Tensor>& BuffersOf(
    torch::nn::Module& module);
torch::OrderedDict<std::string, std::shared_ptr<torch::nn::Module>>& ChildrenOf(
    torch::nn::Module& module);

const torch::OrderedDict<std::string, at::Tensor>& ParametersOf(
    const torch::nn::Module& module);
const torch::OrderedDict<std::string, at::Tensor>& BuffersOf(
    const torch::nn::Module& module);
const torch::OrderedDict<std::string, std::shared_ptr<torch::nn::Module>>&
ChildrenOf(const torch::nn::Module& module);

// What an AnyModule, a child of a Sequential, calls; null when it is empty.
std::unique_ptr<torch::nn::AnyModulePlaceholder>& ContentOf(
    torch::nn::AnyModule& module);

// Makes Module::clone() of it fail, as a copy would have shards where its code
// expects whole parameters.
void RefuseClone(torch::nn::Module& module);

// Whether the module only holds others: ModuleList, ModuleDict, ParameterList,
// ParameterDict. Sequential has a forward and is none of them.
bool is_container_without_forward(const torch::nn::Module& module);

// The type as torch names it: "torch::nn::LinearImpl", "Block".
std::string type_name(const torch::nn::Module& module);

}  // namespace fsdp

#endif  // FSDP_MODULE_ACCESS_H_
