// SPDX-License-Identifier: Apache-2.0

#include "config/dialect_of.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "config/dialects/fields/fsdp_words.h"
#include "config/dialects/fields/known_programs.h"
#include "config/dialects/transformers/distributed.h"
#include "config/document/scalar.h"

namespace fsdp::config {
namespace {

using Kind = Node::Kind;

// A dialect's keys. Many words, such as output_dir and seed, are in the files
// of half of all programs, so they are not listed here. One key decides only if
// no other program has it.
struct DialectKeys {
  absl::Span<const absl::string_view> sure;     // one of them decides
  absl::Span<const absl::string_view> typical;  // two of them decide
};

constexpr absl::string_view kSureAccelerateKeys[] = {
    "distributed_type",
    "fsdp_config_file",
    "main_training_function",
};
constexpr absl::string_view kTypicalAccelerateKeys[] = {
    "compute_environment", "downcast_bf16",     "dynamo_config",
    "enable_cpu_affinity", "gpu_ids",           "machine_rank",
    "main_process_ip",     "main_process_port", "megatron_lm_config",
    "num_machines",        "num_processes",     "rdzv_backend",
    "same_network",        "tpu_use_cluster",   "use_cpu",
};
// Nearly all files of axolotl have the first three, and need the first.
constexpr absl::string_view kTypicalAxolotlKeys[] = {
    "base_model",
    "micro_batch_size",
    "sequence_len",
    "adapter",
    "chat_template",
    "dataset_prepared_path",
    "datasets",
    "dp_shard_size",
    "fsdp_version",
    "load_in_4bit",
    "load_in_8bit",
    "num_epochs",
    "pad_to_sequence_len",
    "pretraining_dataset",
    "rl",
    "sample_packing",
    "saves_per_epoch",
    "tokenizer_type",
    "val_set_size",
};
// Keys from LLM Foundry and from Composer's Trainer.
constexpr absl::string_view kTypicalComposerKeys[] = {
    "algorithms",
    "device_eval_batch_size",
    "device_train_batch_size",
    "device_train_microbatch_size",
    "eval_interval",
    "global_train_batch_size",
    "load_weights_only",
    "max_duration",
    "save_folder",
    "save_interval",
    "train_loader",
};
// Options in Composer's blocks that transformers does not have.
constexpr absl::string_view kComposerBlockKeys[] = {
    "sharding_strategy",
    "mixed_precision",
    "load_monolith_rank0_only",
    "activation_cpu_offload",
    "activation_checkpointing_reentrant",
    "auto_wrap",
    "te_checkpoint_wrapper",
    "te_shard_fp8_weight",
    "backward_prefetch_limit",
    "forward_prefetch_limit",
    "keep_low_precision_grads",
    "sharded_ckpt_prefix_dir",
    "data_parallel_shard_degree",
    "data_parallel_replicate_degree",
    "verbose",
};
// Options that Composer's blocks share with other programs' maps.
constexpr absl::string_view kSharedByComposerBlocks[] = {
    "activation_checkpointing", "cpu_offload",       "device_mesh",
    "reshard_after_forward",    "state_dict_type",   "ignored_modules",
    "limit_all_gathers",        "backward_prefetch", "use_orig_params",
};
// TrainingArguments' keys that other programs do not share.
constexpr absl::string_view kTypicalTransformersKeys[] = {
    "activation_offloading",
    "adam_beta1",
    "adam_beta2",
    "adam_epsilon",
    "bf16",
    "ddp_find_unused_parameters",
    "ddp_timeout",
    "eval_strategy",
    "evaluation_strategy",
    "fp16",
    "fsdp_config",
    "gradient_checkpointing",
    "gradient_checkpointing_kwargs",
    "group_by_length",
    "load_best_model_at_end",
    "logging_strategy",
    "lr_scheduler_kwargs",
    "lr_scheduler_type",
    "num_train_epochs",
    "optim",
    "per_device_eval_batch_size",
    "per_device_train_batch_size",
    "remove_unused_columns",
    "report_to",
    "save_strategy",
    "save_total_limit",
    "warmup_ratio",
};
// Keys in a file that fsdp_config names.
constexpr absl::string_view kSureFsdpOptionsKeys[] = {
    "fsdp_auto_wrap_policy",
    "fsdp_cpu_ram_efficient_loading",
    "fsdp_min_num_params",
    "fsdp_reshard_after_forward",
    "fsdp_sharding_strategy",
    "fsdp_state_dict_type",
    "fsdp_transformer_layer_cls_to_wrap",
    "transformer_layer_cls_to_wrap",
    "xla_fsdp_grad_ckpt",
    "xla_fsdp_settings",
    "xla_fsdp_v2",
};
constexpr absl::string_view kTypicalFsdpOptionsKeys[] = {
    "activation_checkpointing",
    "auto_wrap_policy",
    "backward_prefetch",
    "cpu_offload",
    "cpu_ram_efficient_loading",
    "forward_prefetch",
    "fsdp_activation_checkpointing",
    "fsdp_version",
    "limit_all_gathers",
    "min_num_params",
    "reshard_after_forward",
    "state_dict_type",
    "sync_module_states",
    "use_orig_params",
    "xla",
};
// Keys in TorchTitan's sections. A section's name counts as a second key if no
// other program has the key in it.
struct SectionKeys {
  absl::string_view section;
  DialectKeys keys;
};
constexpr absl::string_view kParallelismKeys[] = {
    "context_parallel_degree",      "data_parallel_replicate_degree",
    "data_parallel_shard_degree",   "disable_loss_parallel",
    "enable_async_tensor_parallel", "expert_parallel_degree",
    "fsdp_reshard_after_forward",   "pipeline_parallel_degree",
    "tensor_parallel_degree"};
constexpr absl::string_view kSureTrainingKeys[] = {
    "data_parallel_degree", "data_parallel_replicate_degree",
    "data_parallel_shard_degree", "tensor_parallel_degree"};
constexpr absl::string_view kTypicalTrainingKeys[] = {"enable_cpu_offload",
                                                      "local_batch_size",
                                                      "max_norm",
                                                      "mixed_precision_reduce",
                                                      "seq_len",
                                                      "mixed_precision_param",
                                                      "steps"};
constexpr absl::string_view kActivationsKeys[] = {"mode",
                                                  "selective_ac_option"};
constexpr absl::string_view kCheckpointKeys[] = {
    "async_mode",        "enable_checkpoint",    "export_dtype",
    "initial_load_path", "last_save_model_only", "keep_latest_k",
    "model_weights_only"};
constexpr absl::string_view kJobKeys[] = {"config_file", "description",
                                          "dump_folder"};
constexpr absl::string_view kModelKeys[] = {"flavor", "hf_assets_path",
                                            "tokenizer_path"};
constexpr absl::string_view kExperimentalKeys[] = {"context_parallel_degree",
                                                   "custom_args_module",
                                                   "pipeline_parallel_degree"};
constexpr SectionKeys kTorchTitanKeys[] = {
    {"parallelism", {kParallelismKeys, {}}},
    {"training", {kSureTrainingKeys, kTypicalTrainingKeys}},
    {"activation_checkpoint", {{}, kActivationsKeys}},
    {"checkpoint", {{}, kCheckpointKeys}},
    {"job", {{}, kJobKeys}},
    {"model", {{}, kModelKeys}},
    {"experimental", {{}, kExperimentalKeys}},
};

size_t CountKeys(const Node* map, absl::Span<const absl::string_view> keys) {
  if (map == nullptr) return 0;
  size_t count = 0;
  for (const absl::string_view key : keys) {
    if (map->Find(key) != nullptr) ++count;
  }
  return count;
}

// Two typical keys, or one that no other program has, are worth 2.
constexpr size_t kEnough = 2;
size_t KeysWorth(const Node* map, const DialectKeys& keys) {
  return kEnough * CountKeys(map, keys.sure) + CountKeys(map, keys.typical);
}

// Whether all options have accelerate's prefix and no key is one of
// TrainingArguments. Also true for a file that lacks distributed_type, which
// the reader then reports.
bool HasAcceleratesOptions(const Node& root) {
  const Node* options = root.Find("fsdp_config");
  if (options == nullptr || options->entries.empty()) return false;
  for (const absl::string_view key : {"fsdp", "output_dir", "bf16", "fp16"}) {
    if (root.Find(key) != nullptr) return false;
  }
  return std::all_of(options->entries.begin(), options->entries.end(),
                     [](const Node::Entry& entry) {
                       return absl::StartsWith(entry.key, "fsdp_");
                     });
}

bool IsAccelerate(const Node& root) {
  return KeysWorth(&root, {kSureAccelerateKeys, kTypicalAccelerateKeys}) >=
             kEnough ||
         HasAcceleratesOptions(root);
}

// Some axolotl files are parts of others, without base_model.
bool IsAxolotl(const Node& root) {
  const size_t count = CountKeys(&root, kTypicalAxolotlKeys);
  const Node* model = root.Find("base_model");
  if (model != nullptr) return model->is_scalar() && count >= kEnough;
  return root.Find("sequence_len") != nullptr && count > kEnough;
}

// In TrainingArguments, fsdp is true or a list of FSDP words; in other programs
// it is a map.
size_t FsdpWorth(const Node& root) {
  const Node* fsdp = root.Find("fsdp");
  if (fsdp == nullptr || fsdp->kind == Kind::kMap) return 0;
  TrainConfig unused;
  Findings findings;
  const bool has_words = AsksForFsdp(fsdp) && !AsBool(*fsdp).has_value();
  if (has_words) ReadFsdpWords(*fsdp, unused, findings);
  return has_words && !findings.has_problems() ? kEnough : 1;
}

// Whether a map has mesh sizes. Composer has such a map with other keys.
bool HasMeshSizes(const Node& root) {
  const Node* parallelism = root.Find("parallelism_config");
  return parallelism != nullptr &&
         std::any_of(parallelism->entries.begin(), parallelism->entries.end(),
                     [](const Node::Entry& entry) {
                       return absl::EndsWith(entry.key, "_size");
                     });
}

bool IsTrainingArguments(const Node& root) {
  return CountKeys(&root, kTypicalTransformersKeys) + FsdpWorth(root) +
             (HasMeshSizes(root) ? 1 : 0) >=
         kEnough;
}

// Whether these are only FSDP options, as in transformers' fsdp_config or in a
// file that it names.
bool IsFsdpOptions(const Node& root) {
  const DialectKeys keys = {kSureFsdpOptionsKeys, kTypicalFsdpOptionsKeys};
  if (KeysWorth(root.Find("fsdp_config"), keys) > 0) return true;
  // Many kinds of files have a version, so the value is checked.
  const Node* version = root.Find("version");
  const bool has_version = version != nullptr &&
                           version->kind == Kind::kInteger &&
                           (version->text == "1" || version->text == "2");
  return KeysWorth(&root, keys) + (has_version ? 1 : 0) >= kEnough;
}

// How much a Composer block, under any name, is worth. A Python dict may
// contain nothing else, and is worth enough even if it is empty.
size_t ComposerBlockWorth(const Node& root) {
  if (CountKeys(root.Find("fsdp_config"), kComposerBlockKeys) > 0)
    return kEnough;
  for (const absl::string_view key : {"fsdp", "fsdp2"}) {
    const Node* block = root.Find(key);
    if (block == nullptr || block->kind != Kind::kMap) continue;
    if (key == "fsdp2" || root.entries.size() == 1 ||
        CountKeys(block, kComposerBlockKeys) > 0 ||
        CountKeys(block, kSharedByComposerBlocks) > 0) {
      return kEnough;
    }
  }
  return root.Find("fsdp_config") != nullptr ? 1 : 0;
}

bool IsComposer(const Node& root) {
  const Node* parallelism = root.Find("parallelism_config");
  if (parallelism != nullptr && !HasMeshSizes(root) &&
      CountKeys(parallelism, {"fsdp", "fsdp2", "tp"}) > 0) {
    return true;
  }
  return CountKeys(&root, kTypicalComposerKeys) + ComposerBlockWorth(root) >=
         kEnough;
}

bool IsTorchTitan(const Node& root) {
  size_t worth = 0;
  for (const auto& [section, keys] : kTorchTitanKeys) {
    const Node* node = root.Find(section);
    if (node == nullptr || node->kind != Kind::kMap) continue;
    worth += KeysWorth(node, keys);
    // A section alone counts, so that a misspelt key in it is reported.
    if (section == "parallelism" && !node->entries.empty() &&
        std::all_of(node->entries.begin(), node->entries.end(),
                    [](const Node::Entry& entry) {
                      return absl::StrContains(entry.key, "parallel");
                    })) {
      worth += kEnough;
    }
  }
  return worth >= kEnough;
}

}  // namespace

Syntax DetectSyntax(absl::string_view name, absl::string_view text) {
  if (absl::EndsWithIgnoreCase(name, ".toml")) return Syntax::kToml;
  if (absl::EndsWithIgnoreCase(name, ".json")) return Syntax::kJson;
  if (absl::EndsWithIgnoreCase(name, ".yaml") ||
      absl::EndsWithIgnoreCase(name, ".yml")) {
    return Syntax::kYaml;
  }
  const absl::string_view start = absl::StripLeadingAsciiWhitespace(text);
  if (absl::StartsWith(start, "{")) {
    // A Python dict looks like JSON but is not JSON.
    Findings findings;
    (void)ParseDocument(name, text, Syntax::kJson, findings);
    return findings.has_problems() ? Syntax::kYaml : Syntax::kJson;
  }
  return absl::StartsWith(start, "[") ? Syntax::kToml : Syntax::kYaml;
}

const Node& ConfigRoot(const Node& root) {
  const Node* parameters = root.Find("parameters");
  const bool is_run =
      parameters != nullptr && parameters->kind == Kind::kMap &&
      FindKnownProgram(root).name.empty() &&
      (root.Find("command") != nullptr || root.Find("compute") != nullptr ||
       root.Find("image") != nullptr);
  return is_run ? *parameters : root;
}

std::optional<ConfigDialect> DetectDialect(const Node& root) {
  const KnownProgram known = FindKnownProgram(root);
  if (!known.name.empty()) return known.dialect;
  if (IsAxolotl(root)) return ConfigDialect::kAxolotl;
  if (IsAccelerate(root)) return ConfigDialect::kAccelerate;
  if (IsTrainingArguments(root)) return ConfigDialect::kTransformers;
  if (IsComposer(root)) return ConfigDialect::kComposer;
  if (IsFsdpOptions(root) || IsDistributedConfig(root)) {
    return ConfigDialect::kTransformers;
  }
  if (IsTorchTitan(root)) return ConfigDialect::kTorchTitan;
  return std::nullopt;
}

bool IsTorchTitanProgram(absl::string_view text) {
  bool imports = false;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    imports = imports || absl::StartsWith(line, "from torchtitan") ||
              absl::StartsWith(line, "import torchtitan");
  }
  return absl::StrContains(text, "-> Trainer.Config:") ||
         (imports && (absl::StrContains(text, "ParallelismConfig(") ||
                      absl::StrContains(text, "Trainer.Config(")));
}

}  // namespace fsdp::config
