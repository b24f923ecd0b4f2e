// SPDX-License-Identifier: Apache-2.0
// The table of programs and the keys in their files.
//
// Tested by tests/config/dialects/fields/known_programs_test.cc.
#include "config/dialects/fields/known_programs.h"

#include <algorithm>
#include <optional>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/types/span.h"

namespace fsdp::config {
namespace {

// A file matches a row if it has all the row's keys; a dot leads into a map,
// and a star is any key. The first row that matches counts. So a program comes
// before another if its files also have the other's keys.
struct KnownFile {
  absl::string_view program;
  std::vector<absl::string_view> keys;
  std::optional<ConfigDialect> dialect = {};  // unset: it is not read here
};
using KnownFiles = std::vector<KnownFile>;

const KnownFiles& FineTuningPrograms() {
  static const auto& programs = *new KnownFiles{
      {"torchtune", {"optimizer._component_"}, ConfigDialect::kTorchtune},
      {"torchtune", {"*._component_"}},
      {"LLaMA-Factory", {"finetuning_type"}},
      {"LLaMA-Factory", {"stage", "template"}},
      {"LLaMA-Factory", {"dist_config.name"}, ConfigDialect::kLlamaFactory},
      {"LLaMA-Factory",
       {"model_class", "train_dataset"},
       ConfigDialect::kLlamaFactory},
      {"LLaMA-Factory", {"cutoff_len"}},
      {"LLaMA-Factory", {"model_name_or_path", "template", "infer_backend"}},
      {"ms-swift", {"tuner_type"}},
      {"ms-swift", {"train_type", "model"}},
      {"ms-swift", {"split_dataset_ratio"}},
      {"nanotron", {"parallelism.dp"}},
      {"nanotron", {"parallelism.tp", "parallelism.pp"}},
      {"nanotron", {"general", "tokens"}},
      {"NeMo Automodel", {"recipe_args"}},
      {"NeMo Automodel", {"dist_env", "fsdp"}},
      {"NeMo Automodel", {"dist_env", "ddp"}},
      {"NeMo Automodel", {"recipe", "distributed"}, ConfigDialect::kAutomodel},
      {"NeMo Automodel",
       {"step_scheduler", "dist_env"},
       ConfigDialect::kAutomodel},
      {"NeMo Automodel",
       {"step_scheduler", "optimizer"},
       ConfigDialect::kAutomodel},
      {"NeMo Automodel",
       {"step_scheduler", "distributed"},
       ConfigDialect::kAutomodel},
      {"NeMo Automodel",
       {"distributed.strategy", "optimizer"},
       ConfigDialect::kAutomodel},
      {"NeMo Automodel", {"step_scheduler"}},
      {"NeMo Automodel", {"distributed.strategy"}},
      {"NeMo Automodel", {"dist_env"}},
  };
  return programs;
}

const KnownFiles& LanguageModelPrograms() {
  static const auto& programs = *new KnownFiles{
      {"Oumi", {"training.trainer_type"}},
      {"Oumi", {"training.enable_gradient_checkpointing"}},
      {"Oumi", {"fsdp.enable_fsdp"}},
      {"Oumi", {"model.model_name"}},
      {"LitGPT", {"train.micro_batch_size", "train.global_batch_size"}},
      {"LitGPT", {"checkpoint_dir", "out_dir"}},
      {"Lingua", {"distributed.fsdp_type"}},
      {"OLMo", {"save_interval_unsharded"}},
      {"OLMo", {"fsdp.wrapping_strategy"}},
      {"OLMo", {"model.d_model", "model.mlp_ratio"}},
      {"OLMo-core", {"train_module"}},
      {"Levanter", {"trainer.mp"}},
      {"Levanter", {"trainer.fsdp_axis"}},
      {"Levanter", {"trainer.tensor_parallel_axes"}},
      {"MaxText", {"ici_fsdp_parallelism"}},
      {"MaxText", {"base_emb_dim"}},
      {"fairseq2", {"trainer.data_parallelism"}},
      {"fairseq2", {"gang", "trainer"}},
      {"fairseq", {"distributed_training"}},
      {"fairseq", {"task._name"}},
      {"fairseq", {"criterion._name"}},
      {"InstructLab", {"fsdp_options"}},
      {"InstructLab", {"effective_batch_size", "ckpt_output_dir"}},
      {"Open Instruct", {"dataset_mixer_list"}},
      {"Open Instruct", {"use_slow_tokenizer"}},
      {"LMFlow", {"conversation_template"}},
      {"H2O LLM Studio", {"experiment_name", "problem_type"}},
      {"H2O LLM Studio", {"problem_type", "architecture", "prediction"}},
      {"AutoTrain", {"task", "base_model", "params"}},
      {"MLX LM", {"lora_parameters"}},
      {"MLX LM", {"adapter_path", "iters"}},
      {"Ludwig", {"input_features", "output_features"}},
      {"Ludwig", {"model_type", "trainer", "base_model"}},
      {"mergekit", {"merge_method"}},
      {"Lightning", {"seed_everything"}},
      {"LM Evaluation Harness", {"doc_to_text"}},
      {"ESPnet", {"encoder_conf"}},
      {"ColossalAI", {"booster_plugin"}},
      {"XTuner", {"xtuner_dataset_timeout"}},
      {"torchforge", {"metric_logging"}},
      {"torchforge", {"processes.procs"}},
      {"SpeechBrain", {"__set_seed"}},
  };
  return programs;
}

const KnownFiles& ReinforcementPrograms() {
  static const auto& programs = *new KnownFiles{
      {"AReaL", {"experiment_name", "trial_name"}},
      {"AReaL", {"allocation_mode"}},
      {"ROLL", {"actor_train"}},
      {"ROLL", {"exp_name", "rollout_batch_size"}},
      {"verl with Megatron", {"actor_rollout_ref.actor.megatron"}},
      {"verl with VeOmni", {"actor_rollout_ref.actor.veomni"}},
      {"verl", {"actor_rollout_ref.actor"}, ConfigDialect::kVerl},
      {"verl", {"actor_rollout_ref"}},
      {"verl", {"model.fsdp_config", "optim"}, ConfigDialect::kVerl},
      {"verl",
       {"data.micro_batch_size_per_gpu", "trainer"},
       ConfigDialect::kVerl},
      {"verl", {"ulysses_sequence_parallel_size"}},
      {"verl", {"FSDP_version", "world_size"}},
      {"verl", {"model.fsdp_config"}},
      {"NeMo RL", {"policy.dtensor_cfg"}},
      {"NeMo RL", {"policy.megatron_cfg"}},
      {"NeMo RL", {"policy.generation"}},
      {"NeMo RL", {"policy", "cluster"}},
      {"NeMo RL", {"grpo"}},
      {"NeMo RL", {"checkpointing", "logger", "policy"}},
      {"SkyRL", {"trainer.placement"}},
      {"SkyRL", {"trainer.strategy", "generator"}},
      {"SkyRL", {"agent_cls"}},
      {"prime-rl", {"orchestrator", "inference"}, ConfigDialect::kPrimeRl},
      {"prime-rl", {"orchestrator", "trainer"}, ConfigDialect::kPrimeRl},
      {"prime-rl", {"trainer.optim"}},
      {"prime-rl", {"orchestrator"}},
      {"prime-rl", {"model.optimization_dtype"}, ConfigDialect::kPrimeRl},
      {"prime-rl", {"model.optim_cpu_offload"}, ConfigDialect::kPrimeRl},
      {"prime-rl", {"model.name", "ckpt", "data"}, ConfigDialect::kPrimeRl},
      {"prime-rl",
       {"model.name", "max_steps", "optim.lr"},
       ConfigDialect::kPrimeRl},
      {"prime-rl",
       {"model.name", "max_steps", "data"},
       ConfigDialect::kPrimeRl},
      {"prime-rl", {"ckpt", "model"}},
      {"prime-rl", {"optim.lr", "max_steps"}},
      {"trlx", {"method.name", "train"}},
      {"OpenRLHF", {"actor_num_gpus_per_node"}},
      {"slime", {"rollout_function_path"}},
      {"RAGEN", {"agent_proxy"}},
  };
  return programs;
}

const KnownFiles& MegatronPrograms() {
  static const auto& programs = *new KnownFiles{
      {"GPT-NeoX", {"pipe_parallel_size"}},
      {"GPT-NeoX", {"pipe-parallel-size"}},
      {"GPT-NeoX", {"no_weight_tying"}},
      {"GPT-NeoX", {"output_layer_parallelism"}},
      {"NeMo", {"exp_manager"}},
      {"Megatron Bridge", {"train.train_iters"}},
      {"Megatron Bridge", {"ddp.use_distributed_optimizer"}},
      {"NeMo", {"model.tensor_model_parallel_size", "trainer"}},
      {"Megatron", {"tensor_model_parallel_size"}},
      {"Megatron", {"pipeline_model_parallel_size"}},
      {"Megatron", {"expert_model_parallel_size"}},
      {"Megatron", {"virtual_pipeline_model_parallel_size"}},
      {"Megatron", {"tensor-model-parallel-size"}},
      {"Megatron", {"pipeline-model-parallel-size"}},
      {"Megatron", {"*.tensor_model_parallel_size"}},
      {"Megatron", {"language_model.num_layers"}},
      {"DeepSpeed", {"zero_optimization"}},
      {"DeepSpeed", {"train_micro_batch_size_per_gpu"}},
      {"DeepSpeed", {"fp16.enabled"}},
      {"DeepSpeed", {"bf16.enabled"}},
      {"DeepSpeed", {"wall_clock_breakdown"}},
      {"DeepSpeed", {"compression_training"}},
      {"Lightning", {"trainer.accelerator"}},
      {"Lightning", {"trainer.devices"}},
  };
  return programs;
}

const KnownFiles& ImagePrograms() {
  static const auto& programs = *new KnownFiles{
      {"SimpleTuner", {"data_backend_config"}},
      {"SimpleTuner", {"--data_backend_config"}},
      {"SimpleTuner", {"model_family"}},
      {"SimpleTuner", {"--model_family"}},
      {"diffusion-pipe", {"micro_batch_size_per_gpu"}},
      {"diffusion-pipe", {"pipeline_stages"}},
      {"kohya's sd-scripts", {"network_module"}},
      {"kohya's sd-scripts", {"network_dim"}},
      {"kohya's sd-scripts", {"general.caption_extension"}},
      {"kohya's sd-scripts",
       {"pretrained_model_name_or_path", "optimizer_type"}},
      {"OneTrainer", {"training_method", "base_model_name"}},
      {"AI Toolkit", {"job", "config.process"}},
      {"a script of diffusers",
       {"pretrained_model_name_or_path", "train_batch_size"}},
      {"a model of diffusers", {"_class_name", "_diffusers_version"}},
      {"OpenMMLab", {"default_hooks"}},
      {"OpenMMLab", {"train_dataloader", "train_cfg"}},
      {"Detectron2", {"SOLVER", "MODEL"}},
      {"Ultralytics", {"train", "val", "nc"}},
      {"Ultralytics", {"train", "val", "names"}},
  };
  return programs;
}

// Files that lie next to models, and files that start jobs.
const KnownFiles& FilesNearModels() {
  static const auto& programs = *new KnownFiles{
      {"a state of transformers' Trainer (trainer_state.json)",
       {"log_history"}},
      {"an adapter of PEFT (adapter_config.json)", {"peft_type"}},
      {"an index of safetensors", {"weight_map"}},
      {"TensorRT-LLM", {"pretrained_config", "build_config"}},
      {"a model of transformers (config.json)", {"architectures"}},
      {"a model of transformers (config.json)", {"hidden_size", "model_type"}},
      {"a tokenizer", {"tokenizer_class"}},
      {"a tokenizer", {"added_tokens", "pre_tokenizer"}},
      {"a processor of transformers", {"image_processor_type"}},
      {"a processor of transformers", {"processor_class"}},
      {"transformers' generation (generation_config.json)",
       {"transformers_version", "eos_token_id"}},
      {"transformers' generation (generation_config.json)",
       {"_from_model_config"}},
      {"vLLM", {"tensor-parallel-size"}},
      {"vLLM", {"max-model-len"}},
      {"SGLang", {"mem-fraction-static"}},
      {"a sweep of Weights & Biases", {"method", "parameters"}},
      {"a sweep of Weights & Biases", {"program", "parameters"}},
      {"Ray", {"available_node_types"}},
      {"Ray", {"cluster_name", "provider"}},
      {"Ray", {"compute_config", "entrypoint"}},
      {"SkyPilot", {"resources", "run"}},
      {"Determined", {"searcher", "entrypoint"}},
      {"dstack", {"type", "commands", "resources"}},
      {"MLflow", {"entry_points"}},
      {"Hydra", {"hydra"}},
      {"Hydra", {"_target_"}},
      {"Hydra", {"*._target_"}},
      {"Hydra", {"defaults"}},
  };
  return programs;
}

const KnownFiles& ProjectTools() {
  static const auto& programs = *new KnownFiles{
      {"Cargo", {"package", "dependencies"}},
      {"Cargo", {"workspace.members"}},
      {"Python packaging (pyproject.toml)", {"build-system"}},
      {"Python packaging (pyproject.toml)", {"project.name"}},
      {"Python packaging (pyproject.toml)", {"tool"}},
      {"uv", {"requires-python", "package"}},
      {"Pipenv", {"packages", "dev-packages"}},
      {"conda", {"channels", "dependencies"}},
      {"Ruff", {"line-length"}},
      {"Docker Compose", {"services"}},
      {"GitHub Actions", {"jobs", "on"}},
      {"GitHub Actions", {"runs", "inputs"}},
      {"Dependabot", {"version", "updates"}},
      {"Codecov", {"coverage.status"}},
      {"CircleCI", {"jobs", "workflows"}},
      {"GitLab CI", {"*.script"}},
      {"Azure Pipelines", {"trigger", "pool"}},
      {"Read the Docs", {"version", "build.os"}},
      {"Read the Docs", {"version", "sphinx"}},
      {"MkDocs", {"site_name"}},
      {"pre-commit", {"repos"}},
      {"DVC", {"stages"}},
      {"dbt", {"version", "models"}},
      {"dbt", {"version", "sources"}},
      {"golangci-lint", {"version", "linters"}},
      {"GoReleaser", {"version", "builds"}},
      {"Task", {"version", "tasks"}},
      {"Buf", {"version", "modules"}},
      {"Helm", {"apiVersion", "appVersion"}},
      {"Kubernetes", {"apiVersion", "kind"}},
      {"Prometheus", {"scrape_configs"}},
      {"Grafana", {"panels", "schemaVersion"}},
      {"OpenAPI", {"openapi", "paths"}},
      {"npm", {"name", "scripts", "version"}},
      {"npm", {"lockfileVersion"}},
      {"TypeScript", {"compilerOptions"}},
      {"Visual Studio Code", {"version", "configurations"}},
      {"the Citation File Format", {"cff-version"}},
  };
  return programs;
}

// Whether the keys lead from the node to a value.
bool HasPath(const Node& node, absl::Span<const absl::string_view> path) {
  if (path.empty()) return true;
  if (path[0] != "*") {
    const Node* next = node.Find(path[0]);
    return next != nullptr && HasPath(*next, path.subspan(1));
  }
  return std::any_of(node.entries.begin(), node.entries.end(),
                     [&](const Node::Entry& entry) {
                       return HasPath(entry.value, path.subspan(1));
                     });
}

bool HasAllKeys(const Node& root, const KnownFile& file) {
  return std::all_of(
      file.keys.begin(), file.keys.end(), [&root](absl::string_view key) {
        const std::vector<absl::string_view> path = absl::StrSplit(key, '.');
        return HasPath(root, path);
      });
}

}  // namespace

KnownProgram FindKnownProgram(const Node& root) {
  for (const KnownFiles* files :
       {&ReinforcementPrograms(), &FineTuningPrograms(),
        &LanguageModelPrograms(), &ImagePrograms(), &MegatronPrograms(),
        &FilesNearModels(), &ProjectTools()}) {
    for (const KnownFile& file : *files) {
      if (HasAllKeys(root, file)) return {file.program, file.dialect};
    }
  }
  return {};
}

}  // namespace fsdp::config
