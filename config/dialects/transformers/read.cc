// SPDX-License-Identifier: Apache-2.0
// Reads transformers' JSON: TrainingArguments, or the file that fsdp_config
// names.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "config/dialects/fields/config_writer.h"
#include "config/dialects/fields/copies.h"
#include "config/dialects/fields/fsdp_options.h"
#include "config/dialects/fields/fsdp_words.h"
#include "config/dialects/fields/lr_scheduler.h"
#include "config/dialects/fields/mesh_sizes.h"
#include "config/dialects/fields/optimizer_name.h"
#include "config/dialects/transformers/distributed.h"
#include "config/dialects/transformers/transformers.h"
#include "config/document/section.h"

namespace fsdp::config {
namespace {

// TrainingArguments saves every 500 steps unless it is told otherwise.
constexpr int64_t kSaveSteps = 500;

void SetTransformersDefaults(TrainConfig& config) {
  config = TrainConfig();
  config.sharding.reshard_after_forward = ReshardSetting(true);
  config.checkpoint.state_dict_type = StateDictType::kFullStateDict;
}

// The defaults of TrainingArguments. A file with only an fsdp_config says
// nothing about the loop.
void SetLoopDefaults(LoopConfig& loop) {
  loop.lr = std::optional(5e-5);
  loop.weight_decay = std::optional(0.0);
  loop.max_norm = std::optional(1.0);
  loop.seed = std::optional<int64_t>(42);
  loop.beta1 = std::optional(0.9);
  loop.beta2 = std::optional(0.999);
  loop.eps = std::optional(1e-8);
  loop.lr_schedule = std::optional(LrSchedule{.decay = LrDecay::kLinear});
}

bool IsOptionsAlone(const Node& root) {
  if (root.Find("fsdp") != nullptr || root.Find("fsdp_config") != nullptr) {
    return false;
  }
  for (const absl::string_view option :
       {"version", "reshard_after_forward", "auto_wrap_policy", "cpu_offload",
        "state_dict_type", "transformer_layer_cls_to_wrap", "min_num_params",
        "cpu_ram_efficient_loading", "xla", "xla_fsdp_v2",
        "xla_fsdp_settings"}) {
    if (root.Find(option) != nullptr ||
        root.Find(absl::StrCat("fsdp_", option)) != nullptr) {
      return true;
    }
  }
  return false;
}

void RefuseXla(Section& options) {
  constexpr absl::string_view kNoXla = "there is no XLA here";
  for (const absl::string_view key :
       {"xla", "xla_fsdp_v2", "xla_fsdp_grad_ckpt"}) {
    RefuseTrue(OptionKey(key, options), kNoXla, options);
  }
  options.Refuse(OptionKey("xla_fsdp_settings", options), "", kNoXla);
}

// For version 1 transformers expects a strategy in this key.
void RefuseBoolInVersion1(Section& options, int64_t version) {
  const Node* reshard =
      options.Find(OptionKey("reshard_after_forward", options));
  if (version != 1 || reshard == nullptr || AsBool(*reshard) != true) return;
  options.findings().Problem(reshard->place,
                             "is true, which transformers refuses for version "
                             "1; write full_shard, or version: 2");
}

void ReadOptions(const Node& node, TrainConfig& config, Findings& findings) {
  Section options(node, findings);
  ReadFsdpOptions(options, config);
  RefuseBoolInVersion1(options, *config.sharding.fsdp_version);
  options.Read(OptionKey("cpu_offload", options), config.sharding.cpu_offload);
  options.Ignore(OptionKey("activation_checkpointing_offload", options),
                 "transformers does not hand it to accelerate");
  RefuseXla(options);
  options.Finish();
  ShardingConfig& sharding = config.sharding;
  if (*sharding.auto_wrap_policy == AutoWrapPolicy::kSizeBasedWrap &&
      !sharding.min_num_params.place().has_value()) {
    const SourceLocation place =
        SettingPlace(sharding.auto_wrap_policy, "auto_wrap_policy");
    sharding.auto_wrap_policy =
        Setting<AutoWrapPolicy>(AutoWrapPolicy::kNoWrap, place);
    findings.Changed(place,
                     "is read as NO_WRAP, because there is no min_num_params");
  }
}

void ReadPrecision(Section& root, bool is_sharded, TrainConfig& config) {
  Setting<bool> bf16 = false;
  Setting<bool> fp16 = false;
  root.Read("bf16", bf16);
  root.Read("fp16", fp16);
  if (*bf16 && *fp16) {
    root.findings().Problem(SettingPlace(fp16, "fp16"),
                            absl::StrCat("is true, and so is ",
                                         to_string(SettingPlace(bf16, "bf16")),
                                         "; keep one of the two"));
  } else if (*bf16) {
    SetMixedPrecision(dcp::DType::kBFloat16, SettingPlace(bf16, "bf16"),
                      config);
  } else if (*fp16) {
    SetMixedPrecision(dcp::DType::kFloat16, SettingPlace(fp16, "fp16"), config);
  }
  const Setting<std::optional<dcp::DType>> type = config.precision.param_dtype;
  if (!is_sharded) {
    CastCopies(*type, SettingPlace(type, "param_dtype"), config.precision);
  }
}

// The Trainer has keys that compute activations again, which must not be
// combined with the FSDP option.
void ReadGradientCheckpointing(Section& root, TrainConfig& config) {
  for (const absl::string_view key :
       {"gradient_checkpointing", "activation_checkpointing"}) {
    Setting<bool> asked;
    if (!root.Read(key, asked) || !*asked) continue;
    Setting<int64_t>& every = config.sharding.activation_checkpointing;
    if (*every > 0) {
      root.findings().Problem(
          SettingPlace(asked, key),
          absl::StrCat(
              "is true, and so is ",
              to_string(SettingPlace(every, "activation_checkpointing")),
              "; keep the latter"));
      continue;
    }
    every = Setting<int64_t>(1, SettingPlace(asked, key));
  }
  root.Find("gradient_checkpointing_kwargs");
  root.Find("activation_checkpointing_kwargs");
}

// A key from TRL, which extends TrainingArguments.
void ReadActivationOffload(Section& root, ShardingConfig& sharding) {
  Setting<bool> offloads;
  if (root.Read("activation_offloading", offloads) && *offloads) {
    sharding.activation_cpu_offload = offloads;
  }
}

void ReadSaveInterval(Section& root, TrainConfig& config) {
  CheckpointConfig& checkpoint = config.checkpoint;
  const Node* steps = root.Find("save_steps");
  const Node* strategy = root.Find("save_strategy");
  if (strategy != nullptr && !absl::EqualsIgnoreCase(strategy->text, "steps")) {
    checkpoint.interval = Setting<int64_t>(0, strategy->place);
    const std::optional<bool> is_on = AsBool(*strategy);
    if (is_on != false) {
      root.findings().Changed(strategy->place,
                              "is read as a save after the last step alone");
    }
    return;
  }
  if (steps == nullptr) {
    if (!checkpoint.folder->empty()) checkpoint.interval = kSaveSteps;
    return;
  }
  const std::optional<double> share = AsReal(*steps);
  if (share.has_value() && *share > 0 && *share < 1) {
    checkpoint.interval = Setting<int64_t>(0, steps->place);
    root.findings().Changed(steps->place,
                            "is a share of all steps, and is read as a save "
                            "after the last alone; write a number of steps");
    return;
  }
  root.Read("save_steps", IntegerRange{.least = 1}, checkpoint.interval);
}

void ReadCheckpoint(Section& root, TrainConfig& config) {
  CheckpointConfig& checkpoint = config.checkpoint;
  root.Read("output_dir", checkpoint.folder);
  ReadSaveInterval(root, config);
  root.Read("save_total_limit", IntegerRange{}, checkpoint.keep_latest_k);
  Setting<bool> only_model;
  if (root.Read("save_only_model", only_model) && *only_model) {
    checkpoint.last_save_model_only = only_model;
    root.findings().Changed(SettingPlace(only_model, "save_only_model"),
                            "is read for the last save alone");
  }
  const Node* resume = root.Find("resume_from_checkpoint");
  if (resume != nullptr && !AsBool(*resume).has_value()) {
    root.Read("resume_from_checkpoint", checkpoint.initial_load_path);
  }
}

void ReadLoop(Section& root, TrainConfig& config) {
  LoopConfig& loop = config.loop;
  // -1: as many as the epochs need.
  Setting<int64_t> steps;
  if (root.Read("max_steps", IntegerRange{.least = -1}, steps) && *steps > 0) {
    loop.steps = Setting<std::optional<int64_t>>(
        *steps, SettingPlace(steps, "max_steps"));
  }
  constexpr IntegerRange kOne{.least = 1};
  root.Read("per_device_train_batch_size", kOne, loop.local_batch_size);
  root.Read("gradient_accumulation_steps", kOne,
            loop.gradient_accumulation_steps);
  root.Read("seed", IntegerRange{}, loop.seed);
  root.Read("max_grad_norm", RealRange{}, loop.max_norm);
  root.Read("learning_rate", RealRange{}, loop.lr);
  root.Read("weight_decay", RealRange{}, loop.weight_decay);
  root.Read("adam_beta1", RealRange{}, loop.beta1);
  root.Read("adam_beta2", RealRange{}, loop.beta2);
  root.Read("adam_epsilon", RealRange{}, loop.eps);
  ReadLrScheduler("lr_scheduler_type", root, loop);
}

// Without fsdp the Trainer makes copies of the model (DDP) and ignores
// fsdp_config.
void ReadCopies(Section& root, TrainConfig& config) {
  Findings& findings = root.findings();
  const Setting<int64_t> shard = config.mesh.data_parallel_shard_degree;
  if (*shard != kShardOverRest && *shard != 1) {
    findings.Problem(SettingPlace(shard, "dp_shard_size"),
                     absl::StrCat("is ", *shard,
                                  ", but without fsdp: true nothing is "
                                  "sharded; write that as well"));
  }
  const Node* fsdp = root.Find("fsdp");
  if (*shard == kShardOverRest) {
    ReadAsCopies(fsdp == nullptr ? root.node().place : fsdp->place,
                 fsdp == nullptr ? "has no fsdp: true, and is"
                                 : "is off, and TrainingArguments are",
                 config.mesh, findings);
  }
  const Node* options = root.Find("fsdp_config");
  if (options != nullptr &&
      (!options->entries.empty() || !options->text.empty())) {
    root.Ignore("fsdp_config",
                "transformers reads it only together with fsdp: true");
  }
}

void ReadArguments(Section& root, TrainConfig& config) {
  Findings& findings = root.findings();
  bool has_mesh = false;
  if (const Node* node = root.Find("parallelism_config"); node != nullptr) {
    Section parallelism(*node, findings);
    has_mesh = ReadParallelismOptions(parallelism, config.mesh);
    parallelism.Finish();
  }
  const bool is_sharded = AsksForFsdp(root.Find("fsdp"));
  const Node* options = root.Find("fsdp_config");
  const Node* own = root.Find("distributed_config");
  if (own != nullptr && is_sharded) {
    findings.Problem(own->place,
                     "is given together with fsdp; keep only one of them");
  } else if (own != nullptr) {
    ReadDistributedConfig(*own, config, findings);
  } else if (!is_sharded) {
    ReadCopies(root, config);
  } else if (options != nullptr && options->kind == Node::Kind::kString) {
    findings.Problem(
        options->place,
        "names another file; copy the options from that file to here");
  } else if (options != nullptr) {
    ReadOptions(*options, config, findings);
  }
  if (is_sharded) ReadFsdpWords(*root.Find("fsdp"), config, findings);
  if (has_mesh) CheckMeshSizes(is_sharded, config, findings);
  ReadPrecision(root, is_sharded, config);
  ReadGradientCheckpointing(root, config);
  ReadActivationOffload(root, config.sharding);
  ReadCheckpoint(root, config);
  ReadLoop(root, config);
  ReadOptimizerName("optim", root);
  root.Refuse("deepspeed", "", "there is no DeepSpeed here");
  for (const absl::string_view moved :
       {"fsdp_min_num_params", "fsdp_transformer_layer_cls_to_wrap"}) {
    root.Refuse(moved, "0", "it belongs in fsdp_config, without fsdp_");
  }
  root.Find("optim_target_modules");  // for optimizers other than AdamW
  root.FinishLenient("they are for the Trainer");
}

}  // namespace

void ReadTransformers(const Node& root_node, TrainConfig& config,
                      Findings& findings) {
  SetTransformersDefaults(config);
  if (IsDistributedConfig(root_node)) {
    ReadDistributedConfig(root_node, config, findings);
    return;
  }
  if (IsOptionsAlone(root_node)) {
    ReadOptions(root_node, config, findings);
    return;
  }
  SetLoopDefaults(config.loop);
  Section root(root_node, findings);
  ReadArguments(root, config);
}

}  // namespace fsdp::config
