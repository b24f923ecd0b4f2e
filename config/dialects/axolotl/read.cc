// SPDX-License-Identifier: Apache-2.0
// Reads axolotl's YAML, as of version 0.13. The FSDP options are accelerate's;
// axolotl passes them on as variables. The rest are axolotl's own names for
// TrainingArguments. Without fsdp_config it trains copies of the model.
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "config/dialects/axolotl/axolotl.h"
#include "config/dialects/axolotl/mesh.h"
#include "config/dialects/fields/config_writer.h"
#include "config/dialects/fields/copies.h"
#include "config/dialects/fields/float8.h"
#include "config/dialects/fields/fsdp_options.h"
#include "config/dialects/fields/fsdp_words.h"
#include "config/dialects/fields/keys.h"
#include "config/dialects/fields/lr_scheduler.h"
#include "config/dialects/fields/optimizer_name.h"
#include "config/document/section.h"

namespace fsdp::config {
namespace {

void SetAxolotlDefaults(TrainConfig& config) {
  config = TrainConfig();
  config.sharding.fsdp_version = 1;
  config.sharding.reshard_after_forward = ReshardSetting(true);
  config.sharding.auto_wrap_policy = AutoWrapPolicy::kNoWrap;
}

void ReadFsdpConfig(const Node& node, TrainConfig& config, Findings& findings) {
  Section options(node, findings);
  ReadFsdpOptions(options, config);
  options.Read(OptionKey("offload_params", options),
               config.sharding.cpu_offload);
  options.Ignore(
      OptionKey("activation_checkpointing_offload", options),
      "axolotl does not hand it to accelerate; write activation_offloading");
  options.Find(OptionKey("cpu_offload_pin_memory", options));
  const std::string final_type = OptionKey("final_state_dict_type", options);
  const Choices<StateDictType> kTypes = {
      {"SHARDED_STATE_DICT", StateDictType::kShardedStateDict},
      {"FULL_STATE_DICT", StateDictType::kFullStateDict}};
  options.Read(final_type, kTypes, config.checkpoint.state_dict_type);
  const std::string policy = OptionKey("mixed_precision_policy", options);
  ReadMixedPrecision(policy, options, config);
  options.Finish();
}

// fsdp_version is next to fsdp_config or inside it.
void ReadVersions(Section& root, const Node& options, TrainConfig& config) {
  Setting<int64_t>& version = config.sharding.fsdp_version;
  const int64_t outside = *version;
  const bool is_outside = version.place().has_value();
  ReadFsdpConfig(options, config, root.findings());
  if (!is_outside || *version == outside) return;
  root.findings().Problem(
      SettingPlace(version, "fsdp_config.fsdp_version"),
      absl::StrCat("is ", *version,
                   ", but fsdp_version next to fsdp_config is ", outside,
                   "; keep one of the two"));
}

// Returns whether the file has FSDP options.
bool ReadSharding(Section& root, TrainConfig& config) {
  root.Read("fsdp_version", IntegerRange{.least = 1, .most = 2},
            config.sharding.fsdp_version);
  const Node* words = root.Find("fsdp");
  const Node* options = root.Find("fsdp_config");
  const bool has_options = options != nullptr && !options->entries.empty();
  const bool is_fsdp = has_options || AsksForFsdp(words);
  // The degrees come first because a strategy's meaning depends on them.
  ReadAxolotlMesh(root, is_fsdp, config.mesh);
  if (has_options) ReadVersions(root, *options, config);
  if (AsksForFsdp(words)) ReadFsdpWords(*words, config, root.findings());
  return is_fsdp;
}

// The values are true, false, auto (the best type that the GPU supports), and
// full (weights in bfloat16 too).
void ReadAxolotlPrecision(Section& root, bool is_fsdp, TrainConfig& config) {
  if (config.precision.param_dtype.place().has_value()) return;
  const auto find = [&root](absl::string_view name, absl::string_view other) {
    const Node* first = root.Find(name);
    const Node* second = root.Find(other);
    return first == nullptr ? second : first;
  };
  const Node* bf16 = find("bf16", "bfloat16");
  const Node* fp16 = find("fp16", "float16");
  const auto is_on = [&root](const Node* node) {
    if (node == nullptr) return false;
    if (absl::EqualsIgnoreCase(node->text, "auto") ||
        absl::EqualsIgnoreCase(node->text, "full")) {
      return true;
    }
    const std::optional<bool> value = AsBool(*node);
    if (!value.has_value()) {
      root.findings().Problem(
          node->place,
          absl::StrCat("is '", node->text, "', not true, false, auto or full"));
    }
    return value.value_or(false);
  };
  const bool is_bf16 = is_on(bf16);
  if (!is_bf16 && !is_on(fp16)) return;
  const SourceLocation& place = is_bf16 ? bf16->place : fp16->place;
  const dcp::DType type =
      is_bf16 ? dcp::DType::kBFloat16 : dcp::DType::kFloat16;
  if (!is_fsdp || AreCopies(config.mesh)) {
    CastCopies(type, place, config.precision);
  } else {
    SetMixedPrecision(type, place, config);
  }
}

// Reads a switch that may also have one of `words` as the value; each word
// means on. Returns null if it is absent or off, or after a problem.
const Node* FindSwitch(absl::string_view key, const Choices<bool>& words,
                       Section& root) {
  const Node* node = root.Find(key);
  if (node == nullptr) return nullptr;
  if (const std::optional<bool> is_on = AsBool(*node)) {
    return *is_on ? node : nullptr;
  }
  Setting<bool> word;
  return root.Read(key, words, word) ? node : nullptr;
}

void Offload(const Node& asked, absl::string_view disk, Section& root,
             ShardingConfig& sharding) {
  sharding.activation_cpu_offload = Setting<bool>(true, asked.place);
  if (!absl::EqualsIgnoreCase(asked.text, disk)) return;
  root.findings().Changed(asked.place,
                          "is read as an offload to the memory of the CPU: "
                          "activations are not written to a disk");
}

// The words of gradient_checkpointing are the older spelling of
// activation_offloading. The newer words select the axolotl code that does it.
void ReadAxolotlActivations(Section& root, ShardingConfig& sharding) {
  const Node* recomputes = FindSwitch("gradient_checkpointing",
                                      {{"true", true},
                                       {"false", true},
                                       {"offload", true},
                                       {"offload_disk", true},
                                       {"unsloth", true}},
                                      root);
  const Node* offloads = FindSwitch("activation_offloading",
                                    {{"true", true},
                                     {"false", true},
                                     {"legacy", true},
                                     {"disk", true},
                                     {"hidden_states", true}},
                                    root);
  root.Find("gradient_checkpointing_kwargs");
  if (recomputes != nullptr) {
    if (*sharding.activation_checkpointing == 0) {
      sharding.activation_checkpointing =
          Setting<int64_t>(1, recomputes->place);
    }
    if (!AsBool(*recomputes).has_value()) {
      Offload(*recomputes, "offload_disk", root, sharding);
    }
  }
  if (offloads != nullptr) Offload(*offloads, "disk", root, sharding);
}

void ReadCheckpoint(Section& root, CheckpointConfig& checkpoint) {
  root.Read("output_dir", checkpoint.folder);
  root.Read("save_total_limit", IntegerRange{}, checkpoint.keep_latest_k);
  const Node* steps = root.Find("save_steps");
  const std::optional<double> count =
      steps == nullptr ? std::nullopt : AsReal(*steps);
  if (count.has_value() && *count > 0 && *count < 1) {
    root.findings().Changed(steps->place,
                            "is a share of all steps, and is read as a save "
                            "after the last alone; write a number of steps");
  } else if (steps != nullptr) {
    root.Read("save_steps", IntegerRange{.least = 1}, checkpoint.interval);
  }
  for (const absl::string_view key : {"save_strategy", "saves_per_epoch"}) {
    const Node* node = root.Find(key);
    if (node == nullptr || steps != nullptr ||
        absl::EqualsIgnoreCase(node->text, "steps")) {
      continue;
    }
    root.findings().Changed(
        node->place,
        "is read as a save after the last step alone; write save_steps");
  }
}

// The defaults of TrainingArguments, which receive axolotl's keys.
void SetAxolotlLoopDefaults(LoopConfig& loop) {
  loop.weight_decay = std::optional(0.0);
  loop.max_norm = std::optional(1.0);
  loop.beta1 = std::optional(0.9);
  loop.beta2 = std::optional(0.999);
  loop.eps = std::optional(1e-8);
  loop.lr_schedule = std::optional(LrSchedule{.decay = LrDecay::kCosine});
}

void ReadLoop(Section& root, LoopConfig& loop) {
  SetAxolotlLoopDefaults(loop);
  Setting<int64_t> steps;
  if (root.Read("max_steps", IntegerRange{.least = -1}, steps) && *steps > 0) {
    loop.steps = Some(*steps, SettingPlace(steps, "max_steps"));
  }
  constexpr IntegerRange kOne{.least = 1};
  root.Read("micro_batch_size", kOne, loop.local_batch_size);
  root.Read("gradient_accumulation_steps", kOne,
            loop.gradient_accumulation_steps);
  root.Read("sequence_len", kOne, loop.seq_len);
  root.Read("seed", IntegerRange{}, loop.seed);
  root.Read("max_grad_norm", RealRange{}, loop.max_norm);
  root.Read("learning_rate", RealRange{}, loop.lr);
  root.Read("weight_decay", RealRange{}, loop.weight_decay);
  ReadOptimizerName("optimizer", root);
  root.Read("adam_beta1", RealRange{}, loop.beta1);
  root.Read("adam_beta2", RealRange{}, loop.beta2);
  root.Read("adam_epsilon", RealRange{}, loop.eps);
  ReadLrScheduler("lr_scheduler", root, loop);
}

// Keys that change base_model into another model, which the program has to do.
void IgnoreModel(Section& root) {
  for (const absl::string_view key :
       {"adapter", "load_in_8bit", "load_in_4bit"}) {
    const Node* node = root.Find(key);
    if (node == nullptr || AsBool(*node) == false || node->text.empty()) {
      continue;
    }
    root.findings().Ignored(
        node->place, absl::StrCat("has no effect: ", kProgramMakesModel));
  }
}

// Details of how axolotl does things; other keys say whether it does them.
void PassOverDetails(Section& root) {
  for (const absl::string_view key :
       {"expert_parallel_backend", "expert_parallel_fallback_on_unsupported",
        "expert_parallel_num_nvl_bytes", "expert_parallel_num_rdma_bytes",
        "expert_parallel_token_capacity", "fp8_enable_fsdp_float8_all_gather",
        "lr_div_factor", "optim_target_modules",
        "qlora_sharded_model_loading"}) {
    root.Find(key);
  }
}

}  // namespace

void ReadAxolotl(const Node& root_node, TrainConfig& config,
                 Findings& findings) {
  SetAxolotlDefaults(config);
  Section root(root_node, findings);
  const bool is_fsdp = ReadSharding(root, config);
  ReadAxolotlPrecision(root, is_fsdp, config);
  ReadAxolotlActivations(root, config.sharding);
  if (!config.checkpoint.state_dict_type.place().has_value()) {
    config.checkpoint.state_dict_type = *config.sharding.fsdp_version == 1
                                            ? StateDictType::kFullStateDict
                                            : StateDictType::kShardedStateDict;
  }
  ReadCheckpoint(root, config.checkpoint);
  ReadLoop(root, config.loop);
  IgnoreModel(root);
  root.Refuse("deepspeed", "", "there is no DeepSpeed here");
  root.Refuse("fp8", "false", WithoutFloat8("write bf16: true"));
  PassOverDetails(root);
  root.FinishLenient("they are for axolotl's model, data and logs");
}

}  // namespace fsdp::config
