// SPDX-License-Identifier: Apache-2.0
// Collects and validates a call's parameters, and plans their cuts.
// Tested by tests/fsdp/fully_shard_test.cc.
#include "fsdp/engine/shard_plan.h"

#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "c10/core/GradMode.h"
#include "fsdp/engine/fsdp_param_group.h"
#include "fsdp/engine/fsdp_state.h"
#include "fsdp/engine/managed_storage.h"
#include "fsdp/engine/module_access.h"
#include "fsdp/engine/parallel_param.h"
#include "fsdp/mesh/collective_errors.h"

namespace fsdp {
namespace {

using torch::nn::Module;

// Walks a call's modules, depth first, and skips parameters that other calls
// took.
class Collector {
 public:
  explicit Collector(const FullyShardOptions& options) {
    for (const at::Tensor& tensor : options.ignored_params) {
      ignored_.insert(tensor.unsafeGetTensorImpl());
    }
  }

  void Visit(Module& module, const std::string& prefix, bool own) {
    if (!own && FsdpState::Find(module) != nullptr) return;
    if (!seen_modules_.insert(&module).second) return;
    for (const auto& item : ChildRegistry(module)) {
      Visit(*item.value(), absl::StrCat(prefix, item.key(), "."), false);
    }
    for (const auto& item : ParameterRegistry(module)) {
      AddParameter(module, prefix, item.key(), item.value());
    }
    for (const auto& item : BufferRegistry(module)) {
      if (!item.value().defined()) continue;
      if (seen_buffers_.insert(item.value().unsafeGetTensorImpl()).second) {
        buffers_.push_back(item.value());
      }
    }
  }

  std::vector<ShardPlan::Param> TakeParams() { return std::move(params_); }
  std::vector<at::Tensor> TakeBuffers() { return std::move(buffers_); }

 private:
  void AddParameter(Module& module, const std::string& prefix,
                    const std::string& name, const at::Tensor& tensor) {
    if (!tensor.defined() || ignored_.count(tensor.unsafeGetTensorImpl())) {
      return;
    }
    const std::string full_name = absl::StrCat(prefix, name);
    FsdpParam* other = FsdpParam::FindByShard(tensor);
    if (const ManagedStorage* storage = FindManagedStorage(tensor)) {
      other = storage->owner();
    }
    const bool is_parallel =
        other != nullptr && other->group().config().may_be_taken;
    if (other != nullptr && !is_parallel) RefuseTie(module, full_name, *other);
    const auto [found, is_new] =
        index_.try_emplace(tensor.unsafeGetTensorImpl(), params_.size());
    if (is_new) {
      params_.push_back({.tensor = is_parallel ? other->leaf() : tensor,
                         .name = full_name,
                         .parallel = is_parallel ? other : nullptr});
    }
    params_[found->second].slots.push_back({&module, name});
  }

  // Below the roots of two calls the names may be the same.
  static void RefuseTie(const Module& module, const std::string& name,
                        const FsdpParam& other) {
    TORCH_CHECK_VALUE(false, "fully_shard: '", name, "' (", type_name(module),
                      ") is tied to '", other.name(), "' (",
                      type_name(*other.slots().front().module),
                      "), which another fully_shard call took. Shard the "
                      "module that holds both in one call");
  }

  std::unordered_set<const c10::TensorImpl*> ignored_;
  std::unordered_set<const Module*> seen_modules_;
  std::unordered_set<const c10::TensorImpl*> seen_buffers_;
  std::unordered_map<const c10::TensorImpl*, size_t> index_;
  std::vector<ShardPlan::Param> params_;
  std::vector<at::Tensor> buffers_;
};

void ValidateParameter(const ShardPlan::Param& param) {
  const at::Tensor& tensor = param.tensor;
  TORCH_CHECK_VALUE(
      param.parallel == nullptr ||
          param.parallel->slots().size() == param.slots.size(),
      "fully_shard: '", param.name,
      "' is also the parameter of a module outside this call. Shard the module "
      "that holds both in one call");
  TORCH_CHECK_VALUE(
      param.parallel == nullptr || param.parallel->IsHeldByModuleAlone(),
      "fully_shard: the parameter '", param.name,
      "' is held by something other than its module, such as an optimizer. "
      "Build the optimizer from module->parameters() after fully_shard");
  TORCH_CHECK_VALUE(tensor.dim() > 0, "fully_shard: the parameter '",
                    param.name,
                    "' has no dimension to shard; change it to a 1-D tensor "
                    "with numel equal to 1");
  TORCH_CHECK_NOT_IMPLEMENTED(tensor.is_contiguous(),
                              "fully_shard: the parameter '", param.name,
                              "' is not contiguous: sizes ", tensor.sizes(),
                              ", strides ", tensor.strides());
  TORCH_CHECK_VALUE(tensor.is_floating_point() || tensor.is_complex(),
                    "fully_shard: the parameter '", param.name, "' is ",
                    tensor.scalar_type(),
                    "; only floating parameters can be sharded, others belong "
                    "in ignored_params");
}

ShardGeometry PlanShard(const ShardPlan::Param& param,
                        const DataParallelMesh& mesh,
                        const std::optional<fsdp::Shard>& placement) {
  ShardGeometry geometry{.sizes = param.tensor.sizes().vec(),
                         .dim = 0,
                         .world = mesh.num_shards(),
                         .rank = mesh.shard_rank()};
  if (!placement.has_value()) return geometry;
  const int64_t ndim = param.tensor.dim();
  TORCH_CHECK(placement->dim() >= -ndim && placement->dim() < ndim,
              "fully_shard: ", to_string(*placement),
              " is invalid for the parameter '", param.name, "' of ", ndim,
              " dimensions");
  geometry.dim = placement->normalized(ndim).dim();
  TORCH_CHECK_NOT_IMPLEMENTED(
      geometry.dim == 0 || geometry.sizes[geometry.dim] % geometry.world == 0,
      "fully_shard: uneven sharding on dimension ", geometry.dim, ": '",
      param.name, "' has ", geometry.sizes[geometry.dim],
      " there, which is not divisible by ", geometry.world);
  return geometry;
}

// The dtype in which the parameter is gathered; unset: the one it has.
std::optional<c10::ScalarType> PlanParamDtype(
    const ShardPlan::Param& param, const MixedPrecisionPolicy& policy) {
  if (!policy.param_dtype_override_fn) return policy.param_dtype;
  const std::optional<c10::ScalarType> chosen =
      policy.param_dtype_override_fn(param.name, param.tensor);
  if (!chosen.has_value()) return policy.param_dtype;
  const c10::ScalarType own = param.tensor.scalar_type();
  TORCH_CHECK_VALUE(chosen == policy.param_dtype || chosen == own,
                    "fully_shard: param_dtype_override_fn gives ", *chosen,
                    " for '", param.name, "'; it must give nothing",
                    policy.param_dtype.has_value()
                        ? absl::StrCat(", the policy's param_dtype, ",
                                       c10::toString(*policy.param_dtype), ",")
                        : std::string(),
                    " or the parameter's own dtype, ", own);
  return chosen;
}

// How tensor parallelism has cut the parameter, if it has.
std::optional<DTensorSpec> TensorParallelSpec(
    const ShardPlan::Param& param, const DataParallelMesh& mesh,
    const FullyShardOptions& options) {
  std::optional<DTensorSpec> spec;
  if (param.parallel != nullptr) {
    spec = param.parallel->parallel()->spec;
  } else if (options.tensor_parallel_fn) {
    spec = options.tensor_parallel_fn(param.name, param.tensor);
  }
  if (!spec.has_value()) return std::nullopt;
  TORCH_CHECK_VALUE(spec->mesh.device_type() == mesh.mesh.device_type(),
                    "fully_shard: '", param.name, "' is on a mesh of ",
                    spec->mesh.device_type(), ", but is to be sharded over ",
                    mesh.mesh.device_type());
  TORCH_CHECK_NOT_IMPLEMENTED(spec->placements.size() <= 2, "fully_shard: '",
                              param.name, "' has ", spec->placements.size(),
                              " placements of tensor parallelism; at most 2");
  TORCH_CHECK_NOT_IMPLEMENTED(
      options.reshard_after_forward.as_num_ranks() == nullptr,
      "fully_shard: reshard_after_forward as a number of ranks cannot be "
      "combined with tensor parallelism, which '",
      param.name, "' has");
  for (const Placement& placement : spec->placements) {
    TORCH_CHECK_VALUE(!placement.is_partial(), "fully_shard: '", param.name,
                      "' is ", to_string(placement),
                      "; a parameter must be sharded or replicated");
  }
  const std::vector<int64_t> expected = spec->local_shape();
  TORCH_CHECK_VALUE(param.tensor.sizes() == expected, "fully_shard: '",
                    param.name, "' has the shape ", param.tensor.sizes(),
                    ", but its DTensor gives this rank ",
                    c10::IntArrayRef(expected));
  return spec;
}

// The spec of the shard that FSDP cuts on `mesh`. Tensor parallelism has cut
// first, so if both cut one dimension, FSDP's pieces are not adjacent in the
// whole tensor: a strided shard.
DTensorSpec PlanSpec(const ShardPlan::Param& param,
                     const DataParallelMesh& mesh,
                     const FullyShardOptions& options) {
  const int64_t dim = param.geometry.dim;
  DTensorSpec spec{.mesh = mesh.mesh,
                   .placements = mesh.PlacementsFor(fsdp::Shard(dim)),
                   .shape = param.geometry.sizes,
                   .stride = param.tensor.strides().vec()};
  std::optional<DTensorSpec> parallel =
      TensorParallelSpec(param, mesh, options);
  if (!parallel.has_value()) return spec;
  int64_t split_factor = 1;
  for (size_t axis = 0; axis < parallel->placements.size(); ++axis) {
    if (parallel->placements[axis].is_shard(dim)) {
      split_factor *= parallel->mesh.size(static_cast<int64_t>(axis));
    }
  }
  if (split_factor > 1) {
    spec.placements = mesh.PlacementsFor(StridedShard(dim, split_factor));
  }
  const std::string why = CatchErrorText(
      [&] { spec.mesh = mesh.mesh.concatenate(parallel->mesh); });
  TORCH_CHECK_VALUE(why.empty(), "fully_shard: '", param.name, "' lies on ",
                    to_string(parallel->mesh), " and is to be sharded over ",
                    to_string(mesh.mesh), ", which do not nest: ", why);
  spec.placements.insert(spec.placements.end(), parallel->placements.begin(),
                         parallel->placements.end());
  spec.shape = std::move(parallel->shape);
  spec.stride = std::move(parallel->stride);
  return spec;
}

// Sets the tensor that extension->store makes from the parameter, and the cut.
void PlanStored(ShardPlan::Param& param, const DataParallelMesh& mesh,
                const FullyShardOptions& options) {
  TORCH_CHECK_VALUE(!param.tensor.requires_grad(), "fully_shard: '", param.name,
                    "' is to be kept in another form (AllGatherExtension::"
                    "store) but requires grad; call requires_grad_(false) on "
                    "it first");
  TORCH_CHECK_NOT_IMPLEMENTED(
      !TensorParallelSpec(param, mesh, options).has_value(), "fully_shard: '",
      param.name,
      "' is to be kept in another form (AllGatherExtension::store), which "
      "cannot be combined with tensor parallelism");
  TORCH_CHECK_NOT_IMPLEMENTED(
      options.reshard_after_forward.as_num_ranks() == nullptr,
      "fully_shard: reshard_after_forward as a number of ranks cannot be "
      "combined with AllGatherExtension::store, which '",
      param.name, "' has");
  const c10::NoGradGuard no_grad;
  ShardPlan::Param rows = {.tensor = param.extension->store(param.tensor),
                           .name = param.name};
  TORCH_CHECK_VALUE(
      rows.tensor.dim() > 0 && rows.tensor.is_contiguous() &&
          rows.tensor.is_meta() == param.tensor.is_meta(),
      "fully_shard: AllGatherExtension::store of '", param.name,
      "' must give a contiguous tensor with a dimension, on the same device");
  FullyShardOptions by_rows;
  rows.geometry = PlanShard(rows, mesh, std::nullopt);
  param.spec = PlanSpec(rows, mesh, by_rows);
  param.geometry = std::move(rows.geometry);
  param.stored = std::move(rows.tensor);
}

// Where the parameter is cut, and over which mesh.
std::pair<std::optional<fsdp::Shard>, DataParallelMesh> PlanPlacement(
    const ShardPlan::Param& param, const DataParallelMesh& mesh,
    const FullyShardOptions& options) {
  if (!options.shard_placement_fn) return {std::nullopt, mesh};
  const ShardPlacementResult chosen = options.shard_placement_fn(param.tensor);
  if (!chosen.mesh.has_value()) return {chosen.placement, mesh};
  const std::string of =
      absl::StrCat("fully_shard: the mesh that shard_placement_fn gives for '",
                   param.name, "'");
  ValidateShardingMesh(*chosen.mesh, of);
  TORCH_CHECK_VALUE(chosen.mesh->device_type() == mesh.mesh.device_type(), of,
                    " is ", to_string(*chosen.mesh),
                    "; it must be on the devices of the call's, ",
                    to_string(mesh.mesh));
  TORCH_CHECK_VALUE(chosen.mesh->get_coordinate().has_value(), of, ", ",
                    to_string(*chosen.mesh), ", has no place for rank ",
                    get_rank());
  return {chosen.placement, ShardingMesh(*chosen.mesh)};
}

// The group of parameters on `mesh`, which is added if there is none.
ShardPlan::Group& GroupOn(const DataParallelMesh& mesh, ShardPlan& plan,
                          const std::string& name) {
  for (ShardPlan::Group& group : plan.groups) {
    if (!HaveOneGroup(group.mesh, mesh)) continue;
    TORCH_CHECK_VALUE(group.mesh.mesh == mesh.mesh, "fully_shard: '", name,
                      "' is to be on ", to_string(mesh.mesh), ", and '",
                      group.params.front().name, "' on ",
                      to_string(group.mesh.mesh),
                      ", with the same process groups; give one mesh for both");
    return group;
  }
  return plan.groups.emplace_back(ShardPlan::Group{.mesh = mesh, .params = {}});
}

void PlanParam(ShardPlan::Param& param, const DataParallelMesh& mesh,
               const std::optional<fsdp::Shard>& placement,
               const FullyShardOptions& options) {
  param.param_dtype = PlanParamDtype(param, options.mp_policy);
  param.geometry = PlanShard(param, mesh, placement);
  param.spec = PlanSpec(param, mesh, options);
  if (options.all_gather_extension_fn) {
    param.extension = options.all_gather_extension_fn(param.name, param.tensor);
  }
  TORCH_CHECK(
      !param.extension.has_value() ||
          (param.extension->pre_all_gather && param.extension->post_all_gather),
      "fully_shard: the all-gather extension of '", param.name,
      "' must have both of its functions");
  if (param.extension.has_value() && param.extension->store) {
    PlanStored(param, mesh, options);
  }
}

}  // namespace

ShardPlan PlanShards(const std::vector<std::shared_ptr<Module>>& modules,
                     const DataParallelMesh& mesh,
                     const FullyShardOptions& options) {
  Collector collector(options);
  for (const auto& module : modules) collector.Visit(*module, "", true);
  std::vector<ShardPlan::Param> params = collector.TakeParams();
  ShardPlan plan{.groups = {}, .buffers = collector.TakeBuffers()};
  for (ShardPlan::Param& param : params) {
    ValidateParameter(param);
    TORCH_CHECK_NOT_IMPLEMENTED(
        param.tensor.is_meta() == params.front().tensor.is_meta(),
        "fully_shard: '", param.name, "' and '", params.front().name,
        "' are not both on the meta device");
    const auto [placement, own_mesh] = PlanPlacement(param, mesh, options);
    PlanParam(param, own_mesh, placement, options);
    GroupOn(own_mesh, plan, param.name).params.push_back(param);
  }
  return plan;
}

}  // namespace fsdp
