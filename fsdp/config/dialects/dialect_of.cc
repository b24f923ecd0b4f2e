#include "fsdp/config/dialects/dialect_of.h"

#include <algorithm>
#include <cstddef>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"

namespace fsdp::config {
namespace {

using Kind = Node::Kind;

constexpr absl::string_view kOfAccelerate[] = {
    "compute_environment",
    "distributed_type",
    "downcast_bf16",
    "dynamo_config",
    "enable_cpu_affinity",
    "fsdp_config_file",
    "gpu_ids",
    "machine_rank",
    "main_process_ip",
    "main_process_port",
    "main_training_function",
    "megatron_lm_config",
    "num_machines",
    "num_processes",
    "rdzv_backend",
    "same_network",
    "tpu_use_cluster",
    "use_cpu",
};
// Keys of axolotl; nearly all of its files have the first three.
constexpr absl::string_view kOfAxolotl[] = {
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
constexpr size_t kNumSureOfAxolotl = 3;
// Keys of LLM Foundry and of Composer's Trainer.
constexpr absl::string_view kOfComposer[] = {
    "fsdp2",
    "max_duration",
    "device_train_microbatch_size",
    "global_train_batch_size",
    "device_train_batch_size",
    "train_loader",
};
// Keys of Composer's fsdp_config that transformers does not have.
constexpr absl::string_view kOfComposerFsdp[] = {
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
// Keys of TorchTitan's sections, enough to tell these from other programs'
// sections of the same names.
struct SectionKeys {
  absl::string_view section;
  std::vector<absl::string_view> keys;
};
const std::vector<SectionKeys>& OfTorchTitan() {
  static const auto& sections = *new std::vector<SectionKeys>{
      {"parallelism",
       {"context_parallel_degree", "data_parallel_replicate_degree",
        "data_parallel_shard_degree", "disable_loss_parallel",
        "enable_async_tensor_parallel", "expert_parallel_degree",
        "fsdp_reshard_after_forward", "pipeline_parallel_degree",
        "tensor_parallel_degree"}},
      {"training",
       {"data_parallel_degree", "data_parallel_replicate_degree",
        "data_parallel_shard_degree", "enable_cpu_offload", "local_batch_size",
        "max_norm", "mixed_precision_param", "mixed_precision_reduce",
        "seq_len", "steps", "tensor_parallel_degree"}},
      {"activation_checkpoint", {"mode", "selective_ac_option"}},
      {"checkpoint",
       {"async_mode", "enable_checkpoint", "initial_load_path", "keep_latest_k",
        "last_save_model_only", "model_weights_only"}},
      {"job", {"config_file", "description", "dump_folder"}},
      {"model", {"flavor", "hf_assets_path", "tokenizer_path"}},
      {"experimental",
       {"context_parallel_degree", "custom_args_module",
        "pipeline_parallel_degree"}},
  };
  return sections;
}

// Programs whose files are found near configs. A file has all keys of its row;
// a dot leads into a map.
struct OtherProgram {
  absl::string_view name;
  std::vector<absl::string_view> keys;
};
const std::vector<OtherProgram>& OtherPrograms() {
  static const auto& programs = *new std::vector<OtherProgram>{
      {"LLaMA-Factory", {"finetuning_type"}},
      {"LLaMA-Factory", {"stage", "template"}},
      {"LLaMA-Factory", {"cutoff_len", "template"}},
      {"nanotron", {"parallelism.dp"}},
      {"nanotron", {"parallelism.tp", "parallelism.pp"}},
      {"nanotron", {"general", "tokens"}},
      {"DeepSpeed", {"zero_optimization"}},
      {"DeepSpeed", {"train_micro_batch_size_per_gpu"}},
      {"NeMo", {"trainer.devices", "exp_manager"}},
      {"Cargo", {"package", "dependencies"}},
      {"Cargo", {"workspace.members"}},
      {"Python packaging (pyproject.toml)", {"build-system"}},
      {"Python packaging (pyproject.toml)", {"project.name"}},
      {"Python packaging (pyproject.toml)", {"tool"}},
      {"Docker Compose", {"services"}},
      {"GitHub Actions", {"jobs", "on"}},
      {"Kubernetes", {"apiVersion", "kind"}},
      {"npm", {"name", "scripts", "version"}},
      {"a model of transformers (config.json)", {"architectures"}},
      {"a model of transformers (config.json)", {"hidden_size", "model_type"}},
  };
  return programs;
}
// Keys of TrainingArguments, and of its fsdp_config when that is a separate
// file.
constexpr absl::string_view kOfTransformers[] = {
    "fsdp",
    "fsdp_config",
    "output_dir",
    "per_device_train_batch_size",
    "num_train_epochs",
    "gradient_checkpointing",
    "fsdp_version",
    "reshard_after_forward",
    "fsdp_reshard_after_forward",
    "auto_wrap_policy",
    "fsdp_auto_wrap_policy",
    "transformer_layer_cls_to_wrap",
    "fsdp_transformer_layer_cls_to_wrap",
    "min_num_params",
    "fsdp_min_num_params",
    "cpu_ram_efficient_loading",
    "fsdp_cpu_ram_efficient_loading",
    "state_dict_type",
    "fsdp_state_dict_type",
    "cpu_offload",
    "activation_checkpointing",
    "fsdp_activation_checkpointing",
    "fsdp_sharding_strategy",
    "backward_prefetch",
    "forward_prefetch",
    "limit_all_gathers",
    "use_orig_params",
    "sync_module_states",
    "xla",
    "xla_fsdp_v2",
    "xla_fsdp_settings",
    "xla_fsdp_grad_ckpt",
};

bool HasAny(const Node* map, absl::Span<const absl::string_view> keys) {
  if (map == nullptr) return false;
  for (absl::string_view key : keys) {
    if (map->Find(key) != nullptr) return true;
  }
  return false;
}

bool HasPath(const Node& root, absl::string_view path) {
  const Node* node = &root;
  for (const absl::string_view key : absl::StrSplit(path, '.')) {
    node = node->Find(key);
    if (node == nullptr) return false;
  }
  return true;
}

size_t CountOf(const Node& map, absl::Span<const absl::string_view> keys) {
  size_t count = 0;
  for (const absl::string_view key : keys) {
    if (map.Find(key) != nullptr) ++count;
  }
  return count;
}

bool IsAxolotl(const Node& root) {
  const absl::Span<const absl::string_view> keys = kOfAxolotl;
  return CountOf(root, keys) > 1 &&
         CountOf(root, keys.first(kNumSureOfAxolotl)) > 0;
}

bool IsTorchTitan(const Node& root) {
  for (const auto& [section, keys] : OfTorchTitan()) {
    const Node* node = root.Find(section);
    if (node == nullptr || node->kind != Kind::kMap) continue;
    if (HasAny(node, keys)) return true;
    // So that a misspelt key is reported.
    if (section == "parallelism" &&
        std::all_of(node->entries.begin(), node->entries.end(),
                    [](const Node::Entry& entry) {
                      return absl::StrContains(entry.key, "parallel");
                    })) {
      return true;
    }
  }
  return false;
}

// Recognizes a file of accelerate that lacks distributed_type, which its reader
// then reports: all options have accelerate's prefix, and no key is one of
// TrainingArguments.
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

// TrainingArguments has a parallelism_config as well, with the sizes of a mesh.
bool HasComposersParallelism(const Node& root) {
  const Node* parallelism = root.Find("parallelism_config");
  if (parallelism == nullptr) return false;
  for (const auto& [key, value] : parallelism->entries) {
    if (absl::EndsWith(key, "_size")) return false;
  }
  return true;
}

// The value is checked because many kinds of files have a version.
bool HasFsdpVersion(const Node& root) {
  const Node* version = root.Find("version");
  return version != nullptr && version->kind == Kind::kInteger &&
         (version->text == "1" || version->text == "2");
}

}  // namespace

Syntax SyntaxOf(absl::string_view name, absl::string_view text) {
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
      (root.Find("command") != nullptr || root.Find("compute") != nullptr ||
       root.Find("image") != nullptr);
  return is_run ? *parameters : root;
}

std::optional<Dialect> DialectOf(const Node& root) {
  if (!OtherProgramOf(root).empty()) return std::nullopt;
  if (IsAxolotl(root)) return Dialect::kAxolotl;
  if (HasAny(&root, kOfAccelerate)) return Dialect::kAccelerate;
  // In TrainingArguments, which has a parallelism_config of another kind, fsdp
  // is a word or a list. In Composer's files, which may contain nothing else,
  // it is a map.
  const Node* fsdp = root.Find("fsdp");
  if (fsdp != nullptr && fsdp->kind != Kind::kMap) {
    return Dialect::kTransformers;
  }
  if (HasAny(&root, kOfComposer) || HasComposersParallelism(root) ||
      fsdp != nullptr || HasAny(root.Find("fsdp_config"), kOfComposerFsdp)) {
    return Dialect::kComposer;
  }
  if (HasAcceleratesOptions(root)) return Dialect::kAccelerate;
  if (HasAny(&root, kOfTransformers) || HasFsdpVersion(root)) {
    return Dialect::kTransformers;
  }
  if (IsTorchTitan(root)) return Dialect::kTorchTitan;
  return std::nullopt;
}

absl::string_view OtherProgramOf(const Node& root) {
  for (const auto& [name, keys] : OtherPrograms()) {
    if (std::all_of(keys.begin(), keys.end(), [&](absl::string_view key) {
          return HasPath(root, key);
        })) {
      return name;
    }
  }
  return "";
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
