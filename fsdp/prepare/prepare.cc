// SPDX-License-Identifier: Apache-2.0
// prepare does the following, in this order:
//   1. It chooses and checks everything without a change to the model: mesh,
//      fully_shard's options, groups, layers to checkpoint, the weights'
//      source, and the optimizer's parameters.
//   2. It casts parameters, or makes them equal on all ranks, while they are
//      whole.
//   3. Tensor parallelism cuts layers, and expert parallelism divides experts.
//   4. Activation checkpointing is applied, because it must be inside the
//      sharded modules.
//   5. fully_shard is called, on inner modules before outer ones.
//   6. Shards get memory and weights.
//   7. The optimizer gets the shards, the config's numbers and a schedule.
#include "fsdp/prepare/prepare.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "fsdp/checkpoint/export.h"
#include "fsdp/checkpoint/state/torch_status.h"
#include "fsdp/engine/module_access.h"
#include "fsdp/module/wrap.h"
#include "fsdp/optim/rebind_optimizer.h"
#include "fsdp/parallel/experts/expert_parallel.h"
#include "fsdp/prepare/layers.h"
#include "fsdp/prepare/mesh.h"
#include "fsdp/prepare/parallelize.h"
#include "fsdp/prepare/precision.h"
#include "fsdp/prepare/refusal.h"
#include "fsdp/prepare/weights.h"

namespace fsdp {
namespace {

using torch::nn::Module;

// The choices from step 1.
struct Choices {
  MeshPlan plan;
  FullyShardOptions shard;
  WrapPolicy policy;
  RememberedParameters stepped;
};

absl::StatusOr<MeshPlan> PlanMesh(const Module& module,
                                  const MeshConfig& config,
                                  const PrepareOptions& options) {
  if (!options.mesh.has_value()) {
    DCP_RETURN_IF_ERROR(CheckParallelisms(module, config, options));
    return PlanMeshOfWorld(config);
  }
  if (!options.parallelize_plan.empty()) {
    return absl::InvalidArgumentError(
        "PrepareOptions::parallelize_plan is for the meshes that prepare "
        "makes; with PrepareOptions::mesh, call parallelize_module in "
        "PrepareOptions::parallelize");
  }
  const DeviceMesh& mesh = *options.mesh;
  return MeshPlan{.replicate = mesh.size() / mesh.size(mesh.ndim() - 1),
                  .shard = mesh.size(mesh.ndim() - 1)};
}

absl::Status ChooseModules(Module& module, const TrainConfig& config,
                           const PrepareOptions& options, Choices& choices) {
  const ShardingConfig& sharding = config.sharding;
  DCP_ASSIGN_OR_RETURN(choices.shard.ignored_params,
                       IgnoredParameters(module, sharding));
  DCP_ASSIGN_OR_RETURN(
      choices.policy,
      WrapPolicyFor(module, sharding, options, choices.shard.ignored_params));
  return absl::OkStatus();
}

int64_t NumSteps(const LoopConfig& loop, const PrepareOptions& options) {
  return loop.steps->value_or(options.num_steps);
}

absl::Status CheckSchedule(const LoopConfig& loop,
                           const PrepareOptions& options) {
  if (options.optimizer == nullptr || !loop.lr_schedule->has_value() ||
      !needs_num_steps(**loop.lr_schedule) || NumSteps(loop, options) > 0) {
    return absl::OkStatus();
  }
  return Refusal(loop.lr_schedule, "lr_schedule",
                 "depends on how many steps the run has, which the config does "
                 "not say: set PrepareOptions::num_steps");
}

absl::StatusOr<Choices> Choose(Module& module, const TrainConfig& config,
                               const PrepareOptions& options) {
  if (find_fsdp_module(module).has_value()) {
    return absl::InvalidArgumentError(
        absl::StrCat("the ", type_name(module),
                     " is sharded already; prepare shards it once"));
  }
  Choices choices;
  DCP_ASSIGN_OR_RETURN(choices.plan, PlanMesh(module, config.mesh, options));
  const bool has_accelerator = DeviceOr(options.device) != "cpu";
  DCP_ASSIGN_OR_RETURN(choices.shard,
                       ToShardOptions(config, choices.plan, has_accelerator));
  DCP_RETURN_IF_ERROR(ChooseModules(module, config, options, choices));
  DCP_RETURN_IF_ERROR(CheckParameters(module, choices.shard.ignored_params));
  DCP_RETURN_IF_ERROR(LayersToCheckpoint(module, config.sharding, options,
                                         choices.policy,
                                         choices.shard.ignored_params)
                          .status());
  DCP_RETURN_IF_ERROR(CheckSchedule(config.loop, options));
  if (options.optimizer != nullptr) {
    choices.stepped = remember_parameters(*options.optimizer, module);
    // An optimizer of another class is refused before anything changes.
    DCP_RETURN_IF_ERROR(set_hyperparameters(config.loop, *options.optimizer));
  }
  return choices;
}

// The meshes that fully_shard and the other parallelisms use.
struct Meshes {
  std::optional<ParallelDims> dims;  // absent with PrepareOptions::mesh
  DeviceMesh fsdp;
};

Meshes MakeMeshes(const MeshPlan& plan, const PrepareOptions& options) {
  if (options.mesh.has_value()) return {.dims = {}, .fsdp = *options.mesh};
  ParallelDims dims = MakeDims(plan, DeviceOr(options.device));
  DeviceMesh fsdp = dims.fsdp_mesh();
  return {.dims = std::move(dims), .fsdp = std::move(fsdp)};
}

// Step 3.
absl::Status CutLayers(Module& module, const TrainConfig& config,
                       const PrepareOptions& options, const Meshes& meshes,
                       WeightsFrom weights, Choices& choices) {
  const bool has_own_mesh = !meshes.dims.has_value();
  const bool has_parts =
      choices.plan.tensor_parallel * choices.plan.expert_parallel > 1;
  if (has_own_mesh ? options.parallelize == nullptr : !has_parts) {
    return absl::OkStatus();
  }
  if (has_own_mesh) {
    options.parallelize(module, meshes.fsdp);
  } else {
    // Weights that were built may differ; all others are equal by now, or come
    // later.
    DCP_RETURN_IF_ERROR(Parallelize(module, config.mesh, options, *meshes.dims,
                                    weights == WeightsFrom::kBuilt
                                        ? std::optional<int64_t>(0)
                                        : std::nullopt));
  }
  choices.shard.tensor_parallel_fn = options.tensor_parallel_fn;
  // A function may have replaced modules and parameters.
  return ChooseModules(module, config, options, choices);
}

// Step 4.
absl::Status Checkpoint(Module& module, const ShardingConfig& config,
                        const PrepareOptions& options, const Choices& choices) {
  DCP_ASSIGN_OR_RETURN(
      const ModuleList layers,
      LayersToCheckpoint(module, config, options, choices.policy,
                         choices.shard.ignored_params));
  CheckpointLayers(module, layers, options);
  return absl::OkStatus();
}

// Step 5.
std::vector<FSDPModule> Shard(const std::shared_ptr<Module>& model,
                              const ShardingConfig& config,
                              const PrepareOptions& options,
                              const Meshes& meshes, Choices& choices) {
  choices.shard.mesh = meshes.fsdp;
  // Layers inside the model return outputs in the precision of their
  // computation.
  const auto inner = [&choices] {
    FullyShardOptions shard = choices.shard;
    shard.mp_policy.output_dtype.reset();
    return shard;
  };
  std::vector<FSDPModule> groups;
  const bool divides_experts = choices.plan.expert_parallel > 1;
  const bool wraps_layers =
      *config.auto_wrap_policy == AutoWrapPolicy::kTransformerBasedWrap;
  if (divides_experts) {
    groups = fully_shard_experts(*model, *meshes.dims, inner());
  }
  std::vector<std::string> names;
  const std::vector<FSDPModule> others = auto_wrap(
      model, choices.policy,
      [&](const std::string& name, const Module& module) {
        if (!name.empty()) names.push_back(name);
        FullyShardOptions shard = name.empty() ? choices.shard : inner();
        if (!options.shard_options) return shard;
        options.shard_options(name, module, shard);
        shard.mesh = choices.shard.mesh;
        shard.ignored_params = choices.shard.ignored_params;
        shard.tensor_parallel_fn = choices.shard.tensor_parallel_fn;
        return shard;
      });
  groups.insert(groups.end(), others.begin(), others.end());
  if (divides_experts && wraps_layers) {
    std::vector<std::shared_ptr<Module>> layers;
    const auto modules = model->named_modules();
    for (const std::string& name : names) layers.push_back(modules[name]);
    prefetch_blocks(layers);
  }
  return groups;
}

// Step 7.
std::shared_ptr<LearningRate> ReadyOptimizer(const Module& module,
                                             const LoopConfig& loop,
                                             const PrepareOptions& options,
                                             const Choices& choices) {
  if (options.optimizer == nullptr) return nullptr;
  rebind_optimizer(*options.optimizer, module, choices.stepped);
  if (!loop.lr_schedule->has_value()) return nullptr;
  return std::make_shared<LearningRate>(*options.optimizer, **loop.lr_schedule,
                                        NumSteps(loop, options));
}

std::unique_ptr<CheckpointManager> MakeCheckpoints(
    const CheckpointConfig& config, const PrepareOptions& options) {
  if (config.folder->empty()) return nullptr;
  CheckpointManagerOptions manager = options.checkpoints;
  manager.save_every = *config.interval;
  manager.keep_last = *config.keep_latest_k;
  manager.async = *config.async;
  return std::make_unique<CheckpointManager>(*config.folder,
                                             std::move(manager));
}

std::unique_ptr<ActivationOffload> MakeOffload(const ShardingConfig& config) {
  if (!*config.activation_cpu_offload) return nullptr;
  return std::make_unique<ActivationOffload>();
}

std::string FullModelPath(const CheckpointConfig& config) {
  const bool is_full =
      *config.state_dict_type == StateDictType::kFullStateDict ||
      *config.last_save_model_only;
  if (!is_full || config.folder->empty()) return "";
  return absl::StrCat(*config.folder, "/model.safetensors");
}

// The training dtype, unless the config sets another.
std::optional<dcp::DType> ExportDtype(const CheckpointConfig& config) {
  if (config.export_dtype.place().has_value() ||
      *config.export_dtype != dcp::DType::kFloat32) {
    return *config.export_dtype;
  }
  return std::nullopt;
}

absl::StatusOr<Prepared> Prepare(const std::shared_ptr<Module>& model,
                                 const TrainConfig& config,
                                 const PrepareOptions& options) {
  if (model == nullptr) {
    return absl::InvalidArgumentError("prepare: the model is null");
  }
  DCP_ASSIGN_OR_RETURN(Choices choices, Choose(*model, config, options));
  const Meshes meshes = MakeMeshes(choices.plan, options);
  const c10::Device device = meshes.fsdp.device();
  std::unique_ptr<CheckpointManager> checkpoints =
      MakeCheckpoints(config.checkpoint, options);
  std::optional<int64_t> latest_step;
  if (checkpoints != nullptr) {
    DCP_ASSIGN_OR_RETURN(latest_step, checkpoints->latest());
  }
  DCP_ASSIGN_OR_RETURN(StartingWeights weights,
                       ChooseWeights(*model, config.checkpoint,
                                     latest_step.has_value(), device));

  DCP_RETURN_IF_ERROR(ReadyWeights(*model, config, weights));
  DCP_RETURN_IF_ERROR(
      CutLayers(*model, config, options, meshes, weights.from, choices));
  DCP_RETURN_IF_ERROR(Checkpoint(*model, config.sharding, options, choices));
  std::vector<FSDPModule> groups =
      Shard(model, config.sharding, options, meshes, choices);
  DCP_RETURN_IF_ERROR(PlaceWeights(*model, config, options, device, weights));
  std::shared_ptr<LearningRate> learning_rate =
      ReadyOptimizer(*model, config.loop, options, choices);
  const FSDPModule root = groups.back();
  return Prepared{
      .mesh = meshes.fsdp,
      .dims = meshes.dims,
      .context_parallel = {.method = *config.mesh.context_parallel_method},
      .root = root,
      .groups = std::move(groups),
      .activation_offload = MakeOffload(config.sharding),
      .learning_rate = std::move(learning_rate),
      .checkpoints = std::move(checkpoints),
      .latest_step = latest_step,
      .full_model_path = FullModelPath(config.checkpoint),
      .export_dtype = ExportDtype(config.checkpoint)};
}

}  // namespace

absl::Status Prepared::finish(int64_t step) {
  if (checkpoints == nullptr) return absl::OkStatus();
  DCP_RETURN_IF_ERROR(checkpoints->finish());
  if (full_model_path.empty()) return absl::OkStatus();
  return export_full(checkpoints->path_of(step), full_model_path,
                     {.prefix = "model", .dtype = export_dtype});
}

absl::StatusOr<Prepared> prepare(const std::shared_ptr<Module>& model,
                                 const TrainConfig& config,
                                 const PrepareOptions& options) {
  return CatchTorch([&] { return Prepare(model, config, options); });
}

}  // namespace fsdp
