// SPDX-License-Identifier: Apache-2.0
// Reads torchtune's YAML like the recipe full_finetune_distributed in version
// 0.7. A file does not name its recipe; the others have the same keys, or
// fewer.
//
// Tested by tests/config/dialects/torchtune/read_test.cc.
#include <cstdint>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "config/dialects/fields/config_writer.h"
#include "config/dialects/fields/float8.h"
#include "config/dialects/fields/key_table.h"
#include "config/dialects/fields/keys.h"
#include "config/dialects/fields/references.h"
#include "config/dialects/torchtune/torchtune.h"
#include "config/document/scalar.h"

namespace fsdp::config {
namespace {

void RefuseTorchtuneFloat8(Section& section, const KeyRow& row, TrainConfig&) {
  section.Refuse(row.key, "false", WithoutFloat8("leave it out"));
}

// "inf" and null do not bound gradients.
void ReadTorchtuneNorm(Section& section, const KeyRow& row,
                       TrainConfig& config) {
  const Node* node = section.Find(row.key);
  if (node != nullptr && absl::StrContains(node->text, "inf")) return;
  section.Read(row.key, RealRange{}, config.loop.max_norm);
}

void ReadTorchtuneScheduler(Section& section, const KeyRow& row,
                            TrainConfig& config) {
  const Node* path = section.Find(row.key);
  if (path == nullptr) return;
  if (!absl::EndsWith(path->text, ".get_cosine_schedule_with_warmup")) {
    section.findings().Problem(
        path->place, absl::StrCat("is ", path->text,
                                  ", not torchtune.training.lr_schedulers."
                                  "get_cosine_schedule_with_warmup"));
    return;
  }
  config.loop.lr_schedule =
      Some(LrSchedule{.decay = LrDecay::kCosine}, path->place);
}

void IntoContextMethod(Section& section, const KeyRow& row,
                       TrainConfig& config) {
  ReadContextMethod(section, row.key, config.mesh.context_parallel_method);
}

constexpr KeyRow kTorchtuneRecipe[] = {
    {"output_dir", kIntoCheckpoint<&CheckpointConfig::folder>},
    {"data_parallel_shard_dim",
     IntoMesh<&MeshConfig::data_parallel_shard_degree, kShardOverRest>},
    {"data_parallel_replicate_dim",
     IntoMesh<&MeshConfig::data_parallel_replicate_degree>},
    {"tensor_parallel_dim", IntoMesh<&MeshConfig::tensor_parallel_degree>},
    {"context_parallel_dim", IntoMesh<&MeshConfig::context_parallel_degree>},
    {"context_parallel_rotate_method", IntoContextMethod},
    {"tensor_parallel_plan", Ignore,
     "it is an object of Python; give PrepareOptions::parallelize_plan"},
    {"custom_sharded_layers", Ignore,
     "the layers are groups; PrepareOptions::layers names others"},
    {"memory_efficient_fsdp_wrap", Pass},
    {"fsdp", Ignore, "torchtune reads fsdp_cpu_offload instead"},
    {"fsdp_cpu_offload", kIntoSharding<&ShardingConfig::cpu_offload>},
    {"fsdp_reshard_after_forward", IntoLayerReshard},
    {"enable_activation_checkpointing", IntoRecompute},
    {"ac_mode", Pass},
    {"ac_option", Pass},
    {"enable_activation_offloading",
     kIntoSharding<&ShardingConfig::activation_cpu_offload>},
    {"activation_offloading_use_streams", Pass},
    {"dtype", kIntoPrecision<&PrecisionConfig::dtype>},
    {"enable_fp8_training", RefuseTorchtuneFloat8},
    {"fp8_recipe_name", Pass},
    {"batch_size", kIntoLoop<&LoopConfig::local_batch_size, 1>},
    {"epochs", Pass},
    {"max_steps_per_epoch", Pass},
    {"gradient_accumulation_steps",
     kIntoLoop<&LoopConfig::gradient_accumulation_steps, 1>},
    {"clip_grad_norm", ReadTorchtuneNorm},
    {"seed", kIntoLoop<&LoopConfig::seed>},
    {"optimizer_in_bwd", IgnoreOn, "the optimizer steps after backward"},
    {"save_every_n_steps", kIntoCheckpoint<&CheckpointConfig::interval, 1>},
    {"enable_async_checkpointing", kIntoCheckpoint<&CheckpointConfig::async>},
    {"model", Ignore, kProgramMakesModel},
};
constexpr KeyRow kTorchtuneOptimizer[] = {
    {"_component_", IntoOptimizer},
    {"lr", kIntoLoop<&LoopConfig::lr>},
    {"weight_decay", kIntoLoop<&LoopConfig::weight_decay>},
    {"betas", IntoBetas},
    {"eps", kIntoLoop<&LoopConfig::eps>},
};
constexpr KeyRow kTorchtuneScheduler[] = {
    {"_component_", ReadTorchtuneScheduler},
    {"num_warmup_steps", IntoSchedule<&LrSchedule::warmup_steps>},
    {"num_cycles", Pass},
};
// Checkpoints are in the checkpointer's folder, usually output_dir.
constexpr KeyRow kTorchtuneCheckpointer[] = {
    {"output_dir", kIntoCheckpoint<&CheckpointConfig::folder>},
    {"keep_last_n_checkpoints",
     kIntoCheckpoint<&CheckpointConfig::keep_latest_k, 1>},
};
constexpr KeyRow kTorchtuneTokenizer[] = {
    {"max_seq_len", kIntoLoop<&LoopConfig::seq_len, 1>},
};
constexpr absl::string_view kTorchtuneModelReason =
    "they are for torchtune's model, data and logs";
constexpr KeyMap kTorchtuneMaps[] = {
    {"", kTorchtuneRecipe, kTorchtuneModelReason},
    {"optimizer", kTorchtuneOptimizer, "the program makes its optimizer"},
    {"lr_scheduler", kTorchtuneScheduler},
    {"checkpointer", kTorchtuneCheckpointer, kTorchtuneModelReason},
    {"tokenizer", kTorchtuneTokenizer, kTorchtuneModelReason},
};

// ac_mode counts only while enable_activation_checkpointing is off; with both,
// nothing is computed again.
void ReadTorchtuneActivations(Section root, ShardingConfig& sharding) {
  const Setting<bool>& offloads = sharding.activation_cpu_offload;
  Setting<int64_t>& every = sharding.activation_checkpointing;
  if (*offloads && *every == 0) {
    root.findings().Problem(
        SettingPlace(offloads, "enable_activation_offloading"),
        "is true, which torchtune refuses without "
        "enable_activation_checkpointing: true");
  }
  Setting<absl::string_view> mode;
  const Choices<absl::string_view> kModes = {
      {"none", "none"}, {"full", "full"}, {"selective", "selective"}};
  if (!root.Read("ac_mode", kModes, mode)) return;
  if (*every > 0) {
    every = Setting<int64_t>(0, *mode.place());
    root.findings().Changed(
        *mode.place(),
        "computes nothing again, as in torchtune: it counts only without "
        "enable_activation_checkpointing, which counts only without it");
    return;
  }
  if (*mode == "none") return;
  every = Setting<int64_t>(1, *mode.place());
  const Node* option = root.Find("ac_option");
  if (*mode == "full" || option == nullptr) return;
  if (option->text == "op") {
    root.findings().Changed(
        option->place,
        "is read as whole layers: the same numbers, with more arithmetic and "
        "less memory");
    return;
  }
  Setting<int64_t> number = 1;
  root.Read("ac_option", IntegerRange{}, number);
  if (*number > 0) every = Setting<int64_t>(*number, option->place);
}

// torchtune shards and averages gradients only over an axis of shards.
void CheckTorchtuneMesh(const Node& root, const MeshConfig& mesh,
                        Findings& findings) {
  const Setting<int64_t>& shard = mesh.data_parallel_shard_degree;
  const Setting<int64_t>& tensor = mesh.tensor_parallel_degree;
  if (*shard == 1 && *mesh.context_parallel_degree == 1 &&
      *mesh.data_parallel_replicate_degree > 1) {
    findings.Problem(
        SettingPlace(shard, "data_parallel_shard_dim"),
        "is 1 with data_parallel_replicate_dim, for which torchtune "
        "averages no gradients; write -1");
  }
  if (*tensor > 1 && NodeAt(root, "tensor_parallel_plan") == nullptr) {
    findings.Problem(SettingPlace(tensor, "tensor_parallel_dim"),
                     absl::StrCat("is ", *tensor,
                                  ", which torchtune refuses without "
                                  "tensor_parallel_plan"));
  }
}

// An epoch has max_steps_per_epoch steps, or as many as the data has if that is
// fewer; without save_every_n_steps a step is saved when an epoch ends.
void ReadTorchtuneEpochs(Section root, TrainConfig& config) {
  Setting<std::optional<int64_t>> epochs = std::optional<int64_t>(1);
  Setting<std::optional<int64_t>> steps;
  root.Read("epochs", {.least = 1}, epochs);
  root.Read("max_steps_per_epoch", {.least = 1}, steps);
  constexpr int64_t kMost = int64_t{1} << 31;
  if (steps->has_value() && **epochs < kMost && **steps < kMost) {
    config.loop.steps = Some(**epochs * **steps, *steps.place());
  }
  if (**epochs > 1 && *config.checkpoint.interval == 0) {
    root.findings().Changed(SettingPlace(epochs, "epochs"),
                            "is read as a save after the last step alone; "
                            "write save_every_n_steps");
  }
}

}  // namespace

void ReadTorchtune(const Node& root_node, TrainConfig& config,
                   Findings& findings) {
  const Node root = ResolveReferences(root_node);
  config.loop = TorchAdamW();
  config.checkpoint.state_dict_type = StateDictType::kFullStateDict;
  ReadKeyMaps(root, kTorchtuneMaps, config, findings);
  ReadTorchtuneActivations(Section(root, findings), config.sharding);
  CheckTorchtuneMesh(root, config.mesh, findings);
  ReadTorchtuneEpochs(Section(root, findings), config);
  if (*config.checkpoint.async) {
    config.checkpoint.state_dict_type = StateDictType::kShardedStateDict;
  }
  if (*config.precision.dtype == dcp::DType::kFloat16) {
    findings.Problem(SettingPlace(config.precision.dtype, "dtype"),
                     "is fp16, which torchtune refuses; write bf16 or fp32");
  }
  if (const Node* cycles = NodeAt(root, "lr_scheduler.num_cycles");
      cycles != nullptr && AsReal(*cycles) != 0.5) {
    findings.Problem(cycles->place,
                     "is not 0.5, half a cosine from the rate to 0");
  }
}

}  // namespace fsdp::config
