// SPDX-License-Identifier: Apache-2.0
// Reads verl's YAML, as of version 0.7: the actor in a reinforcement learning
// run, and supervised runs with an engine (engine) and without one
// (model.fsdp_config). A file may be resolved, or have only the values that
// differ from verl's defaults.
//
// Tested by tests/config/dialects/verl/read_test.cc.
#include <cmath>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "config/dialects/fields/config_writer.h"
#include "config/dialects/fields/key_table.h"
#include "config/dialects/fields/optimizer_name.h"
#include "config/dialects/fields/redundant_casts.h"
#include "config/dialects/fields/references.h"
#include "config/dialects/verl/verl.h"
#include "config/document/scalar.h"

namespace fsdp::config {
namespace {

void ReadVerlStrategy(Section& section, const KeyRow& row,
                      TrainConfig& config) {
  const Node* node = section.Find(row.key);
  if (node != nullptr && (absl::EqualsIgnoreCase(node->text, "megatron") ||
                          absl::EqualsIgnoreCase(node->text, "veomni"))) {
    section.Refuse(row.key, "", "verl shards as another program does then");
    return;
  }
  section.Read(row.key, Choices<int64_t>{{"fsdp", 1}, {"fsdp2", 2}},
               config.sharding.fsdp_version);
}

// -1, or a number as large as the number of ranks: all ranks share a copy.
void ReadVerlShards(Section& section, const KeyRow& row, TrainConfig& config) {
  Setting<int64_t>& shard = config.mesh.data_parallel_shard_degree;
  ReadDegree(section, row.key, kShardOverRest, shard);
  if (*shard > 0) {
    config.mesh.data_parallel_replicate_degree =
        Setting<int64_t>(kReplicateOverRest, SettingPlace(shard, row.key));
  }
}

void ReadVerlTypes(Section& section, const KeyRow& row, TrainConfig& config) {
  const Node* node = section.Find(row.key);
  if (node == nullptr) return;
  PrecisionConfig& precision = config.precision;
  precision.param_dtype = Some(dcp::DType::kBFloat16, node->place);
  precision.reduce_dtype = Some(dcp::DType::kFloat32, node->place);
  Section types(*node, section.findings());
  for (const auto& [key, setting] :
       {std::pair("param_dtype", &precision.param_dtype),
        std::pair("reduce_dtype", &precision.reduce_dtype)}) {
    Setting<dcp::DType> type;
    if (types.Read(key, type)) *setting = Some(*type, *type.place());
  }
  types.Ignore("buffer_dtype", "buffers keep their types");
  types.Finish();
}

void ReadVerlWrap(Section& section, const KeyRow& row, TrainConfig& config) {
  const Node* node = section.Find(row.key);
  if (node == nullptr) return;
  ShardingConfig& sharding = config.sharding;
  Section wrap(*node, section.findings());
  wrap.Read("transformer_layer_cls_to_wrap",
            sharding.transformer_layer_cls_to_wrap);
  Setting<int64_t> least = 0;
  wrap.Read("min_num_params", IntegerRange{}, least);
  if (*least > 0) {
    sharding.min_num_params = least;
    sharding.auto_wrap_policy =
        Setting<AutoWrapPolicy>(AutoWrapPolicy::kSizeBasedWrap, *least.place());
  }
  Setting<bool> is_off = false;
  if (wrap.Read("disable", is_off) && *is_off) {
    sharding.auto_wrap_policy =
        Setting<AutoWrapPolicy>(AutoWrapPolicy::kNoWrap, *is_off.place());
  }
  wrap.Finish();
}

void ReadVerlWarmupShare(Section& section, const KeyRow& row,
                         TrainConfig& config) {
  IntoSchedule<&LrSchedule::warmup_ratio>(section, row, config);
}

// -1 and 0 leave the warmup to the share of all steps.
void ReadVerlWarmup(Section& section, const KeyRow& row, TrainConfig& config) {
  Setting<int64_t> steps = -1;
  if (!section.Read(row.key, {.least = -1}, steps) || *steps <= 0) return;
  IntoSchedule<&LrSchedule::warmup_steps>(section, row, config);
}

void ReadVerlDecay(Section& section, const KeyRow& row, TrainConfig& config) {
  Setting<LrDecay> decay;
  const Choices<LrDecay> kTypes = {{"constant", LrDecay::kConstant},
                                   {"cosine", LrDecay::kCosine}};
  if (!section.Read(row.key, kTypes, decay)) return;
  LrSchedule schedule = config.loop.lr_schedule->value_or(LrSchedule());
  schedule.decay = *decay;
  config.loop.lr_schedule = Some(schedule, *decay.place());
}

void ReadVerlCycles(Section& section, const KeyRow& row, TrainConfig&) {
  section.Refuse(row.key, "0.5", "a cosine goes from the rate to its minimum");
}

// The older place for the engine's size; 1 keeps the engine's.
void ReadVerlSequences(Section& section, const KeyRow& row,
                       TrainConfig& config) {
  Setting<int64_t> size = 1;
  ReadDegree(section, row.key, 1, size);
  if (*size > 1) config.mesh.context_parallel_degree = size;
}

void ReadVerlOptimizer(Section& section, const KeyRow& row, TrainConfig&) {
  ReadOptimizerName(row.key, section);
}

constexpr absl::string_view kBetweenPhases =
    "verl moves it between the phases of a step, and not while it trains";

// FSDPEngineConfig.
constexpr KeyRow kVerlEngine[] = {
    {"_target_", Pass},
    {"strategy", ReadVerlStrategy},
    {"fsdp_size", ReadVerlShards},
    {"ulysses_sequence_parallel_size",
     IntoMesh<&MeshConfig::context_parallel_degree>},
    {"reshard_after_forward", IntoReshard},
    {"offload_policy", kIntoSharding<&ShardingConfig::cpu_offload>},
    {"param_offload", IgnoreOn, kBetweenPhases},
    {"optimizer_offload", IgnoreOn, kBetweenPhases},
    {"grad_offload", IgnoreOn, kBetweenPhases},
    {"model_dtype", kIntoPrecision<&PrecisionConfig::dtype>},
    {"dtype", kIntoPrecision<&PrecisionConfig::param_dtype>},
    {"mixed_precision", ReadVerlTypes},
    {"wrap_policy", ReadVerlWrap},
    {"forward_prefetch", IgnoreOn,
     "set_modules_to_forward_prefetch sets the order"},
    {"use_orig_params", IgnoreOn,
     "a module's own parameters are used, always, one by one"},
    {"use_torch_compile", Pass},
    {"entropy_from_logits_with_chunking", Pass},
    {"entropy_checkpointing", Pass},
    {"forward_only", Pass},
    {"full_determinism", Pass},
    {"seed", Pass},
    {"use_dynamic_bsz", Pass},
    {"max_token_len_per_gpu", Pass},
    {"micro_batch_size_per_gpu", Pass},
    {"infer_max_token_len_per_gpu", Pass},
    {"infer_micro_batch_size_per_gpu", Pass},
    {"use_fused_kernels", Pass},
    {"use_remove_padding", Pass},
};
// FSDPOptimizerConfig.
constexpr KeyRow kVerlOptimizer[] = {
    {"_target_", Pass},
    {"optimizer", ReadVerlOptimizer},
    {"optimizer_impl", Pass},
    {"override_optimizer_config", Ignore, "the program makes its optimizer"},
    {"lr", kIntoLoop<&LoopConfig::lr>},
    {"weight_decay", kIntoLoop<&LoopConfig::weight_decay>},
    {"betas", IntoBetas},
    {"clip_grad", kIntoLoop<&LoopConfig::max_norm>},
    {"grad_clip", kIntoLoop<&LoopConfig::max_norm>},
    {"lr_scheduler_type", ReadVerlDecay},
    {"warmup_style", ReadVerlDecay},
    {"lr_scheduler", ReadVerlDecay},
    {"lr_warmup_steps_ratio", ReadVerlWarmupShare},
    {"warmup_steps_ratio", ReadVerlWarmupShare},
    {"lr_warmup_steps", ReadVerlWarmup},
    {"min_lr_ratio", IntoSchedule<&LrSchedule::min_factor>},
    {"num_cycles", ReadVerlCycles},
    {"total_training_steps", Pass},
};
constexpr KeyRow kVerlModel[] = {
    {"enable_gradient_checkpointing", IntoRecompute},
    {"enable_activation_offload",
     kIntoSharding<&ShardingConfig::activation_cpu_offload>},
    {"lora_rank", IgnoreOn, kProgramMakesModel},
};
constexpr KeyRow kVerlActor[] = {
    {"strategy", ReadVerlStrategy},
    {"grad_clip", kIntoLoop<&LoopConfig::max_norm>},
    {"ulysses_sequence_parallel_size", ReadVerlSequences},
    {"ppo_micro_batch_size_per_gpu",
     kIntoLoop<&LoopConfig::local_batch_size, 1>},
    {"ppo_mini_batch_size", Pass},
};
constexpr KeyRow kVerlTrainer[] = {
    {"default_local_dir", kIntoCheckpoint<&CheckpointConfig::folder>},
    {"save_freq", kIntoCheckpoint<&CheckpointConfig::interval, -1>},
    {"max_actor_ckpt_to_keep",
     kIntoCheckpoint<&CheckpointConfig::keep_latest_k>},
    {"max_ckpt_to_keep", kIntoCheckpoint<&CheckpointConfig::keep_latest_k>},
    {"nnodes", Pass},
    {"n_gpus_per_node", Pass},
    {"total_training_steps", Pass},
    {"seed", kIntoLoop<&LoopConfig::seed>},
};
constexpr KeyRow kVerlData[] = {
    {"train_batch_size", kIntoLoop<&LoopConfig::global_batch_size, 1>},
    {"micro_batch_size_per_gpu", kIntoLoop<&LoopConfig::local_batch_size, 1>},
    {"max_length", kIntoLoop<&LoopConfig::seq_len, 1>},
};
// The model in supervised runs without an engine, and the fsdp_config in it.
constexpr KeyRow kVerlSftModel[] = {
    {"strategy", ReadVerlStrategy},
    {"enable_gradient_checkpointing", IntoRecompute},
    {"lora_rank", IgnoreOn, kProgramMakesModel},
};
constexpr KeyRow kVerlSftSharding[] = {
    {"model_dtype", kIntoPrecision<&PrecisionConfig::dtype>},
    {"wrap_policy", ReadVerlWrap},
    {"cpu_offload", Pass},
    {"offload_params", Pass},
};
constexpr KeyRow kVerlSftRoot[] = {
    {"ulysses_sequence_parallel_size", ReadVerlSequences},
};

constexpr absl::string_view kVerlRunReason =
    "they are for verl's model, data, rollouts and logs";
constexpr KeyMap kVerlActorMaps[] = {
    {"", {}, kVerlRunReason},
    {"actor_rollout_ref.actor.fsdp_config", kVerlEngine},
    {"actor_rollout_ref.actor.optim", kVerlOptimizer},
    {"actor_rollout_ref.actor", kVerlActor, kVerlRunReason},
    {"actor_rollout_ref.model", kVerlModel, kVerlRunReason},
    {"trainer", kVerlTrainer, kVerlRunReason},
};
constexpr KeyMap kVerlEngineMaps[] = {
    {"", {}, kVerlRunReason},
    {"engine", kVerlEngine},
    {"optim", kVerlOptimizer},
    {"model", kVerlModel, kVerlRunReason},
    {"data", kVerlData, kVerlRunReason},
    {"trainer", kVerlTrainer, kVerlRunReason},
};
constexpr KeyMap kVerlSftMaps[] = {
    {"", kVerlSftRoot, kVerlRunReason},
    {"model.fsdp_config", kVerlSftSharding},
    {"model", kVerlSftModel, kVerlRunReason},
    {"optim", kVerlOptimizer},
    {"data", kVerlData, kVerlRunReason},
    {"trainer", kVerlTrainer, kVerlRunReason},
};

void SetVerlDefaults(TrainConfig& config) {
  config.sharding.fsdp_version = 1;
  config.sharding.reshard_after_forward = ReshardSetting(true);
  config.sharding.activation_checkpointing = 1;
  config.precision.param_dtype = std::optional(dcp::DType::kBFloat16);
  config.precision.reduce_dtype = std::optional(dcp::DType::kFloat32);
  config.loop = TorchAdamW();
  config.loop.max_norm = std::optional(1.0);
}

// Without an engine, as fsdp_sft_trainer: sft_trainer.yaml has other numbers.
void SetVerlSftDefaults(TrainConfig& config) {
  config.sharding.fsdp_version = 2;
  config.loop.lr = std::optional(1e-5);
  config.loop.beta2 = std::optional(0.95);
  config.loop.lr_schedule =
      std::optional(LrSchedule{.decay = LrDecay::kCosine, .warmup_ratio = 0.1});
}

// The ranks that share sequences are among those that share a copy.
void SettleVerlMesh(MeshConfig& mesh, Findings& findings) {
  Setting<int64_t>& shard = mesh.data_parallel_shard_degree;
  const Setting<int64_t>& context = mesh.context_parallel_degree;
  const int64_t ranks = *mesh.num_processes;
  if (ranks > 0 && *shard >= ranks) {
    shard = Setting<int64_t>(kShardOverRest, SettingPlace(shard, "fsdp_size"));
    mesh.data_parallel_replicate_degree = int64_t{1};
  }
  if (*shard <= 0 || *context == 1) return;
  if (*shard % *context != 0) {
    findings.Problem(
        SettingPlace(context, "ulysses_sequence_parallel_size"),
        absl::StrCat("is ", *context, ", which does not divide fsdp_size, ",
                     *shard, "; ranks that share sequences share a copy here"));
    return;
  }
  shard = Setting<int64_t>(*shard / *context, SettingPlace(shard, "fsdp_size"));
}

// For an actor, FSDP1 offloads nothing; FSDP2 follows offload_policy.
void SettleVerlOffload(ShardingConfig& sharding, Findings& findings) {
  if (*sharding.fsdp_version == 2 || !*sharding.cpu_offload) return;
  findings.Ignored(SettingPlace(sharding.cpu_offload, "offload_policy"),
                   "has no effect: verl reads it for strategy: fsdp2 alone");
  sharding.cpu_offload = false;
}

// A reinforcement learning run gives the number of machines; it counts rounds
// of generation, each with several steps.
void ReadVerlRounds(const Node& root, TrainConfig& config, Findings& findings) {
  static const Node& empty = *new Node();
  const auto part = [&](absl::string_view path) {
    const Node* node = NodeAt(root, path);
    return Section(node == nullptr ? empty : *node, findings);
  };
  Section trainer = part("trainer");
  Setting<std::optional<int64_t>> machines = std::optional<int64_t>(1);
  Setting<std::optional<int64_t>> ranks;
  constexpr IntegerRange kRanks{.least = 1, .most = 1 << 20};
  trainer.Read("nnodes", kRanks, machines);
  if (trainer.Read("n_gpus_per_node", kRanks, ranks)) {
    config.mesh.num_processes =
        Setting<int64_t>(**machines * **ranks, *ranks.place());
  }
  trainer.Ignore("total_training_steps",
                 "it counts rounds of generation, each of several steps");
  Setting<std::optional<int64_t>> batch = std::optional<int64_t>(256);
  Setting<std::optional<int64_t>> answers = std::optional<int64_t>(1);
  part("actor_rollout_ref.actor").Read("ppo_mini_batch_size", kRanks, batch);
  part("actor_rollout_ref.rollout").Read("n", kRanks, answers);
  config.loop.global_batch_size =
      Some(**batch * **answers, SettingPlace(batch, "ppo_mini_batch_size"));
  const Setting<std::optional<LrSchedule>>& schedule = config.loop.lr_schedule;
  if (**schedule != LrSchedule() && schedule.place().has_value() &&
      ((*schedule)->decay != LrDecay::kConstant ||
       (*schedule)->warmup_steps > 0 || (*schedule)->warmup_ratio > 0)) {
    findings.Changed(*schedule.place(),
                     "has a schedule of steps; verl changes the rate once in "
                     "a round of generation");
  }
}

void ReadVerlSteps(const Node& root, TrainConfig& config, Findings& findings) {
  const Node* trainer = NodeAt(root, "trainer");
  if (trainer != nullptr) {
    Section(*trainer, findings)
        .Read("total_training_steps", {.least = 1}, config.loop.steps);
  }
  LrSchedule schedule = **config.loop.lr_schedule;
  if (!config.loop.steps->has_value() || schedule.warmup_steps > 0) return;
  // verl rounds down.
  schedule.warmup_steps = static_cast<int64_t>(std::floor(
      schedule.warmup_ratio * static_cast<double>(**config.loop.steps)));
  schedule.warmup_ratio = 0;
  config.loop.lr_schedule = std::optional(schedule);
}

// Both keys are needed.
void ReadVerlSftOffload(const Node& root, TrainConfig& config,
                        Findings& findings) {
  const Node* node = NodeAt(root, "model.fsdp_config");
  if (node == nullptr) return;
  Section options(*node, findings);
  Setting<bool> is_on = false;
  Setting<bool> params = false;
  options.Read("cpu_offload", is_on);
  options.Read("offload_params", params);
  if (*is_on && *params) config.sharding.cpu_offload = params;
}

}  // namespace

void ReadVerl(const Node& root_node, TrainConfig& config, Findings& findings) {
  const Node root = ResolveReferences(root_node);
  SetVerlDefaults(config);
  if (NodeAt(root, "actor_rollout_ref.actor") != nullptr) {
    config.loop.lr = std::optional(1e-6);
    ReadKeyMaps(root, kVerlActorMaps, config, findings);
    ReadVerlRounds(root, config, findings);
    SettleVerlOffload(config.sharding, findings);
  } else if (NodeAt(root, "model.fsdp_config") != nullptr) {
    SetVerlSftDefaults(config);
    ReadKeyMaps(root, kVerlSftMaps, config, findings);
    ReadVerlSteps(root, config, findings);
    ReadVerlSftOffload(root, config, findings);
  } else {
    ReadKeyMaps(root, kVerlEngineMaps, config, findings);
    ReadVerlSteps(root, config, findings);
    SettleVerlOffload(config.sharding, findings);
  }
  if (*config.checkpoint.interval < 0) {
    config.checkpoint.interval = Setting<int64_t>(
        0, SettingPlace(config.checkpoint.interval, "save_freq"));
  }
  SettleVerlMesh(config.mesh, findings);
  DropRedundantCasts(config.precision);
}

}  // namespace fsdp::config
