// Reading transformers' JSON: TrainingArguments, or the file that its
// fsdp_config names.
#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "fsdp/config/dialects.h"
#include "fsdp/config/fsdp1.h"
#include "fsdp/config/fsdp_options.h"
#include "fsdp/config/section.h"
#include "fsdp/config/writing.h"

namespace fsdp::config {
namespace {

// TrainingArguments saves every 500 steps unless it is told otherwise.
constexpr int64_t kSaveSteps = 500;

void SetDefaults(TrainConfig& config) {
  config = TrainConfig();
  config.sharding.reshard_after_forward = ReshardSetting(true);
  config.checkpoint.state_dict_type = StateDictType::kFullStateDict;
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
    RefuseTrue(KeyOf(key, options), kNoXla, options);
  }
  options.Refuse(KeyOf("xla_fsdp_settings", options), "", kNoXla);
}

void ReadOptions(const Node& node, TrainConfig& config, Findings& findings) {
  Section options(node, findings);
  ReadFsdpOptions(options, config);
  options.Read(KeyOf("cpu_offload", options), config.sharding.cpu_offload);
  RefuseXla(options);
  options.Finish();
  ShardingConfig& sharding = config.sharding;
  if (*sharding.auto_wrap_policy == AutoWrapPolicy::kSizeBasedWrap &&
      !sharding.min_num_params.place().has_value()) {
    const Place place = PlaceOf(sharding.auto_wrap_policy, "auto_wrap_policy");
    sharding.auto_wrap_policy =
        Setting<AutoWrapPolicy>(AutoWrapPolicy::kNoWrap, place);
    findings.Changed(place,
                     "is read as NO_WRAP, for there is no min_num_params");
  }
}

// One word of "full_shard auto_wrap offload". What fsdp_config says wins.
// False: it is none of them, and a problem said so.
bool ReadLegacyWord(absl::string_view word, const Place& place,
                    TrainConfig& config, Findings& findings) {
  ShardingConfig& sharding = config.sharding;
  if (word == "auto_wrap") return true;
  if (word == "offload") {
    if (!sharding.cpu_offload.place().has_value()) {
      sharding.cpu_offload = Setting<bool>(true, place);
    }
    return true;
  }
  const ShardingStrategy* strategy = FindShardingStrategy(word);
  if (strategy == nullptr) {
    findings.Problem(place,
                     "has other words than full_shard, shard_grad_op, offload "
                     "and auto_wrap; write true, and the rest in fsdp_config");
    return false;
  }
  const bool is_version_1 = *sharding.fsdp_version == 1;
  if (!is_version_1 && (strategy->is_hybrid || strategy->is_replicated)) {
    findings.Problem(place, absl::StrCat("has ", strategy->name,
                                         ", which is of FSDP1; write "
                                         "parallelism_config, or version: 1"));
    return false;
  }
  if (!sharding.reshard_after_forward.place().has_value()) {
    ApplyShardingStrategy(*strategy, place, config, findings);
  }
  return true;
}

// true, or as it was written before: words, in a string or a list.
void ReadEnabled(Section& root, TrainConfig& config) {
  const Node* fsdp = root.Find("fsdp");
  if (fsdp == nullptr) return;
  const std::optional<bool> enabled = AsBool(*fsdp);
  const bool is_empty = fsdp->text.empty() && fsdp->items.empty();
  if (enabled == false || is_empty) {
    root.findings().Problem(fsdp->place,
                            "is off, but all that is trained here is sharded");
  } else if (!enabled.has_value()) {
    std::vector<std::string> words;
    for (const Node& item : fsdp->items) words.push_back(item.text);
    if (fsdp->is_scalar()) {
      words = absl::StrSplit(fsdp->text, ' ', absl::SkipEmpty());
    }
    for (const std::string& word : words) {
      if (!ReadLegacyWord(word, fsdp->place, config, root.findings())) break;
    }
  }
}

void ReadPrecision(Section& root, TrainConfig& config) {
  Setting<bool> bf16 = false;
  Setting<bool> fp16 = false;
  root.Read("bf16", bf16);
  root.Read("fp16", fp16);
  if (*bf16 && *fp16) {
    root.findings().Problem(
        PlaceOf(fp16, "fp16"),
        absl::StrCat("is true, and so is ", to_string(PlaceOf(bf16, "bf16")),
                     "; keep one of the two"));
  } else if (*bf16) {
    SetMixedPrecision(dcp::DType::kBFloat16, PlaceOf(bf16, "bf16"), config);
  } else if (*fp16) {
    SetMixedPrecision(dcp::DType::kFloat16, PlaceOf(fp16, "fp16"), config);
  }
}

// The Trainer's own way to compute activations again, which may not meet that
// of FSDP.
void ReadGradientCheckpointing(Section& root, TrainConfig& config) {
  for (const absl::string_view key :
       {"gradient_checkpointing", "activation_checkpointing"}) {
    Setting<bool> asked;
    if (!root.Read(key, asked) || !*asked) continue;
    Setting<int64_t>& every = config.sharding.activation_checkpointing;
    if (*every > 0) {
      root.findings().Problem(
          PlaceOf(asked, key),
          absl::StrCat("is true, and so is ",
                       to_string(PlaceOf(every, "activation_checkpointing")),
                       "; keep the latter"));
      continue;
    }
    every = Setting<int64_t>(1, PlaceOf(asked, key));
  }
  root.Find("gradient_checkpointing_kwargs");
  root.Find("activation_checkpointing_kwargs");
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
    root.findings().Changed(PlaceOf(only_model, "save_only_model"),
                            "is read for the last save alone");
  }
  const Node* resume = root.Find("resume_from_checkpoint");
  if (resume != nullptr && !AsBool(*resume).has_value()) {
    root.Read("resume_from_checkpoint", checkpoint.initial_load_path);
  }
}

void ReadLoop(Section& root, TrainConfig& config) {
  LoopConfig& loop = config.loop;
  // -1: as many as the epochs take.
  Setting<int64_t> steps;
  if (root.Read("max_steps", IntegerRange{.least = -1}, steps) && *steps > 0) {
    loop.steps =
        Setting<std::optional<int64_t>>(*steps, PlaceOf(steps, "max_steps"));
  }
  constexpr IntegerRange kOne{.least = 1};
  root.Read("per_device_train_batch_size", kOne, loop.local_batch_size);
  root.Read("gradient_accumulation_steps", kOne,
            loop.gradient_accumulation_steps);
  root.Read("seed", IntegerRange{}, loop.seed);
  root.Read("max_grad_norm", RealRange{}, loop.max_norm);
  root.Read("learning_rate", RealRange{}, loop.lr);
  root.Read("weight_decay", RealRange{}, loop.weight_decay);
}

void ReadArguments(Section& root, TrainConfig& config) {
  Findings& findings = root.findings();
  if (const Node* node = root.Find("parallelism_config"); node != nullptr) {
    Section parallelism(*node, findings);
    ReadParallelismOptions(parallelism, config);
    parallelism.Finish();
  }
  const Node* options = root.Find("fsdp_config");
  if (options != nullptr && options->kind == Node::Kind::kString) {
    findings.Problem(options->place,
                     "names another file; put what that one says here");
  } else if (options != nullptr) {
    ReadOptions(*options, config, findings);
  }
  ReadEnabled(root, config);
  ReadPrecision(root, config);
  ReadGradientCheckpointing(root, config);
  ReadCheckpoint(root, config);
  ReadLoop(root, config);
  root.Refuse("deepspeed", "", "there is no DeepSpeed here");
  for (const absl::string_view moved :
       {"fsdp_min_num_params", "fsdp_transformer_layer_cls_to_wrap"}) {
    root.Refuse(moved, "0", "it belongs into fsdp_config, without fsdp_");
  }
  root.FinishLenient("they are for the Trainer");
}

}  // namespace

void ReadTransformers(const Node& root_node, TrainConfig& config,
                      Findings& findings) {
  SetDefaults(config);
  if (IsOptionsAlone(root_node)) {
    ReadOptions(root_node, config, findings);
    return;
  }
  Section root(root_node, findings);
  ReadArguments(root, config);
}

}  // namespace fsdp::config
