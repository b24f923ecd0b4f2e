# SPDX-License-Identifier: Apache-2.0
"""Small training configs, for make_configs.py: program, name, ranks, text."""

TUNE = """\
model: {_component_: torchtune.models.llama3_1.llama3_1_8b}
tokenizer: {_component_: a.b, max_seq_len: 4096}
optimizer: {_component_: torch.optim.AdamW, lr: 2e-5}
epochs: 2
max_steps_per_epoch: 50
save_every_n_steps: 10
batch_size: 2
dtype: bf16
"""
VERL = "actor_rollout_ref:\n  actor:\n    ppo_mini_batch_size: 64\n"
VERL_SFT = """\
data: {micro_batch_size_per_gpu: 4}
trainer: {total_training_steps: 100}
"""
AUTO = """\
recipe: TrainFinetuneRecipeForNextTokenPrediction
model: {torch_dtype: float32}
optimizer: {_target_: torch.optim.AdamW, lr: 1.0e-4}
step_scheduler: {max_steps: 100, local_batch_size: 2}
"""
PRIME = "max_steps = 100\n[data]\nbatch_size = 32\n[model]\nname = 'm'\n"
FACTORY = """\
model: m
model_class: llm
train_dataset: d.yaml
output_dir: o
"""
FSDP2 = "dist_config: {name: fsdp2}\n"

CASES = [
    ("torchtune", "defaults", 8, TUNE),
    (
        "torchtune",
        "hybrid",
        8,
        TUNE + "data_parallel_shard_dim: 4\ndata_parallel_replicate_dim: 2\n",
    ),
    (
        "torchtune",
        "tensor",
        8,
        TUNE + "tensor_parallel_dim: 2\n"
        "tensor_parallel_plan: {_component_: a.plan}\n",
    ),
    ("torchtune", "context", 8, TUNE + "context_parallel_dim: 4\n"),
    ("torchtune", "too_many", 8, TUNE + "data_parallel_shard_dim: 4\n"),
    ("torchtune", "no_shards", 8, TUNE + "data_parallel_shard_dim: 0\n"),
    (
        "torchtune",
        "memory",
        4,
        TUNE + "fsdp_cpu_offload: true\n"
        "fsdp_reshard_after_forward: false\n"
        "enable_activation_checkpointing: true\n",
    ),
    (
        "torchtune",
        "cosine",
        2,
        TUNE + "clip_grad_norm: 1.0\n"
        "lr_scheduler:\n  _component_: torchtune.training.lr_schedulers."
        "get_cosine_schedule_with_warmup\n  num_warmup_steps: 10\n",
    ),
    (
        "torchtune",
        "inf",
        2,
        TUNE.replace("bf16", "fp32") + "clip_grad_norm: inf\n",
    ),
    (
        "torchtune",
        "adam",
        2,
        TUNE.replace("AdamW", "Adam").replace("2e-5", "1e-3, eps: 1e-6"),
    ),
    ("verl", "defaults", 8, VERL),
    (
        "verl",
        "fsdp2",
        8,
        VERL + "    strategy: fsdp2\n    fsdp_config:\n"
        "      offload_policy: true\n      reshard_after_forward: false\n",
    ),
    (
        "verl",
        "fsdp1_offload",
        8,
        VERL + "    fsdp_config: {offload_policy: true, param_offload: true}\n",
    ),
    ("verl", "hybrid", 8, VERL + "    fsdp_config: {fsdp_size: 4}\n"),
    (
        "verl",
        "one_machine",
        4,
        VERL + "    fsdp_config: {fsdp_size: -1}\n"
        "    optim: {lr: 3e-6, weight_decay: 0.1, betas: [0.9, 0.95], "
        "clip_grad: 0.5}\n",
    ),
    (
        "verl",
        "sequences",
        8,
        VERL + "    ulysses_sequence_parallel_size: 2\n"
        "    fsdp_config: {ulysses_sequence_parallel_size: 1, fsdp_size: 4}\n",
    ),
    (
        "verl",
        "types",
        8,
        VERL + "    fsdp_config: {model_dtype: bf16, "
        "mixed_precision: {param_dtype: fp32, reduce_dtype: bf16}}\n",
    ),
    (
        "verl",
        "sft",
        8,
        VERL_SFT + "engine: {strategy: fsdp2}\n"
        "optim: {lr: 1e-5, lr_warmup_steps_ratio: 0.05, min_lr_ratio: 0.1, "
        "lr_scheduler_type: cosine}\n"
        "model: {enable_gradient_checkpointing: false}\n",
    ),
    (
        "verl",
        "sft_warmup",
        8,
        VERL_SFT + "engine: {fsdp_size: 2}\noptim: {lr_warmup_steps: 10}\n",
    ),
    ("verl", "unknown", 8, VERL + "    fsdp_config: {fsdp_sise: 4}\n"),
    ("automodel", "defaults", 8, AUTO + "distributed: {strategy: fsdp2}\n"),
    (
        "automodel",
        "nulls",
        8,
        AUTO + "distributed: {strategy: fsdp2, "
        "dp_size: none, dp_replicate_size: None, tp_size: 1}\n",
    ),
    (
        "automodel",
        "hybrid",
        8,
        AUTO + "distributed: {dp_size: 8, dp_replicate_size: 2}\n",
    ),
    (
        "automodel",
        "hybrid_of_the_rest",
        8,
        AUTO + "distributed: {dp_replicate_size: 2, tp_size: 2}\n",
    ),
    (
        "automodel",
        "copies_alone",
        8,
        AUTO + "distributed: {dp_size: 8, dp_replicate_size: 8}\n",
    ),
    (
        "automodel",
        "all",
        16,
        AUTO + "distributed: {tp_size: 2, cp_size: 2, "
        "pp_size: 2, pipeline: {}}\n",
    ),
    (
        "automodel",
        "pipeline_without_its_map",
        8,
        AUTO + "distributed: {pp_size: 2}\n",
    ),
    ("automodel", "experts", 8, AUTO + "distributed: {ep_size: 4}\n"),
    (
        "automodel",
        "experts_freed",
        8,
        AUTO + "distributed: {ep_size: 4, "
        "moe: {reshard_after_forward: true}}\n",
    ),
    (
        "automodel",
        "policies",
        8,
        AUTO + "clip_grad_norm: {max_norm: 0.5}\n"
        "distributed:\n  activation_checkpointing: true\n"
        "  reshard_after_forward: false\n  offload_policy: {pin_memory: false}\n"
        "  mp_policy: {param_dtype: bfloat16, reduce_dtype: bfloat16}\n",
    ),
    ("automodel", "ddp", 8, AUTO + "distributed: {strategy: ddp}\n"),
    (
        "automodel",
        "ddp_of_tensors",
        8,
        AUTO + "distributed: {strategy: ddp, tp_size: 2}\n",
    ),
    ("automodel", "unknown", 8, AUTO + "distributed: {tp_sise: 2}\n"),
    (
        "automodel",
        "schedule",
        8,
        AUTO + "distributed: {strategy: fsdp2}\nlr_scheduler: {}\n",
    ),
    (
        "automodel",
        "linear",
        8,
        AUTO + "distributed: {strategy: fsdp2}\n"
        "lr_scheduler: {lr_decay_style: linear, lr_warmup_steps: 20, "
        "min_lr: 1.0e-5, init_lr: 2.0e-5, lr_decay_steps: 80}\n",
    ),
    (
        "automodel",
        "constant",
        8,
        AUTO + "distributed: {strategy: fsdp2}\n"
        "lr_scheduler: {lr_decay_style: constant, lr_warmup_steps: 4}\n",
    ),
    (
        "automodel",
        "adam",
        8,
        AUTO.replace("AdamW", "Adam").replace(
            "1.0e-4", "1.0e-4, weight_decay: 0, betas: [0.9, 0.95]"
        )
        + "distributed: {strategy: fsdp2}\n",
    ),
    ("prime-rl", "defaults", 8, PRIME + "[optim]\nlr = 2e-5\n"),
    ("prime-rl", "mesh", 16, PRIME + "dp_replicate = 2\ncp = 2\nep = 4\n"),
    (
        "prime-rl",
        "off",
        8,
        PRIME + "ac = 'None'\nac_offloading = 'None'\n"
        "reshard_after_forward = false\noptimization_dtype = 'bfloat16'\n"
        "reduce_dtype = 'bfloat16'\n",
    ),
    ("prime-rl", "offload_needs_checkpoints", 8, PRIME + "ac = 'None'\n"),
    ("prime-rl", "every_second", 8, PRIME + "[model.ac]\nfreq = 2\n"),
    (
        "prime-rl",
        "cpu",
        8,
        PRIME + "fsdp_cpu_offload = true\noptim_cpu_offload = false\n",
    ),
    (
        "prime-rl",
        "both_offloads",
        8,
        PRIME + "fsdp_cpu_offload = true\noptim_cpu_offload = true\n",
    ),
    (
        "prime-rl",
        "numbers",
        8,
        PRIME + "[optim]\nlr = 1e-4\n"
        "weight_decay = 0.1\nbetas1 = 0.8\nbetas2 = 0.95\nmax_norm = 'None'\n",
    ),
    (
        "prime-rl",
        "linear",
        8,
        PRIME + "[optim]\nlr = 1e-4\n[scheduler]\n"
        "type = 'linear'\nwarmup_steps = 10\ndecay_steps = 20\nmin_lr = 1e-5\n",
    ),
    (
        "prime-rl",
        "linear_without_end",
        8,
        PRIME + "[optim]\nlr = 1e-4\n"
        "[scheduler]\ntype = 'linear'\nwarmup_steps = 10\ndecay_steps = 0\n",
    ),
    (
        "prime-rl",
        "cosine",
        8,
        PRIME + "[optim]\nlr = 1e-4\n[scheduler]\n"
        "type = 'cosine'\nwarmup_steps = 5\nmin_lr = 1e-6\n",
    ),
    (
        "prime-rl",
        "too_long",
        8,
        PRIME + "[optim]\nlr = 1e-4\n[scheduler]\n"
        "type = 'linear'\nwarmup_steps = 90\ndecay_steps = 20\n",
    ),
    ("prime-rl", "muon", 8, PRIME + "[optim]\ntype = 'muon'\nlr = 1e-4\n"),
    (
        "prime-rl",
        "reinforced",
        8,
        "max_steps = 100\n[orchestrator]\n"
        "batch_size = 8\n[trainer.model]\ncp = 2\n[trainer.optim]\nlr = 3e-6\n",
    ),
    ("llama-factory", "defaults", 8, FACTORY + FSDP2),
    ("llama-factory", "hybrid", 8, FACTORY + FSDP2 + "mp_replicate_size: 2\n"),
    (
        "llama-factory",
        "fixed",
        8,
        FACTORY
        + FSDP2
        + "mp_replicate_size: 2\nmp_shard_size: 4\ncp_size: 2\n",
    ),
    (
        "llama-factory",
        "too_few",
        8,
        FACTORY + FSDP2 + "mp_replicate_size: 2\nmp_shard_size: 2\n",
    ),
    ("llama-factory", "data", 8, FACTORY + FSDP2 + "dp_size: 4\ncp_size: 2\n"),
    ("llama-factory", "data_too_few", 8, FACTORY + FSDP2 + "dp_size: 4\n"),
    ("llama-factory", "copies", 8, FACTORY),
    (
        "llama-factory",
        "plugin",
        8,
        FACTORY + "bf16: false\n"
        "enable_activation_checkpointing: false\nlearning_rate: 1.0e-5\n"
        "max_grad_norm: 0.5\n"
        "dist_config: {name: fsdp2, reshard_after_forward: false, "
        "offload_params: true}\n",
    ),
    (
        "llama-factory",
        "experts",
        8,
        FACTORY + "dist_config: {name: fsdpturbo, ep_size: 4}\n",
    ),
    (
        "llama-factory",
        "muon",
        8,
        FACTORY + FSDP2 + "optim_config: {name: muon}\n",
    ),
    (
        "llama-factory",
        "unknown",
        8,
        FACTORY + "dist_config: {name: fsdp2, reshard_after_foward: false}\n",
    ),
]
