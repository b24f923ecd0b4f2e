// SPDX-License-Identifier: Apache-2.0
// Small files for programs that are not read, with keys from these programs.
// Many also have keys from the dialects that are read.
#include "config/dialects/fields/known_programs.h"

#include <iterator>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "config/read_config.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/config/reading.h"

namespace fsdp::config {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct File {
  const char* program;
  const char* text;
};

constexpr File kFilesOfLanguageModels[] = {
    {"torchtune",
     "model: {_component_: a.llama3_8b}\ndtype: bf16\nseed: 1234\n"
     "tasks: [truthfulqa_mc2]\nbatch_size: 8\noutput_dir: /tmp/x\n"},
    {"torchtune",
     "output_dir: /tmp/x\nfsdp: {cpu_offload: true}\n"
     "checkpointer: {_component_: a.Checkpointer}\nseed: 1\n"},
    {"LLaMA-Factory",
     "model_name_or_path: m\nstage: sft\nfinetuning_type: lora\n"
     "output_dir: o\nbf16: true\nper_device_train_batch_size: 1\n"},
    {"LLaMA-Factory",
     "model_name_or_path: m\ntemplate: llama3\ncutoff_len: 2048\n"},
    {"LLaMA-Factory",
     "model_name_or_path: m\ntemplate: qwen\ninfer_backend: vllm\n"},
    {"ms-swift",
     "model: a/b\ntuner_type: lora\ndataset: d\noutput_dir: o\n"
     "per_device_train_batch_size: 1\nnum_train_epochs: 1\n"},
    {"ms-swift",
     "model: a/b\ntrain_type: full\ndataset: [d]\nnum_train_epochs: 1\n"
     "learning_rate: 1e-5\ngradient_checkpointing: true\n"},
    {"ms-swift",
     "model: a/b\nsplit_dataset_ratio: 0.01\nbf16: true\n"
     "report_to: [tensorboard]\n"},
    {"Megatron",
     "model: a/b\nmicro_batch_size: 1\nglobal_batch_size: 4\nlr: 1e-4\n"
     "output_dir: /tmp/x\nsave_steps: 200\ntensor_model_parallel_size: 2\n"
     "expert_model_parallel_size: 4\nsequence_parallel: true\n"},
    {"Megatron", "pipeline_model_parallel_size: 2\nbf16: true\n"},
    {"Megatron", "tensor-model-parallel-size: 2\nbf16: true\n"},
    {"Megatron",
     "model_parallel: {tensor_model_parallel_size: 2, dp: 4}\nlr: 1e-4\n"},
    {"nanotron", "general: {run: r}\nparallelism: {dp: 2, pp: 1, tp: 1}\n"},
    {"nanotron", "general: {run: r}\ntokens: {train_steps: 3}\n"},
    {"nanotron", "parallelism: {tp: 2, pp: 2, tp_mode: ALL_REDUCE}\n"},
    {"NeMo Automodel",
     "recipe: TrainEagle3Recipe\nrecipe_args: {micro_batch_size: 1}\n"
     "dist_env: {backend: nccl}\ndistributed: {strategy: fsdp2}\n"
     "optimizer: {lr: 1e-4, warmup_ratio: 0.04}\n"},
    {"NeMo Automodel",
     "dist_env: {backend: nccl}\nfsdp: {dp_size: 8, cpu_offload: false}\n"},
    {"NeMo Automodel", "dist_env: {backend: nccl}\nmodel: {a: b}\n"},
    {"NeMo Automodel", "distributed: {strategy: ddp}\nseed: 1\n"},
    {"NeMo Automodel", "step_scheduler: {gamma: 0.1}\nepochs: 3\n"},
    {"Oumi",
     "model: {model_name: m}\ntraining: {trainer_type: TRL_SFT, "
     "optimizer: adamw_torch, output_dir: o}\n"
     "fsdp: {enable_fsdp: true, sharding_strategy: FULL_SHARD}\n"},
    {"Oumi",
     "training: {enable_gradient_checkpointing: true, max_steps: 10}\n"},
    {"Oumi", "fsdp: {enable_fsdp: true, cpu_offload: true}\n"},
    {"Oumi", "model: {model_name: m}\nengine: NATIVE\n"},
    {"LitGPT",
     "checkpoint_dir: c\nout_dir: o\nprecision: bf16-true\ndevices: 4\n"
     "train: {global_batch_size: 8, micro_batch_size: 1, max_norm: 1.0}\n"},
    {"Lingua",
     "name: r\nsteps: 100\noptim: {lr: 3e-3, warmup: 5}\n"
     "distributed: {fsdp_type: full_shard, tp_size: 1}\n"
     "checkpoint: {dump: {every: 10}}\n"},
    {"OLMo",
     "run_name: r\nseed: 1\nmodel: {d_model: 8, mlp_ratio: 8}\n"
     "optimizer: {name: adamw, learning_rate: 1e-4}\n"
     "fsdp: {wrapping_strategy: by_block, sharding_strategy: FULL_SHARD}\n"
     "max_duration: 1ep\nglobal_train_batch_size: 8\n"
     "device_train_microbatch_size: 1\nprecision: amp_bf16\n"},
    {"OLMo", "save_folder: s\nsave_interval_unsharded: 10\nmax_duration: 9\n"},
    {"OLMo-core",
     "model: {d_model: 8}\ntrain_module: {optim: {lr: 1e-4}, "
     "dp_config: {name: fsdp}}\ntrainer: {save_folder: s}\n"},
    {"Levanter",
     "trainer: {mp: 'p=f32,c=bf16', train_batch_size: 8}\n"
     "optimizer: {learning_rate: 1e-4}\n"},
    {"Levanter",
     "trainer: {fsdp_axis: embed, batch_axis: batch, num_train_steps: 5}\n"},
    {"Levanter", "trainer: {tensor_parallel_axes: [mlp, heads]}\n"},
    {"MaxText",
     "run_name: r\nsteps: 10\nici_fsdp_parallelism: -1\n"
     "per_device_batch_size: 1\nlearning_rate: 3e-5\n"},
    {"MaxText", "model_name: m\nbase_emb_dim: 2048\nsteps: 10\n"},
    {"fairseq2",
     "model: {name: n}\ntrainer: {dtype: bfloat16, data_parallelism: fsdp, "
     "gradient_accumulation: 1}\noptimizer: {name: adamw}\n"},
    {"fairseq2",
     "gang: {tensor_parallel_size: 2}\ntrainer: {max_grad_norm: 1.0}\n"},
    {"fairseq",
     "common: {fp16: true}\ndistributed_training: {ddp_backend: "
     "fully_sharded}\noptimization: {lr: [0.1]}\n"},
    {"fairseq", "task: {_name: translation}\noptimizer: {_name: adam}\n"},
    {"InstructLab",
     "fsdp_options: {sharding_strategy: HYBRID_SHARD}\n"
     "ckpt_output_dir: c\neffective_batch_size: 128\n"},
    {"InstructLab",
     "effective_batch_size: 128\nckpt_output_dir: c\nlearning_rate: 1e-5\n"},
    {"Open Instruct",
     "model_name_or_path: m\ndataset_mixer_list: [a, 1.0]\n"
     "per_device_train_batch_size: 1\ngradient_checkpointing: true\n"},
    {"Open Instruct",
     "use_slow_tokenizer: true\nper_device_train_batch_size: 1\n"
     "num_train_epochs: 2\noutput_dir: o\n"},
    {"LMFlow",
     "model_name_or_path: m\nconversation_template: gemma\nbf16: true\n"
     "per_device_train_batch_size: 1\noutput_dir: o\n"},
    {"H2O LLM Studio",
     "experiment_name: e\nproblem_type: text\narchitecture: "
     "{gradient_checkpointing: true}\ntraining: {optimizer: AdamW}\n"},
    {"AutoTrain",
     "task: llm-sft\nbase_model: m\nparams: {lr: 1e-5, optimizer: lion}\n"
     "data: {chat_template: none}\n"},
    {"MLX LM",
     "model: m\ntrain: true\niters: 10\nlora_parameters: {rank: 8}\n"
     "batch_size: 4\nlearning_rate: 1e-5\n"},
    {"MLX LM", "model: m\niters: 10\nadapter_path: a\nseed: 0\n"},
    {"Ludwig",
     "model_type: llm\nbase_model: m\nadapter: {type: lora}\n"
     "input_features: [{name: a}]\noutput_features: [{name: b}]\n"
     "trainer: {learning_rate: 1e-4}\n"},
    {"Ludwig",
     "model_type: llm\nbase_model: m\nadapter: {type: lora}\n"
     "trainer: {type: finetune}\n"},
    {"mergekit",
     "merge_method: slerp\nbase_model: m\nmodels: [{model: a}]\n"
     "chat_template: auto\ndtype: bfloat16\n"},
    {"Lightning", "seed_everything: 1\nmodel: {lr: 0.1}\n"},
    {"Lightning",
     "trainer: {accelerator: gpu, strategy: fsdp}\nmodel: {lr: 0.1}\n"},
    {"Lightning", "trainer: {devices: 8, max_epochs: 1}\n"},
    {"LM Evaluation Harness",
     "task: t\ndataset_path: p\ndoc_to_text: '{{q}}'\n"},
    {"ESPnet", "encoder_conf: {output_size: 8}\noptim: adam\nseed: 1\n"},
    {"torchforge",
     "model_name: m\nprocesses: {procs: 8}\noptimizer: {lr: 1e-5}\n"
     "training: {steps: 10, seq_len: 2048}\n"
     "parallelism: {data_parallel_shard_degree: -1}\n"},
    {"torchforge",
     "trainer: {parallelism: {data_parallel_shard_degree: 2}}\n"
     "metric_logging: {console: {logging_mode: global}}\n"},
};

constexpr File kFilesOfOtherTrainers[] = {
    {"AReaL",
     "experiment_name: e\ntrial_name: t\nactor: {optimizer: {lr: 1e-6}, "
     "gradient_checkpointing: true}\nseed: 1\n"},
    {"AReaL", "allocation_mode: 'fsdp:d4t2'\ntotal_train_epochs: 1\n"},
    {"ROLL",
     "exp_name: e\nmax_steps: 10\nsave_steps: 5\nactor_train: "
     "{strategy_args: "
     "{strategy_name: megatron_train}}\n"},
    {"ROLL", "exp_name: e\nrollout_batch_size: 64\noutput_dir: o\n"},
    {"NeMo RL",
     "policy: {model_name: m, dtensor_cfg: {enabled: true}}\n"
     "grpo: {num_prompts_per_step: 8}\n"},
    {"NeMo RL", "defaults: a.yaml\npolicy: {megatron_cfg: {enabled: true}}\n"},
    {"NeMo RL",
     "policy: {train_global_batch_size: 8}\ncluster: {gpus_per_node: 8}\n"},
    {"SkyRL",
     "trainer: {strategy: fsdp2, placement: {colocate_all: true}}\n"
     "generator: {backend: vllm}\n"},
    {"SkyRL", "agent_cls: a.B\ntask: t\ndata: {instance_key: k}\n"},
    {"prime-rl", "output_dir = 'o'\n[orchestrator]\nbatch_size = 8\n"},
    {"prime-rl", "seed = 1\n[trainer.optim]\nlr = 1e-5\n"},
    {"prime-rl", "max_steps = 10\noutput_dir = 'o'\n[optim]\nlr = 1e-5\n"},
    {"prime-rl", "[ckpt]\ninterval = 5\n[model]\nname = 'm'\nac = true\n"},
    {"verl with Megatron",
     "actor_rollout_ref:\n  actor:\n    strategy: megatron\n"
     "    megatron: {tensor_model_parallel_size: 2}\n"},
    {"verl with VeOmni",
     "actor_rollout_ref: {actor: {veomni: {data_parallel_size: 2}}}\n"},
    {"verl", "actor_rollout_ref: {rollout: {n: 8}}\ndata: {seed: 1}\n"},
    {"verl", "{\"FSDP_version\": 2, \"world_size\": 8}"},
    {"trlx",
     "train: {seq_length: 8, total_steps: 10}\nmethod: {name: PPOConfig}\n"
     "optimizer: {name: adamw, kwargs: {lr: 1e-5}}\n"},
    {"GPT-NeoX",
     "{\"pipe_parallel_size\": 1, \"model_parallel_size\": 2, "
     "\"fp16\": {\"enabled\": true}, \"zero_optimization\": {\"stage\": 1}}"},
    {"GPT-NeoX",
     "{\"pipe-parallel-size\": 1, \"train_micro_batch_size_per_gpu\": 4}"},
    {"GPT-NeoX", "{\"no_weight_tying\": true, \"num_layers\": 12}"},
    {"NeMo",
     "name: n\ntrainer: {devices: 8}\nexp_manager: {name: n}\n"
     "model: {tensor_model_parallel_size: 2, optim: {lr: 1e-4}}\n"},
    {"NeMo", "trainer: {devices: 8}\nmodel: {tensor_model_parallel_size: 2}\n"},
    {"Megatron Bridge",
     "train: {train_iters: 10, global_batch_size: 8}\n"
     "model: {seq_length: 8, tensor_model_parallel_size: 2}\n"},
    {"Megatron Bridge",
     "ddp: {use_distributed_optimizer: true}\ncheckpoint: {save: s}\n"},
    {"DeepSpeed", "{\"zero_optimization\": {\"stage\": 3}}"},
    {"DeepSpeed",
     "{\"train_micro_batch_size_per_gpu\": 1, \"steps_per_print\": 5}"},
    {"DeepSpeed",
     "{\"bf16\": {\"enabled\": true}, \"gradient_clipping\": 1.0}"},
    {"SimpleTuner",
     "{\"model_family\": \"flux\", \"data_backend_config\": \"d.json\", "
     "\"output_dir\": \"/tmp/x\", \"optimizer\": \"optimi-lion\", "
     "\"learning_rate\": 1e-4, \"num_train_epochs\": 0, "
     "\"gradient_checkpointing\": true, \"train_batch_size\": 1}"},
    {"SimpleTuner",
     "{\"--model_family\": \"sdxl\", \"--optimizer\": \"adamw_bf16\"}"},
    {"SimpleTuner",
     "{\"model_family\": \"flux\", \"gradient_checkpointing\": true, "
     "\"report_to\": \"wandb\", \"output_dir\": \"o\"}"},
    {"diffusion-pipe",
     "output_dir = 'o'\nepochs = 9\nmicro_batch_size_per_gpu = 1\n"
     "pipeline_stages = 1\n[optimizer]\ntype = 'adamw_optimi'\nlr = 2e-5\n"},
    {"kohya's sd-scripts",
     "pretrained_model_name_or_path = 'm'\nnetwork_module = 'networks.lora'\n"
     "optimizer_type = 'Prodigy'\nlearning_rate = 1.0\noutput_dir = 'o'\n"},
    {"kohya's sd-scripts",
     "pretrained_model_name_or_path = 'm'\noptimizer_type = 'AdamW8bit'\n"
     "gradient_checkpointing = true\noutput_dir = 'o'\n"},
    {"kohya's sd-scripts",
     "[general]\ncaption_extension = '.txt'\n[[datasets]]\nresolution = "
     "512\n"},
    {"OneTrainer",
     "{\"training_method\": \"LORA\", \"base_model_name\": \"m\", "
     "\"learning_rate\": 1e-4, \"optimizer\": {\"optimizer\": \"ADAMW\"}}"},
    {"AI Toolkit",
     "job: extension\nconfig: {name: n, process: [{type: sd_trainer}]}\n"},
    {"a script of diffusers",
     "pretrained_model_name_or_path: m\ntrain_batch_size: 1\n"
     "lr_scheduler: constant\nnum_train_epochs: 9\nreport_to: wandb\n"
     "gradient_checkpointing: true\noutput_dir: o\n"},
    {"a model of diffusers",
     "{\"_class_name\": \"UNet\", \"_diffusers_version\": \"0.3\"}"},
    {"OpenMMLab", "train_dataloader: {batch_size: 8}\ntrain_cfg: {by: 1}\n"},
    {"Detectron2", "MODEL: {META: R}\nSOLVER: {BASE_LR: 0.1}\n"},
    {"Ultralytics", "path: p\ntrain: t\nval: v\nnames: {0: person}\n"},
    {"Hydra", "defaults: [_self_, {model: a}]\nlr: 0.1\noutput_dir: o\n"},
    {"Hydra", "optimizer: {_target_: torch.optim.Adam, lr: 0.1}\n"},
    {"Hydra", "hydra: {run: {dir: o}}\nseed: 1\n"},
};

constexpr File kFilesBesideConfigs[] = {
    {"a state of transformers' Trainer (trainer_state.json)",
     "{\"log_history\": [], \"num_train_epochs\": 3, \"save_steps\": 500, "
     "\"max_steps\": 10, \"best_metric\": null}"},
    {"an adapter of PEFT (adapter_config.json)",
     "{\"peft_type\": \"LORA\", \"base_model_name_or_path\": \"m\"}"},
    {"an index of safetensors",
     "{\"metadata\": {}, \"weight_map\": {\"a\": \"b\"}}"},
    {"a model of transformers (config.json)",
     "{\"architectures\": [\"LlamaForCausalLM\"]}"},
    {"a model of transformers (config.json)",
     "{\"hidden_size\": 8, \"model_type\": \"llama\"}"},
    {"a tokenizer", "{\"tokenizer_class\": \"T\", \"chat_template\": \"\"}"},
    {"transformers' generation (generation_config.json)",
     "{\"eos_token_id\": 2, \"transformers_version\": \"5.0\"}"},
    {"a processor of transformers",
     "{\"image_processor_type\": \"C\", \"size\": {}}"},
    {"vLLM", "model: m\ntensor-parallel-size: 2\nmax-model-len: 8192\n"},
    {"a sweep of Weights & Biases",
     "program: train.py\nmethod: bayes\ncommand: [python]\nparameters: "
     "{max_duration: {value: 1ba}, global_train_batch_size: {value: 8}}\n"},
    {"Ray", "cluster_name: c\nprovider: {type: aws}\nmax_workers: 2\n"},
    {"SkyPilot", "resources: {accelerators: 'A100:8'}\nrun: python a.py\n"},
    {"Determined", "entrypoint: python\nsearcher: {name: single}\n"},
    {"Cargo", "[package]\nname = 'x'\n[dependencies]\nserde = '1'\n"},
    {"Python packaging (pyproject.toml)",
     "[project]\nname = 'x'\n[tool.ruff]\nline-length = 80\n"},
    {"conda", "name: e\nchannels: [conda-forge]\ndependencies: [python]\n"},
    {"Docker Compose", "version: '3'\nservices: {web: {}}\n"},
    {"GitHub Actions", "'on': push\njobs: {a: {}}\n"},
    {"Dependabot", "version: 2\nupdates: [{directory: /}]\n"},
    {"CircleCI", "version: 2\njobs: {a: {}}\nworkflows: {b: {}}\n"},
    {"GitLab CI", "test: {script: [make]}\n"},
    {"Read the Docs", "version: 2\nbuild: {os: ubuntu-24.04}\n"},
    {"Read the Docs", "version: 2\nsphinx: {configuration: c.py}\n"},
    {"dbt", "version: 2\nmodels: [{name: a}]\n"},
    {"golangci-lint", "version: 2\nlinters: {enable: [a]}\n"},
    {"GoReleaser", "version: 2\nbuilds: [{id: a}]\n"},
    {"pre-commit", "repos: [{repo: r}]\n"},
    {"MkDocs", "site_name: s\nnav: []\n"},
    {"Kubernetes", "apiVersion: v1\nkind: PyTorchJob\n"},
    {"Helm", "apiVersion: v2\nname: n\nappVersion: '1'\n"},
    {"npm", "{\"name\": \"n\", \"scripts\": {}, \"version\": \"1.0.0\"}"},
    {"TypeScript", "{\"compilerOptions\": {}}"},
    {"OpenAPI", "openapi: 3.1.0\npaths: {}\n"},
};

std::vector<File> AllFiles() {
  std::vector<File> files(std::begin(kFilesOfLanguageModels),
                          std::end(kFilesOfLanguageModels));
  files.insert(files.end(), std::begin(kFilesOfOtherTrainers),
               std::end(kFilesOfOtherTrainers));
  files.insert(files.end(), std::begin(kFilesBesideConfigs),
               std::end(kFilesBesideConfigs));
  return files;
}

TEST(KnownPrograms, RefusesAHundredFilesByName) {
  const std::vector<File> files = AllFiles();
  EXPECT_GE(files.size(), size_t{100});
  for (const auto& [program, text] : files) {
    const bool is_toml = absl::StrContains(text, " = ");
    const ReadConfig read =
        read_config_text(is_toml ? "config.toml" : "config", text);
    EXPECT_EQ(read.dialect, std::nullopt) << text;
    EXPECT_THAT(TextsOf(read.findings),
                ElementsAre(HasSubstr(std::string("is a file of ") + program +
                                      ", not a config of")))
        << text;
  }
}

struct ReadFile {
  ConfigDialect dialect;
  const char* text;
};

// The same programs, with the keys for training.
TEST(KnownPrograms, ReadsTrainingFiles) {
  for (const auto& [dialect, text] : {
           ReadFile{ConfigDialect::kTorchtune,
                    "model: {_component_: a.m}\n"
                    "optimizer: {_component_: torch.optim.AdamW}\n"},
           ReadFile{ConfigDialect::kVerl, "actor_rollout_ref: {actor: {}}\n"},
           ReadFile{ConfigDialect::kVerl,
                    "data: {micro_batch_size_per_gpu: 4}\ntrainer: {}\n"},
           ReadFile{ConfigDialect::kVerl,
                    "model: {fsdp_config: {}}\noptim: {lr: 1e-5}\n"},
           ReadFile{ConfigDialect::kAutomodel,
                    "recipe: TrainFinetuneRecipe\ndistributed: {}\n"},
           ReadFile{ConfigDialect::kAutomodel,
                    "distributed: {strategy: fsdp2}\n"
                    "optimizer: {_target_: torch.optim.AdamW}\n"},
           ReadFile{ConfigDialect::kAutomodel,
                    "step_scheduler: {max_steps: 10}\ndist_env: {}\n"},
           ReadFile{ConfigDialect::kPrimeRl,
                    "max_steps = 10\n[model]\nname = 'm'\n[optim]\n"
                    "lr = 1e-5\n"},
           ReadFile{ConfigDialect::kPrimeRl,
                    "[trainer.optim]\nlr = 1e-5\n[orchestrator]\n"
                    "batch_size = 8\n"},
           ReadFile{ConfigDialect::kLlamaFactory,
                    "model_class: llm\ntrain_dataset: d.yaml\n"
                    "dist_config: {name: fsdp2}\n"},
       }) {
    const bool is_toml = absl::StrContains(text, " = ");
    const ReadConfig read =
        read_config_text(is_toml ? "config.toml" : "config.yaml", text);
    EXPECT_EQ(read.dialect, dialect) << text;
    EXPECT_FALSE(read.findings.has_problems())
        << read.findings.ToStatus() << text;
  }
}

}  // namespace
}  // namespace fsdp::config
