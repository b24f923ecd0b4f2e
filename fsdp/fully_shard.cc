#include "fsdp/fully_shard.h"

#include <algorithm>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "c10/core/impl/DeviceGuardImplInterface.h"
#include "c10/util/Logging.h"
#include "fsdp/engine/fsdp_state.h"
#include "fsdp/engine/module_access.h"

namespace fsdp {
namespace {

using torch::nn::Module;
using ModulePtr = std::shared_ptr<Module>;

// The parameters and buffers that a call will take, found and validated before
// anything changes.
struct Managed {
  struct Param {
    at::Tensor tensor;
    std::string name;  // below the call's module, for errors
    std::vector<FsdpParam::Slot> slots = {};
    ShardGeometry geometry = {};
    std::optional<DTensorSpec> spec = {};  // set when planned
    std::optional<AllGatherExtension> extension = {};
    at::Tensor stored = {};  // is cut instead of it; undefined: not set
  };
  std::vector<Param> params;
  std::vector<at::Tensor> buffers;
};

std::string Described(const Module& module) {
  return absl::StrCat("a ", type_name(module));
}

// The modules that are not inside another one of the list.
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

void ValidateModules(const std::vector<ModulePtr>& modules) {
  TORCH_CHECK_INDEX(!modules.empty(),
                    "fully_shard: the list of modules is empty");
  std::unordered_set<const Module*> seen;
  for (const ModulePtr& module : modules) {
    TORCH_CHECK_VALUE(module != nullptr, "fully_shard: a module is null");
    TORCH_CHECK_VALUE(!is_container_without_forward(*module),
                      "fully_shard: ", Described(*module),
                      " has no forward; shard the modules it holds");
    TORCH_CHECK(
        FsdpState::Find(*module) == nullptr && seen.insert(module.get()).second,
        "fully_shard can be applied to a module only once: ",
        Described(*module));
  }
}

DeviceMesh DefaultMesh() {
  const c10::DeviceType type =
      c10::impl::hasDeviceGuardImpl(c10::kCUDA) &&
              c10::impl::getDeviceGuardImpl(c10::kCUDA)->deviceCount() > 0
          ? c10::kCUDA
          : c10::kCPU;
  if (!is_initialized()) init_process_group();
  return init_device_mesh(type, {get_world_size()});
}

void ValidateMesh(const DeviceMesh& mesh) {
  TORCH_CHECK_VALUE(mesh.ndim() == 1 || mesh.ndim() == 2,
                    "fully_shard: the mesh must have 1 or 2 axes, not ",
                    mesh.ndim());
  TORCH_CHECK(mesh.ndim() == 1 || !mesh.mesh_dim_names().empty(),
              "fully_shard: a mesh of 2 axes needs names: the first "
              "replicates, the second shards");
}

// The number of ranks to reshard to after forward; 0 if there is no smaller
// group.
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

// Walks the modules of a call, depth first, and skips what other calls took.
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
    for (const auto& item : ChildrenOf(module)) {
      Visit(*item.value(), absl::StrCat(prefix, item.key(), "."), false);
    }
    for (const auto& item : ParametersOf(module)) {
      AddParameter(module, prefix, item.key(), item.value());
    }
    for (const auto& item : BuffersOf(module)) {
      if (!item.value().defined()) continue;
      if (seen_buffers_.insert(item.value().unsafeGetTensorImpl()).second) {
        managed_.buffers.push_back(item.value());
      }
    }
  }

  Managed Take() { return std::move(managed_); }

 private:
  void AddParameter(Module& module, const std::string& prefix,
                    const std::string& name, const at::Tensor& tensor) {
    if (!tensor.defined() || ignored_.count(tensor.unsafeGetTensorImpl())) {
      return;
    }
    const std::string full_name = absl::StrCat(prefix, name);
    const FsdpParam* other = FsdpParam::OfShard(tensor);
    if (const ManagedStorage* storage = ManagedStorageOf(tensor)) {
      other = storage->owner();
    }
    TORCH_CHECK_VALUE(
        other == nullptr, "fully_shard: '", full_name, "' is tied to '",
        other == nullptr ? "" : other->name(),
        "', which another fully_shard call took. Shard the module that holds "
        "both in one call");
    const auto [found, is_new] = index_.try_emplace(
        tensor.unsafeGetTensorImpl(), managed_.params.size());
    if (is_new)
      managed_.params.push_back({.tensor = tensor, .name = full_name});
    managed_.params[found->second].slots.push_back({&module, name});
  }

  std::unordered_set<const c10::TensorImpl*> ignored_;
  std::unordered_set<const Module*> seen_modules_;
  std::unordered_set<const c10::TensorImpl*> seen_buffers_;
  std::unordered_map<const c10::TensorImpl*, size_t> index_;
  Managed managed_;
};

void ValidateParameter(const Managed::Param& param) {
  const at::Tensor& tensor = param.tensor;
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
                    "into ignored_params");
}

ShardGeometry PlanShard(const Managed::Param& param, const DeviceMesh& mesh,
                        const FullyShardOptions& options) {
  const int64_t axis = mesh.ndim() - 1;
  ShardGeometry geometry{.sizes = param.tensor.sizes().vec(),
                         .dim = 0,
                         .world = mesh.size(axis),
                         .rank = mesh.get_local_rank(axis)};
  if (!options.shard_placement_fn) return geometry;
  const std::optional<fsdp::Shard> placement =
      options.shard_placement_fn(param.tensor);
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

// How tensor parallelism has cut the parameter, if it has.
std::optional<DTensorSpec> TensorParallelSpec(
    const Managed::Param& param, const DeviceMesh& mesh,
    const FullyShardOptions& options) {
  if (!options.tensor_parallel_fn) return std::nullopt;
  std::optional<DTensorSpec> spec =
      options.tensor_parallel_fn(param.name, param.tensor);
  if (!spec.has_value()) return std::nullopt;
  TORCH_CHECK_VALUE(spec->mesh.device_type() == mesh.device_type(),
                    "fully_shard: '", param.name, "' lies on a mesh of ",
                    spec->mesh.device_type(), ", but is to be sharded over ",
                    mesh.device_type());
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
DTensorSpec PlanSpec(const Managed::Param& param, const DeviceMesh& mesh,
                     const FullyShardOptions& options) {
  const int64_t dim = param.geometry.dim;
  DTensorSpec spec{
      .mesh = mesh,
      .placements = Placements(static_cast<size_t>(mesh.ndim()), Replicate()),
      .shape = param.geometry.sizes,
      .stride = param.tensor.strides().vec()};
  spec.placements.back() = fsdp::Shard(dim);
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
    spec.placements.back() = StridedShard(dim, split_factor);
  }
  spec.mesh = mesh.concatenate(parallel->mesh);
  spec.placements.insert(spec.placements.end(), parallel->placements.begin(),
                         parallel->placements.end());
  spec.shape = std::move(parallel->shape);
  spec.stride = std::move(parallel->stride);
  return spec;
}

// Sets what extension->store makes from the parameter, and how that is cut.
void PlanStored(Managed::Param& param, const DeviceMesh& mesh,
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
  Managed::Param rows = {.tensor = param.extension->store(param.tensor),
                         .name = param.name};
  TORCH_CHECK_VALUE(
      rows.tensor.dim() > 0 && rows.tensor.is_contiguous() &&
          rows.tensor.is_meta() == param.tensor.is_meta(),
      "fully_shard: AllGatherExtension::store of '", param.name,
      "' must give a contiguous tensor with a dimension, on the same device");
  FullyShardOptions by_rows;
  rows.geometry = PlanShard(rows, mesh, by_rows);
  param.spec = PlanSpec(rows, mesh, by_rows);
  param.geometry = std::move(rows.geometry);
  param.stored = std::move(rows.tensor);
}

Managed Collect(const std::vector<ModulePtr>& modules, const DeviceMesh& mesh,
                const FullyShardOptions& options) {
  Collector collector(options);
  for (const ModulePtr& module : modules) collector.Visit(*module, "", true);
  Managed managed = collector.Take();
  for (Managed::Param& param : managed.params) {
    ValidateParameter(param);
    TORCH_CHECK_NOT_IMPLEMENTED(
        param.tensor.is_meta() == managed.params.front().tensor.is_meta(),
        "fully_shard: '", param.name, "' and '", managed.params.front().name,
        "' are not both on the meta device");
    param.geometry = PlanShard(param, mesh, options);
    param.spec = PlanSpec(param, mesh, options);
    if (options.all_gather_extension_fn) {
      param.extension =
          options.all_gather_extension_fn(param.name, param.tensor);
    }
    TORCH_CHECK(
        !param.extension.has_value() || (param.extension->pre_all_gather &&
                                         param.extension->post_all_gather),
        "fully_shard: the all-gather extension of '", param.name,
        "' must have both of its functions");
    if (param.extension.has_value() && param.extension->store) {
      PlanStored(param, mesh, options);
    }
  }
  return managed;
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

std::unique_ptr<FsdpParamGroup> MakeGroup(FsdpState& state, Managed managed,
                                          const DeviceMesh& mesh,
                                          const FullyShardOptions& options,
                                          ProcessGroup post_forward_group) {
  const int64_t axis = mesh.ndim() - 1;
  auto group = std::make_unique<FsdpParamGroup>(
      &state,
      FsdpParamGroup::Config{
          .mesh = mesh,
          .device = mesh.device(),
          .mp_policy = options.mp_policy,
          .offload_policy = options.offload_policy,
          .shard_group = mesh.get_group(axis),
          .replicate_group =
              mesh.ndim() == 2 ? mesh.get_group(int64_t{0}) : ProcessGroup(),
          .post_forward_group = std::move(post_forward_group)});
  std::vector<std::unique_ptr<FsdpParam>> params;
  for (Managed::Param& param : managed.params) {
    params.push_back(std::make_unique<FsdpParam>(
        group.get(), std::move(param.tensor), std::move(param.slots),
        std::move(param.geometry), *std::move(param.spec)));
    params.back()->set_name(param.name);
    if (param.stored.defined()) params.back()->KeepAs(std::move(param.stored));
    params.back()->extension() = std::move(param.extension);
  }
  group->Shard(std::move(params), managed.buffers, state.shared_from_this());
  return group;
}

}  // namespace

FSDPModule fully_shard(const std::vector<ModulePtr>& modules,
                       const FullyShardOptions& options) {
  ValidateModules(modules);
  const std::vector<ModulePtr> outer = Outermost(modules);
  const DeviceMesh mesh =
      options.mesh.has_value() ? *options.mesh : DefaultMesh();
  ValidateMesh(mesh);
  ValidatePrecision(options.mp_policy);
  ValidateOffload(options, mesh);
  const int64_t post_forward_ranks = PostForwardRanks(
      options.reshard_after_forward, mesh.size(mesh.ndim() - 1));
  Managed managed = Collect(outer, mesh, options);

  ProcessGroup post_forward_group =
      MakePostForwardGroup(mesh, post_forward_ranks);
  MoveBuffers(managed.buffers, mesh.device());
  auto state = std::make_shared<FsdpState>(
      std::vector<std::weak_ptr<Module>>(outer.begin(), outer.end()),
      Effective(options.reshard_after_forward));
  state->set_context(std::make_shared<StateContext>(
      std::make_shared<CommContext>(mesh.device())));
  if (!managed.params.empty()) {
    state->set_group(MakeGroup(*state, std::move(managed), mesh, options,
                               std::move(post_forward_group)));
  }
  state->Register();
  state->AdoptChildren();
  return FSDPModule(std::move(state));
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
  TORCH_CHECK_VALUE(owned != nullptr, "fully_shard: the ", type_name(module),
                    " is not owned by a shared_ptr. Make it with "
                    "std::make_shared<",
                    type_name(module),
                    ">(...), or hold it by TORCH_MODULE's holder");
  return fully_shard(owned, options);
}

std::optional<FSDPModule> find_fsdp_module(const Module& module) {
  std::shared_ptr<FsdpState> state = FsdpState::Find(module);
  if (!state) return std::nullopt;
  return FSDPModule(std::move(state));
}

FSDPModule get_fsdp_module(const Module& module) {
  std::optional<FSDPModule> found = find_fsdp_module(module);
  TORCH_CHECK_VALUE(found.has_value(), "fully_shard was not applied to this ",
                    type_name(module));
  return *found;
}

std::vector<FSDPModule> fsdp_modules(const Module& module) {
  std::vector<FSDPModule> found;
  for (const auto& below : module.modules()) {
    std::optional<FSDPModule> handle = find_fsdp_module(*below);
    if (handle.has_value() &&
        std::find(found.begin(), found.end(), *handle) == found.end()) {
      found.push_back(*handle);
    }
  }
  return found;
}

std::optional<DTensor> dtensor_of(const at::Tensor& parameter) {
  const FsdpParam* param = FsdpParam::OfShard(parameter);
  if (const ManagedStorage* storage = ManagedStorageOf(parameter)) {
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
