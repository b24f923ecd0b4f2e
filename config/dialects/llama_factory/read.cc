// SPDX-License-Identifier: Apache-2.0
// Reads LLaMA-Factory's YAML, version 1, as of August 2026: that program's
// TrainingArguments, with a plugin for distributed training in dist_config.
// Version 0's files are transformers' TrainingArguments, with which accelerate
// or DeepSpeed shards as other files say; they are not read.
//
// Tested by tests/config/dialects/llama_factory/read_test.cc.
#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"
#include "config/dialects/fields/config_writer.h"
#include "config/dialects/fields/copies.h"
#include "config/dialects/fields/key_table.h"
#include "config/dialects/fields/optimizer_name.h"
#include "config/dialects/fields/redundant_casts.h"
#include "config/dialects/llama_factory/llama_factory.h"
#include "config/document/scalar.h"

namespace fsdp::config {
namespace {

void ReadFactoryPlugin(Section& section, const KeyRow& row, TrainConfig&) {
  const Node* node = section.Find(row.key);
  if (node != nullptr && node->text == "deepspeed") {
    section.Refuse(row.key, "", "there is no DeepSpeed here");
    return;
  }
  Setting<bool> unused;
  section.Read(row.key, Choices<bool>{{"fsdp2", true}, {"fsdpturbo", true}},
               unused);
}

// A plugin is a map with a name; without one the optimizer is AdamW.
void ReadFactoryOptimizer(Section& section, const KeyRow& row, TrainConfig&) {
  const Node* node = section.Find(row.key);
  if (node == nullptr) return;
  Section plugin(*node, section.findings());
  ReadOptimizerName("name", plugin);
}

constexpr KeyRow kFactoryRoot[] = {
    {"output_dir", kIntoCheckpoint<&CheckpointConfig::folder>},
    {"micro_batch_size", kIntoLoop<&LoopConfig::local_batch_size, 1>},
    {"global_batch_size", kIntoLoop<&LoopConfig::global_batch_size, 1>},
    {"cutoff_len", kIntoLoop<&LoopConfig::seq_len, 1>},
    {"learning_rate", kIntoLoop<&LoopConfig::lr>},
    {"max_steps", Pass},
    {"max_grad_norm", kIntoLoop<&LoopConfig::max_norm>},
    {"seed", kIntoLoop<&LoopConfig::seed>},
    {"bf16", Pass},
    {"enable_activation_checkpointing", IntoRecompute},
    {"mp_replicate_size",
     IntoMesh<&MeshConfig::data_parallel_replicate_degree>},
    {"mp_shard_size", IntoMesh<&MeshConfig::data_parallel_shard_degree>},
    {"cp_size", IntoMesh<&MeshConfig::context_parallel_degree>},
    {"cp_mode", Pass},
    {"dp_size", Pass},
    {"optim_config", ReadFactoryOptimizer},
    {"lr_scheduler_config", Refuse,
     "LLaMA-Factory has no such plugin, and the rate stays"},
    {"save_steps", kIntoCheckpoint<&CheckpointConfig::interval>},
    {"save_total_limit", kIntoCheckpoint<&CheckpointConfig::keep_latest_k>},
    {"peft_config", Ignore, kProgramMakesModel},
    {"quant_config", Ignore, kProgramMakesModel},
};
constexpr KeyRow kFactoryPlugin[] = {
    {"name", ReadFactoryPlugin},
    {"reshard_after_forward", IntoReshard},
    {"offload_params", kIntoSharding<&ShardingConfig::cpu_offload>},
    {"pin_memory", Pass},
    {"dcp_path", kIntoCheckpoint<&CheckpointConfig::initial_load_path>},
    {"ep_size", IntoMesh<&MeshConfig::expert_parallel_degree>},
    {"ep_dispatcher", Pass},
    {"fsdp_ignored_modules", Refuse,
     "its patterns are FSDPTurbo's; use FullyShardOptions::ignored_params"},
    {"hook_modules", Pass},
    {"fsdp_implementation", Pass},
    {"config_file", Pass},
};
constexpr KeyMap kFactoryMaps[] = {
    {"", kFactoryRoot, "they are for LLaMA-Factory's model, data and logs"},
    {"dist_config", kFactoryPlugin},
};

void SetFactoryDefaults(TrainConfig& config) {
  config.sharding.reshard_after_forward = ReshardSetting(true);
  config.sharding.activation_checkpointing = 1;
  config.loop = TorchAdamW();
  config.loop.lr = std::optional(1e-4);
  config.loop.max_norm = std::optional(1.0);
  config.loop.seed = std::optional<int64_t>(42);
  config.loop.seq_len = std::optional<int64_t>(2048);
  config.loop.local_batch_size = std::optional<int64_t>(1);
}

// Parameters keep the checkpoint's type; FSDP2 computes in bfloat16 unless that
// is off.
void ReadFactoryTypes(Section root, bool is_sharded,
                      PrecisionConfig& precision) {
  const SourceLocation place = root.node().place;
  precision.dtype = Setting<dcp::DType>(dcp::DType::kBFloat16, place);
  root.findings().Changed(place,
                          "leaves parameters in the type of the checkpoint, "
                          "which is read as bfloat16");
  Setting<bool> is_bf16 = true;
  root.Read("bf16", is_bf16);
  if (!is_sharded) return;
  precision.param_dtype =
      Some(*is_bf16 ? dcp::DType::kBFloat16 : dcp::DType::kFloat32,
           SettingPlace(is_bf16, "bf16"));
  precision.reduce_dtype =
      Some(dcp::DType::kFloat32, SettingPlace(is_bf16, "bf16"));
}

// The ranks that share sequences are among those that share a copy.
void SettleFactoryMesh(Section root, bool is_sharded, MeshConfig& mesh) {
  Findings& findings = root.findings();
  Setting<int64_t>& shard = mesh.data_parallel_shard_degree;
  const Setting<int64_t>& context = mesh.context_parallel_degree;
  if (!is_sharded) {
    if (*context > 1) {
      findings.Problem(SettingPlace(context, "cp_size"),
                       absl::StrCat("is ", *context,
                                    ", but ranks share sequences only with "
                                    "dist_config"));
    }
    ReadAsCopies(root.node().place, "has no dist_config, and is", mesh,
                 findings);
    return;
  }
  Setting<int64_t> data;
  constexpr IntegerRange kRanks{.least = 1, .most = int64_t{1} << 31};
  if (root.Read("dp_size", kRanks, data) && *context < kRanks.most) {
    mesh.num_processes = Setting<int64_t>(*data * *context, *data.place());
  }
  if (*shard == kShardOverRest || *context == 1) return;
  if (*shard % *context != 0) {
    findings.Problem(
        SettingPlace(context, "cp_size"),
        absl::StrCat("is ", *context, ", which does not divide mp_shard_size, ",
                     *shard, "; ranks that share sequences share a copy here"));
    return;
  }
  shard =
      Setting<int64_t>(*shard / *context, SettingPlace(shard, "mp_shard_size"));
}

}  // namespace

void ReadLlamaFactory(const Node& root_node, TrainConfig& config,
                      Findings& findings) {
  SetFactoryDefaults(config);
  ReadKeyMaps(root_node, kFactoryMaps, config, findings);
  Section root(root_node, findings);
  const Node* plugin = root.Find("dist_config");
  const bool is_sharded = plugin != nullptr;
  Setting<int64_t> steps;
  // 0 and -1: as many as the epochs need.
  if (root.Read("max_steps", {.least = -1}, steps) && *steps > 0) {
    config.loop.steps = Some(*steps, *steps.place());
  }
  ReadFactoryTypes(root, is_sharded, config.precision);
  SettleFactoryMesh(root, is_sharded, config.mesh);
  DropRedundantCasts(config.precision);
}

}  // namespace fsdp::config
