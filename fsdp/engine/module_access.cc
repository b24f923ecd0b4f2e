// SPDX-License-Identifier: Apache-2.0
// Reaches private members through explicit instantiations.
// Tested by tests/fsdp/module/wrap_test.cc.
#include "fsdp/engine/module_access.h"

#include <vector>

#include "torch/nn/modules/container/any.h"
#include "torch/nn/modules/container/moduledict.h"
#include "torch/nn/modules/container/modulelist.h"
#include "torch/nn/modules/container/parameterdict.h"
#include "torch/nn/modules/container/parameterlist.h"
#include "torch/nn/modules/container/sequential.h"

namespace fsdp {
namespace {

using NamedTensors = torch::OrderedDict<std::string, at::Tensor>;
using Modules =
    torch::OrderedDict<std::string, std::shared_ptr<torch::nn::Module>>;

// parameters_ is protected, and a deriving class may form a pointer to it.
struct ProtectedMembers : torch::nn::Module {
  static constexpr NamedTensors torch::nn::Module::*kParameters =
      &ProtectedMembers::parameters_;
};

// buffers_, children_, content_ and modules_ are private. Access is not checked
// for the arguments of an explicit instantiation ([temp.spec]), and the friend
// that it defines is found by its argument.
template <typename Tag, typename Tag::Type kMember>
struct PrivateMember {
  friend typename Tag::Type Get(Tag /*tag*/) { return kMember; }
};
struct BuffersTag {
  using Type = NamedTensors torch::nn::Module::*;
  friend Type Get(BuffersTag tag);
};
struct ChildrenTag {
  using Type = Modules torch::nn::Module::*;
  friend Type Get(ChildrenTag tag);
};
struct ContentTag {
  using Type =
      std::unique_ptr<torch::nn::AnyModulePlaceholder> torch::nn::AnyModule::*;
  friend Type Get(ContentTag tag);
};
struct ListTag {
  using Type = std::vector<std::shared_ptr<torch::nn::Module>>
      torch::nn::ModuleListImpl::*;
  friend Type Get(ListTag tag);
};
struct SequenceTag {
  using Type = std::vector<torch::nn::AnyModule> torch::nn::SequentialImpl::*;
  friend Type Get(SequenceTag tag);
};
template struct PrivateMember<BuffersTag, &torch::nn::Module::buffers_>;
template struct PrivateMember<ChildrenTag, &torch::nn::Module::children_>;

template struct PrivateMember<ContentTag, &torch::nn::AnyModule::content_>;
template struct PrivateMember<ListTag, &torch::nn::ModuleListImpl::modules_>;
template struct PrivateMember<SequenceTag,
                              &torch::nn::SequentialImpl::modules_>;

}  // namespace

NamedTensors& ParameterRegistry(torch::nn::Module& module) {
  return module.*ProtectedMembers::kParameters;
}
NamedTensors& BufferRegistry(torch::nn::Module& module) {
  return module.*Get(BuffersTag());
}
Modules& ChildRegistry(torch::nn::Module& module) {
  return module.*Get(ChildrenTag());
}

const NamedTensors& ParameterRegistry(const torch::nn::Module& module) {
  return module.*ProtectedMembers::kParameters;
}
const NamedTensors& BufferRegistry(const torch::nn::Module& module) {
  return module.*Get(BuffersTag());
}
const Modules& ChildRegistry(const torch::nn::Module& module) {
  return module.*Get(ChildrenTag());
}

std::unique_ptr<torch::nn::AnyModulePlaceholder>& AnyModuleContent(
    torch::nn::AnyModule& module) {
  return module.*Get(ContentTag());
}

std::vector<std::shared_ptr<torch::nn::Module>>& SequentialItems(
    torch::nn::ModuleListImpl& list) {
  return list.*Get(ListTag());
}

std::vector<torch::nn::AnyModule>& SequentialItems(
    torch::nn::SequentialImpl& sequence) {
  return sequence.*Get(SequenceTag());
}

void RefuseClone(torch::nn::Module& module) {
  // clone() compares the buffer counts of the original and of the copy, which
  // reset() made. An undefined buffer counts there and nowhere else.
  static const char kName[] = "(sharded by fully_shard)";
  auto& buffers = BufferRegistry(module);
  if (!buffers.contains(kName)) buffers.insert(kName, at::Tensor());
}

bool is_container_without_forward(const torch::nn::Module& module) {
  return module.as<torch::nn::ModuleListImpl>() != nullptr ||
         module.as<torch::nn::ModuleDictImpl>() != nullptr ||
         module.as<torch::nn::ParameterListImpl>() != nullptr ||
         module.as<torch::nn::ParameterDictImpl>() != nullptr;
}

std::string type_name(const torch::nn::Module& module) { return module.name(); }

}  // namespace fsdp
