// SPDX-License-Identifier: Apache-2.0
// Validates a call, and makes groups of the parameters that it takes.
// Tested by tests/fsdp/fully_shard_test.cc.
#include "fsdp/sharding_call.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "c10/core/impl/DeviceGuardImplInterface.h"
#include "c10/util/Logging.h"
#include "fsdp/engine/fsdp_state.h"
#include "fsdp/engine/module_access.h"
#include "fsdp/engine/parallel_param.h"
#include "fsdp/engine/shard_plan.h"

namespace fsdp {
namespace {

using torch::nn::Module;
using ModulePtr = std::shared_ptr<Module>;

std::string Described(const Module& module) {
  return absl::StrCat("a ", type_name(module));
}

// The modules that are not inside another module in the list.
std::vector<ModulePtr> Outermost(const std::vector<ModulePtr>& modules) {
  std::vector<ModulePtr> outer;
  for (const ModulePtr& module : modules) {
    const bool inside = std::any_of(
        modules.begin(), modules.end(), [&](const ModulePtr& other) {
          if (other == module) return false;
          const auto below = other->modules(/*include_self=*/false);
          return std::find(below.begin(), below.end(), module) != below.end();
        });
    if (!inside) outer.push_back(module);
  }
  return outer;
}

void ValidateModules(const char* function,
                     const std::vector<ModulePtr>& modules) {
  TORCH_CHECK_INDEX(!modules.empty(), function,
                    ": the list of modules is empty");
  std::unordered_set<const Module*> seen;
  for (const ModulePtr& module : modules) {
    TORCH_CHECK_VALUE(module != nullptr, function, ": a module is null");
    TORCH_CHECK_VALUE(!is_container_without_forward(*module), function, ": ",
                      Described(*module),
                      " has no forward; shard the modules it holds");
    TORCH_CHECK(
        FsdpState::Find(*module) == nullptr && seen.insert(module.get()).second,
        function,
        " can be applied to a module only once: ", Described(*module));
    for (const auto& inner : module->modules(/*include_self=*/false)) {
      const std::shared_ptr<FsdpState> state = FsdpState::Find(*inner);
      TORCH_CHECK(state == nullptr || !state->scheduler().manual_finalization(),
                  function,
                  ": set_manual_backward_finalization(true) was called on ",
                  Described(*inner), ", which would be below ",
                  Described(*module), "; it is for the root alone");
    }
  }
}

// How many ranks to reshard to after forward; 0 if there is no smaller group.
int64_t PostForwardRanks(const ReshardAfterForward& reshard,
                         int64_t num_shards) {
  const int64_t* num_ranks = reshard.as_num_ranks();
  if (num_ranks == nullptr) return 0;
  TORCH_CHECK_VALUE(*num_ranks >= 1 && num_shards % *num_ranks == 0,
                    "fully_shard: reshard_after_forward is ", *num_ranks,
                    ", which does not divide the number of shards, ",
                    num_shards);
  if (*num_ranks == 1) {
    LOG(WARNING) << "fully_shard: reshard_after_forward=1 means false";
  }
  return *num_ranks == num_shards ? 0 : *num_ranks;
}

ReshardAfterForward Effective(const ReshardAfterForward& reshard) {
  const int64_t* num_ranks = reshard.as_num_ranks();
  return num_ranks != nullptr && *num_ranks == 1 ? ReshardAfterForward(false)
                                                 : reshard;
}

void ValidatePrecision(const MixedPrecisionPolicy& policy) {
  const auto check = [](const char* name,
                        std::optional<c10::ScalarType> dtype) {
    TORCH_CHECK_VALUE(!dtype.has_value() || c10::isFloatingType(*dtype),
                      "fully_shard: ", name, " of the MixedPrecisionPolicy is ",
                      *dtype, "; it must be a floating type");
  };
  check("param_dtype", policy.param_dtype);
  check("reduce_dtype", policy.reduce_dtype);
  check("output_dtype", policy.output_dtype);
}

void ValidateOffload(const FullyShardOptions& options, const DeviceMesh& mesh) {
  TORCH_CHECK(!options.offload_policy.has_value() ||
                  !options.offload_policy->pin_memory ||
                  mesh.device_type() != c10::kCPU,
              "fully_shard: pinned memory needs an accelerator; on a CPU mesh "
              "set CPUOffloadPolicy{.pin_memory = false}");
}

// Groups of `num_ranks` neighbours on the whole mesh. Collective.
ProcessGroup MakePostForwardGroup(const DeviceMesh& mesh, int64_t num_ranks) {
  if (num_ranks <= 1) return nullptr;
  std::vector<std::vector<int64_t>> blocks;
  for (size_t i = 0; i < mesh.ranks().size(); ++i) {
    if (static_cast<int64_t>(i) % num_ranks == 0) blocks.emplace_back();
    blocks.back().push_back(mesh.ranks()[i]);
  }
  return new_subgroups(blocks, absl::StrCat("post_forward_", num_ranks));
}

// Buffers stay whole; they only move to where the module computes.
void MoveBuffers(const std::vector<at::Tensor>& buffers, c10::Device device) {
  for (const at::Tensor& buffer : buffers) {
    if (buffer.is_meta() || buffer.device().type() == device.type()) continue;
    at::Tensor moved = buffer.to(device);
    buffer.unsafeGetTensorImpl()->_change_backend_component_keys(device);
    buffer.set_data(moved);
  }
}

// LibTorch's optimizers step a parameter as often as it is listed.
void WarnAboutTies(const std::vector<ModulePtr>& modules,
                   const ShardPlan& plan) {
  std::unordered_map<const c10::TensorImpl*, std::string> first_names;
  for (const ShardPlan::Group& group : plan.groups) {
    for (const ShardPlan::Param& param : group.params) {
      first_names.emplace(param.tensor.unsafeGetTensorImpl(), "");
    }
  }
  for (const ModulePtr& module : modules) {
    for (const auto& item : module->named_parameters()) {
      const auto first = first_names.find(item.value().unsafeGetTensorImpl());
      if (first == first_names.end()) continue;
      const std::string name =
          absl::StrCat(item.key(), " of ", Described(*module));
      if (first->second.empty()) {
        first->second = name;
        continue;
      }
      LOG(WARNING) << "fully_shard: " << first->second << " and " << name
                   << " are one parameter, which module->parameters() lists "
                      "twice. Optimizers of LibTorch would step it twice: "
                      "build them from fsdp::unique_parameters(*module)";
    }
  }
}

// The policy for one parameter, which may have another param_dtype than the
// group. Inputs are still cast to the group's.
MixedPrecisionPolicy PolicyFor(const ShardPlan::Param& param,
                               const MixedPrecisionPolicy& policy) {
  MixedPrecisionPolicy own = policy;
  own.param_dtype = param.param_dtype;
  own.cast_forward_inputs &= param.param_dtype == policy.param_dtype;
  return own;
}

std::shared_ptr<FsdpParamGroup> MakeGroup(
    FsdpState& state, ShardPlan::Group planned,
    const std::vector<at::Tensor>& buffers, const FullyShardOptions& options,
    ProcessGroup post_forward_group) {
  const DataParallelMesh& mesh = planned.mesh;
  MixedPrecisionPolicy policy = options.mp_policy;
  policy.param_dtype_override_fn = nullptr;  // it has been asked
  auto group = std::make_shared<FsdpParamGroup>(
      GroupConfig{.mesh = mesh,
                  .device = mesh.mesh.device(),
                  .mp_policy = policy,
                  .offload_policy = options.offload_policy,
                  .shard_group = mesh.shard_group(),
                  .replicate_group = mesh.replicate_group(),
                  .post_forward_group = std::move(post_forward_group)},
      Effective(options.reshard_after_forward),
      state.scheduler().shared_comm());
  std::vector<std::unique_ptr<FsdpParam>> params;
  for (ShardPlan::Param& param : planned.params) {
    std::shared_ptr<const ParallelParam> parallel;
    if (param.parallel != nullptr) {
      parallel = param.parallel->shared_parallel();
      param.parallel->group().Reshard(/*after_forward=*/false);
      param.tensor = param.parallel->Release();
    }
    params.push_back(std::make_unique<FsdpParam>(
        group.get(), std::move(param.tensor), std::move(param.slots),
        std::move(param.geometry), *std::move(param.spec),
        PolicyFor(param, policy)));
    params.back()->set_name(param.name);
    params.back()->set_parallel(std::move(parallel));
    if (param.stored.defined())
      params.back()->SetStored(std::move(param.stored));
    params.back()->extension() = std::move(param.extension);
  }
  group->Shard(
      std::move(params), buffers,
      {.owner = state.shared_from_this(), .on_gradient = [](FsdpParam& param) {
         param.group().scheduler().OnGradient(param);
       }});
  return group;
}

}  // namespace

DeviceMesh DefaultMesh(const std::vector<std::string>& mesh_dim_names) {
  const c10::DeviceType type =
      c10::impl::hasDeviceGuardImpl(c10::kCUDA) &&
              c10::impl::getDeviceGuardImpl(c10::kCUDA)->deviceCount() > 0
          ? c10::kCUDA
          : c10::kCPU;
  if (!is_initialized()) init_process_group();
  return init_device_mesh(type, {get_world_size()}, mesh_dim_names);
}

FSDPModule CallOnModules(const ShardingCall& call,
                         const std::vector<ModulePtr>& modules) {
  const FullyShardOptions& options = call.options;
  const DeviceMesh& mesh = call.mesh.mesh;
  ValidateModules(call.function, modules);
  const std::vector<ModulePtr> outer = Outermost(modules);
  ValidatePrecision(options.mp_policy);
  ValidateOffload(options, mesh);
  ShardPlan plan = PlanShards(outer, call.mesh, options);
  std::vector<int64_t> post_forward_ranks;
  PostForwardRanks(options.reshard_after_forward, call.mesh.num_shards());
  for (const ShardPlan::Group& group : plan.groups) {
    post_forward_ranks.push_back(PostForwardRanks(options.reshard_after_forward,
                                                  group.mesh.num_shards()));
  }
  WarnAboutTies(outer, plan);

  std::vector<ProcessGroup> post_forward_groups;
  for (size_t i = 0; i < plan.groups.size(); ++i) {
    post_forward_groups.push_back(
        MakePostForwardGroup(plan.groups[i].mesh.mesh, post_forward_ranks[i]));
  }
  MoveBuffers(plan.buffers, mesh.device());
  auto state = std::make_shared<FsdpState>(
      std::vector<std::weak_ptr<Module>>(outer.begin(), outer.end()),
      std::make_shared<CommContext>(mesh.device()));
  std::vector<std::shared_ptr<FsdpParamGroup>> groups;
  for (size_t i = 0; i < plan.groups.size(); ++i) {
    groups.push_back(MakeGroup(*state, std::move(plan.groups[i]), plan.buffers,
                               options, std::move(post_forward_groups[i])));
  }
  state->set_groups(std::move(groups));
  state->Register();
  state->AdoptChildren();
  return FSDPModule(std::move(state));
}

}  // namespace fsdp
