// SPDX-License-Identifier: Apache-2.0

#include "fsdp/fully_shard.h"

#include <utility>

#include "fsdp/engine/managed_storage.h"
#include "fsdp/engine/module_access.h"
#include "fsdp/sharding_call.h"

namespace fsdp {
namespace {

using torch::nn::Module;
using ModulePtr = std::shared_ptr<Module>;

}  // namespace

FSDPModule fully_shard(const std::vector<ModulePtr>& modules,
                       const FullyShardOptions& options) {
  const DeviceMesh mesh =
      options.mesh.has_value() ? *options.mesh : DefaultMesh();
  ValidateShardingMesh(mesh, "fully_shard: the mesh");
  return CallOnModules({.function = "fully_shard",
                        .mesh = ShardingMesh(mesh),
                        .options = options},
                       modules);
}

FSDPModule fully_shard(const ModulePtr& module,
                       const FullyShardOptions& options) {
  return fully_shard(std::vector<ModulePtr>{module}, options);
}

FSDPModule fully_shard(std::initializer_list<ListedModule> modules,
                       const FullyShardOptions& options) {
  std::vector<ModulePtr> listed;
  for (const ListedModule& module : modules) listed.push_back(module.ptr());
  return fully_shard(listed, options);
}

FSDPModule fully_shard(Module& module, const FullyShardOptions& options) {
  const ModulePtr owned = module.weak_from_this().lock();
  TORCH_CHECK_VALUE(
      owned != nullptr, "fully_shard: the ", type_name(module),
      " is not owned by a shared_ptr. Make it with std::make_shared<",
      type_name(module), ">(...), or hold it by TORCH_MODULE's holder");
  return fully_shard(owned, options);
}

std::optional<DTensor> dtensor_of(const at::Tensor& parameter) {
  const FsdpParam* param = FsdpParam::FindByShard(parameter);
  if (const ManagedStorage* storage = FindManagedStorage(parameter)) {
    param = storage->owner();
  }
  if (param == nullptr) return std::nullopt;
  return param->AsDTensor();
}

std::vector<std::pair<std::string, DTensor>> named_parameters(
    const Module& module) {
  std::vector<std::pair<std::string, DTensor>> found;
  for (const auto& item : module.named_parameters()) {
    if (std::optional<DTensor> tensor = dtensor_of(item.value())) {
      found.emplace_back(item.key(), std::move(*tensor));
    }
  }
  return found;
}

std::vector<DTensor> parameters(const Module& module) {
  std::vector<DTensor> found;
  for (auto& item : named_parameters(module)) {
    found.push_back(std::move(item.second));
  }
  return found;
}

}  // namespace fsdp
