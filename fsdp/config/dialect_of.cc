#include "fsdp/config/dialect_of.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/types/span.h"

namespace fsdp::config {
namespace {

using Kind = Node::Kind;

constexpr absl::string_view kOfAccelerate[] = {
    "compute_environment", "distributed_type",       "machine_rank",
    "num_machines",        "main_training_function", "num_processes",
    "downcast_bf16",       "fsdp_config_file",
};
// Of LLM Foundry and Composer's Trainer.
constexpr absl::string_view kOfComposer[] = {
    "fsdp2",
    "max_duration",
    "device_train_microbatch_size",
    "global_train_batch_size",
    "device_train_batch_size",
    "train_loader",
};
// Keys of Composer's fsdp_config that transformers has not.
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
constexpr absl::string_view kOfTorchTitan[] = {
    "parallelism",
    "job",
};
// Of TrainingArguments, and of its fsdp_config when that is a file of its own.
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

// TrainingArguments have one as well, of the sizes of a mesh.
bool HasComposersParallelism(const Node& root) {
  const Node* parallelism = root.Find("parallelism_config");
  if (parallelism == nullptr) return false;
  for (const auto& [key, value] : parallelism->entries) {
    if (absl::EndsWith(key, "_size")) return false;
  }
  return true;
}

// Many kinds of files have a version.
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
    // A Python dict looks like JSON, and is not.
    Findings findings;
    (void)ParseDocument(name, text, Syntax::kJson, findings);
    return findings.has_problems() ? Syntax::kYaml : Syntax::kJson;
  }
  return absl::StartsWith(start, "[") ? Syntax::kToml : Syntax::kYaml;
}

std::optional<Dialect> DialectOf(absl::string_view name, const Node& root) {
  if (absl::EndsWithIgnoreCase(name, ".toml")) return Dialect::kTorchTitan;
  if (HasAny(&root, kOfAccelerate)) return Dialect::kAccelerate;
  // A word or a list in TrainingArguments, which have a parallelism_config of
  // their own kind; in Composer's, which may be all there is, it is a map.
  const Node* fsdp = root.Find("fsdp");
  if (fsdp != nullptr && fsdp->kind != Kind::kMap) {
    return Dialect::kTransformers;
  }
  if (HasAny(&root, kOfComposer) || HasComposersParallelism(root) ||
      fsdp != nullptr || HasAny(root.Find("fsdp_config"), kOfComposerFsdp)) {
    return Dialect::kComposer;
  }
  if (HasAny(&root, kOfTransformers) || HasFsdpVersion(root)) {
    return Dialect::kTransformers;
  }
  if (HasAny(&root, kOfTorchTitan)) return Dialect::kTorchTitan;
  return std::nullopt;
}

}  // namespace fsdp::config
