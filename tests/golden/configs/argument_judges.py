# SPDX-License-Identifier: Apache-2.0
"""What prime-rl and LLaMA-Factory make of a config."""

import dataclasses
import sys
import tomllib
import types

import yaml
from sources import (
    SOURCES,
    STEPS,
    module_at,
    rates,
    stand_in,
    torch_defaults,
)


# --- prime-rl


def prime_rl(text, ranks):
    root = SOURCES / "prime-rl/packages/prime-rl-configs/src/prime_rl"
    package = types.ModuleType("prime_rl")
    package.__path__ = [str(root)]
    sys.modules["prime_rl"] = package
    stand_in(
        "prime_rl.utils.logger", "prime_rl.trainer", "prime_rl.trainer.optim"
    )
    from prime_rl.configs import trainer as configs
    from torch.distributed import device_mesh

    del device_mesh
    dims = module_at(
        "prime_rl_dims", "prime-rl/src/prime_rl/trainer/parallel_dims.py"
    )
    schedules = module_at(
        "prime_rl_schedules", "prime-rl/src/prime_rl/trainer/scheduler.py"
    )

    def nulls(value):
        if isinstance(value, dict):
            return {k: nulls(v) for k, v in value.items()}
        return None if value == "None" else value

    config = nulls(tomllib.loads(text))
    own = config.get("trainer", config)
    fields = {k: own[k] for k in ("model", "optim", "scheduler") if k in own}
    made = configs.TrainerConfig(max_steps=config["max_steps"], **fields)
    model = made.model
    mesh = dims.ParallelDims(
        dp_replicate=model.dp_replicate,
        dp_shard=-1,
        cp=model.cp,
        pp=1,
        ep=1 if model.ep == "auto" else model.ep,
        world_size=ranks,
    )
    optim = made.optim
    if optim.type != "adamw":
        raise ValueError(f"{optim.type} is not AdamW")
    factors = rates(
        lambda sgd: schedules.setup_scheduler(
            sgd, made.scheduler, made.max_steps, optim.lr
        ),
        optim.lr,
        made.max_steps,
    )
    return {
        "mesh": [mesh.dp_replicate, mesh.dp_shard, mesh.cp, 1, 1],
        "experts": mesh.ep,
        "frees": model.reshard_after_forward,
        "cpu_offload": model.fsdp_cpu_offload,
        "recomputes": 0 if model.ac is None else model.ac.freq,
        "offloads_activations": model.ac_offloading is not None,
        "dtype": model.optimization_dtype,
        # setup_fsdp has no other.
        "param_dtype": "bfloat16",
        "reduce_dtype": model.reduce_dtype,
        "max_norm": optim.max_norm or 0.0,
        "factors": factors,
        **torch_defaults(
            "AdamW",
            {
                "lr": optim.lr,
                "weight_decay": optim.weight_decay,
                "betas": (optim.betas1, optim.betas2),
            },
        ),
    }


# --- LLaMA-Factory


def llama_factory(text, ranks):
    root = SOURCES / "llama-factory/src/llamafactory"
    package = types.ModuleType("llamafactory")
    package.__path__ = [str(root)]
    sys.modules["llamafactory"] = package
    for name in (
        "v1",
        "v1.config",
        "v1.plugins",
        "v1.plugins.model_plugins",
        "v1.plugins.trainer_plugins",
        "v1.accelerator",
        "v1.utils",
        "v1.plugins.trainer_plugins.distributed",
    ):
        made = types.ModuleType(f"llamafactory.{name}")
        made.__path__ = [str(root / name.replace(".", "/"))]
        sys.modules[made.__name__] = made
    stand_in(
        "llamafactory.v1.utils.logging",
        "llamafactory.v1.utils.types",
        "llamafactory.v1.plugins.model_plugins.deepspeed_utils",
        "llamafactory.v1.accelerator.helper",
    )
    logging = sys.modules["llamafactory.v1.utils.logging"]
    logging.get_logger = lambda *_: types.SimpleNamespace(
        warning_rank0=lambda *_: None, info_rank0=lambda *_: None
    )
    deepspeed = sys.modules[
        "llamafactory.v1.plugins.model_plugins.deepspeed_utils"
    ]
    deepspeed.register_deepspeed_dist_config = lambda *_: None
    helper = sys.modules["llamafactory.v1.accelerator.helper"]
    helper.is_distributed = lambda: ranks > 1
    helper.get_world_size = lambda: ranks
    helper.ReduceOp = types.SimpleNamespace(MEAN=0, SUM=1)
    from llamafactory.v1.accelerator import interface
    from llamafactory.v1.config.training_args import TrainingArguments
    from llamafactory.v1.plugins.trainer_plugins.distributed import (
        interface as plugins,
    )

    config = yaml.safe_load(text)
    known = {f.name for f in dataclasses.fields(TrainingArguments)}
    args = TrainingArguments(**{k: v for k, v in config.items() if k in known})
    if args.optim_config is not None:
        raise ValueError("not AdamW")
    sizes = interface.DistributedStrategy(
        mp_replicate_size=args.mp_replicate_size,
        mp_shard_size=args.mp_shard_size,
        dp_size=args.dp_size,
        cp_size=args.cp_size,
    )
    plugin = None
    if args.dist_config is not None:
        made = {
            "fsdp2": plugins.FSDP2Params,
            "fsdpturbo": plugins.FSDPTurboParams,
        }[args.dist_config.name]
        plugin = made(**args.dist_config)
    shards = [
        sizes.mp_replicate_size,
        sizes.mp_shard_size // sizes.cp_size,
        sizes.cp_size,
        1,
        1,
    ]
    return {
        "mesh": [ranks, 1, 1, 1, 1] if plugin is None else shards,
        "experts": getattr(plugin, "ep_size", 1),
        "frees": plugin is None or plugin.reshard_after_forward,
        "cpu_offload": plugin is not None and plugin.offload_params,
        "recomputes": int(args.enable_activation_checkpointing),
        # Weights keep the checkpoint's type; the reader says bfloat16.
        "dtype": "bfloat16",
        "param_dtype": None
        if plugin is None
        else "bfloat16"
        if args.bf16
        else "float32",
        "reduce_dtype": None if plugin is None else "float32",
        "max_norm": args.max_grad_norm,
        "factors": [1.0] * STEPS,
        **torch_defaults("AdamW", {"lr": args.learning_rate}),
    }
