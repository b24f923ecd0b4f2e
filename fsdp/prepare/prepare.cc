// prepare does the following, in this order:
//   1. It chooses and checks everything without a change to the model: mesh,
//      options of fully_shard, groups, layers to checkpoint, the source of the
//      weights, and what the optimizer steps.
//   2. It casts parameters, or makes them equal on all ranks, while they are
//      whole.
//   3. Other parallelisms, such as that of tensors, cut layers.
//   4. Activation checkpointing is applied, because it must be inside what is
//      sharded.
//   5. fully_shard is called, on inner modules before outer ones.
//   6. Shards get memory and weights.
//   7. The optimizer gets the shards, the config's numbers and a schedule.
#include "fsdp/prepare/prepare.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "dcp/base/status.h"
#include "fsdp/checkpoint/export.h"
#include "fsdp/checkpoint/state/torch_status.h"
#include "fsdp/engine/module_access.h"
#include "fsdp/module/wrap.h"
#include "fsdp/optim/rebind_optimizer.h"
#include "fsdp/prepare/layers.h"
#include "fsdp/prepare/mesh.h"
#include "fsdp/prepare/precision.h"
#include "fsdp/prepare/refusal.h"
#include "fsdp/prepare/weights.h"

namespace fsdp {
namespace {

using torch::nn::Module;

// What step 1 has chosen.
struct Choices {
  MeshPlan plan;
  FullyShardOptions shard;
  WrapPolicy policy;
  RememberedParameters stepped;
};

absl::Status CheckTensorParallel(const MeshConfig& config, const MeshPlan& plan,
                                 const PrepareOptions& options) {
  if (plan.tensor_parallel == 1 || options.parallelize) {
    return absl::OkStatus();
  }
  return Refusal(config.tensor_parallel_degree, "tensor_parallel_degree", "is ",
                 plan.tensor_parallel,
                 ", but this program does not say how to cut its model: "
                 "PrepareOptions::parallelize is unset");
}

absl::StatusOr<MeshPlan> PlanMesh(const MeshConfig& config,
                                  const PrepareOptions& options) {
  if (!options.mesh.has_value()) return PlanMeshOfWorld(config);
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
  DCP_ASSIGN_OR_RETURN(choices.plan, PlanMesh(config.mesh, options));
  DCP_RETURN_IF_ERROR(CheckTensorParallel(config.mesh, choices.plan, options));
  const bool has_accelerator = DeviceOr(options.device) != "cpu";
  DCP_ASSIGN_OR_RETURN(choices.shard,
                       ShardOptionsOf(config, choices.plan, has_accelerator));
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

// Steps 3 to 5.
absl::StatusOr<std::vector<FSDPModule>> Shard(
    const std::shared_ptr<Module>& model, const TrainConfig& config,
    const PrepareOptions& options, const DeviceMesh& mesh, Choices& choices) {
  const bool has_own_mesh = options.mesh.has_value();
  if (choices.plan.tensor_parallel > 1 ||
      (has_own_mesh && options.parallelize)) {
    options.parallelize(*model, has_own_mesh ? mesh : mesh["tp"]);
    choices.shard.tensor_parallel_fn = options.tensor_parallel_fn;
    // The function may have replaced modules and parameters.
    DCP_RETURN_IF_ERROR(ChooseModules(*model, config, options, choices));
  }
  DCP_ASSIGN_OR_RETURN(
      const ModuleList layers,
      LayersToCheckpoint(*model, config.sharding, options, choices.policy,
                         choices.shard.ignored_params));
  CheckpointLayers(*model, layers, options);
  choices.shard.mesh = has_own_mesh ? mesh : DataParallelMesh(mesh);
  // Layers inside the model return outputs in the precision of their
  // computation.
  return auto_wrap(model, choices.policy,
                   [&](const std::string& name, const Module& module) {
                     FullyShardOptions shard = choices.shard;
                     if (!name.empty()) shard.mp_policy.output_dtype.reset();
                     if (!options.shard_options) return shard;
                     options.shard_options(name, module, shard);
                     shard.mesh = choices.shard.mesh;
                     shard.ignored_params = choices.shard.ignored_params;
                     shard.tensor_parallel_fn =
                         choices.shard.tensor_parallel_fn;
                     return shard;
                   });
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

// The dtype of training, unless the config sets another.
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
  const DeviceMesh mesh =
      options.mesh.has_value()
          ? *options.mesh
          : MakeMesh(choices.plan, DeviceOr(options.device));
  std::unique_ptr<CheckpointManager> checkpoints =
      MakeCheckpoints(config.checkpoint, options);
  std::optional<int64_t> latest_step;
  if (checkpoints != nullptr) {
    DCP_ASSIGN_OR_RETURN(latest_step, checkpoints->latest());
  }
  DCP_ASSIGN_OR_RETURN(StartingWeights weights,
                       ChooseWeights(*model, config.checkpoint,
                                     latest_step.has_value(), mesh.device()));

  DCP_RETURN_IF_ERROR(ReadyWeights(*model, config, weights));
  DCP_ASSIGN_OR_RETURN(std::vector<FSDPModule> groups,
                       Shard(model, config, options, mesh, choices));
  DCP_RETURN_IF_ERROR(
      PlaceWeights(*model, config, options, mesh.device(), weights));
  std::shared_ptr<LearningRate> learning_rate =
      ReadyOptimizer(*model, config.loop, options, choices);
  const FSDPModule root = groups.back();
  return Prepared{.mesh = mesh,
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
