# SPDX-License-Identifier: Apache-2.0
"""What torchtune, verl and NeMo Automodel make of a config."""

import ast
import dataclasses
import sys
import types
import unittest.mock

import yaml
from sources import (
    SOURCES,
    STEPS,
    functions_of,
    module_at,
    rates,
    stand_in,
    torch_defaults,
    word,
)


# --- torchtune


def recipe_default(key):
    """What the recipe takes for a key that a config lacks."""

    source = SOURCES / "torchtune/recipes/full_finetune_distributed.py"
    for node in ast.walk(ast.parse(source.read_text())):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr == "get"
            and len(node.args) == 2
            and getattr(node.args[0], "value", None) == key
        ):
            return ast.literal_eval(node.args[1])
    raise KeyError(key)


def torchtune(text, ranks):
    stand_in(
        "torchtune",
        "torchtune.modules",
        "torchtune.modules.attention",
        "torchtune.modules.model_fusion",
        "torchtune.modules.peft",
        "torchtune.modules.transformer",
        "torchtune.training",
        "torchtune.training.memory",
        "torchtune.utils",
        "torchtune.utils._device",
        "torchtune.utils._logging",
        "torchao",
        "torchao.quantization",
    )
    sys.modules["torchtune.utils._logging"].deprecated = lambda **_: (
        lambda function: function
    )
    dims = module_at(
        "torchtune_dims", "torchtune/torchtune/training/_distributed.py"
    )
    schedules = module_at(
        "torchtune_schedules", "torchtune/torchtune/training/lr_schedulers.py"
    )
    from omegaconf import OmegaConf

    config = OmegaConf.create(text)

    def get(key):
        return config.get(key, recipe_default(key))

    mesh = dims.ParallelDims(
        dp_replicate=get("data_parallel_replicate_dim"),
        dp_shard=get("data_parallel_shard_dim"),
        tp=get("tensor_parallel_dim"),
        cp=get("context_parallel_dim"),
        world_size=ranks,
    )
    optimizer = dict(config.optimizer)
    bound = get("clip_grad_norm")
    scheduler = config.get("lr_scheduler")
    arguments = torch_defaults(optimizer["_component_"], optimizer)
    if scheduler is None:
        factors = [1.0] * STEPS
    else:
        factors = rates(
            lambda made: schedules.get_cosine_schedule_with_warmup(
                made,
                scheduler.num_warmup_steps,
                STEPS,
                scheduler.get("num_cycles", 0.5),
            ),
            arguments["lr"],
            STEPS,
        )
    return {
        "mesh": [mesh.dp_replicate, mesh.dp_shard, mesh.cp, mesh.tp, 1],
        "frees": get("fsdp_reshard_after_forward"),
        "cpu_offload": get("fsdp_cpu_offload"),
        "recomputes": int(get("enable_activation_checkpointing")),
        "dtype": {"bf16": "bfloat16", "fp32": "float32"}[config.dtype],
        "param_dtype": None,
        "reduce_dtype": None,
        "max_norm": 0.0 if bound in (None, "inf") else float(bound),
        "factors": factors,
        **arguments,
    }


# --- verl


def verl(text, ranks):
    stand_in(
        "verl",
        "verl.trainer",
        "verl.trainer.config",
        "verl.utils",
        "verl.utils.device",
        "verl.utils.profiler",
        "verl.workers",
        "verl.workers.config",
        "verl.workers.config.model",
        "tensordict",
        "codetiming",
        "verl.utils.torch_functional_parts",
    )

    @dataclasses.dataclass
    class BaseConfig:
        _mutable_fields = set()

        def get(self, key, default=None):
            return getattr(self, key, default)

    sys.modules["verl.base_config"] = types.SimpleNamespace(
        BaseConfig=BaseConfig
    )
    optimizers = module_at(
        "verl.workers.config.optimizer", "verl/verl/workers/config/optimizer.py"
    )
    engines = module_at(
        "verl.workers.config.engine", "verl/verl/workers/config/engine.py"
    )
    meshes = module_at("verl_meshes", "verl/verl/workers/engine/fsdp/utils.py")
    meshes.init_device_mesh = lambda _, mesh_shape, mesh_dim_names: mesh_shape
    from omegaconf import OmegaConf

    config = OmegaConf.to_container(OmegaConf.create(text), resolve=True)
    packaged = SOURCES / "verl/verl/trainer/config"
    actor = config.get("actor_rollout_ref", {}).get("actor")
    if actor is None:
        engine, optim = config.get("engine", {}), config.get("optim", {})
        strategy = engine.get("strategy", "fsdp")
    else:
        engine, optim = actor.get("fsdp_config", {}), actor.get("optim", {})
        strategy = actor.get("strategy", "fsdp")
        optim = {
            "lr": yaml.safe_load((packaged / "actor/actor.yaml").read_text())[
                "optim"
            ]["lr"],
            **optim,
        }
    engine = engines.FSDPEngineConfig(**engine)
    optim = optimizers.FSDPOptimizerConfig(
        **{k: float(v) if k == "lr" else v for k, v in optim.items()}
    )
    shape = meshes.create_device_mesh(ranks, engine.fsdp_size)
    replicate, shard = shape if len(shape) == 2 else (1, shape[0])
    sequences = engine.ulysses_sequence_parallel_size
    if actor is not None and actor.get("ulysses_sequence_parallel_size", 1) > 1:
        sequences = actor["ulysses_sequence_parallel_size"]
    types_ = engine.mixed_precision or {}
    bits = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16"}
    model = (
        config.get("model", {})
        if actor is None
        else (config["actor_rollout_ref"].get("model", {}))
    )
    warmup = optim.lr_warmup_steps
    if warmup <= 0:
        warmup = int(optim.lr_warmup_steps_ratio * STEPS)
    schedules = functions_of(
        "verl/verl/utils/torch_functional.py",
        (
            "get_cosine_schedule_with_warmup",
            "get_constant_schedule_with_warmup",
        ),
    )
    if optim.lr_scheduler_type == "constant":

        def make(made):
            return schedules["get_constant_schedule_with_warmup"](made, warmup)
    else:

        def make(made):
            return schedules["get_cosine_schedule_with_warmup"](
                made,
                warmup,
                STEPS,
                min_lr_ratio=optim.min_lr_ratio,
                num_cycles=optim.num_cycles,
            )

    hf_model = yaml.safe_load((packaged / "model/hf_model.yaml").read_text())
    return {
        "mesh": [replicate, shard // sequences, sequences, 1, 1],
        "frees": engine.reshard_after_forward,
        "cpu_offload": strategy == "fsdp2" and engine.offload_policy,
        "recomputes": int(
            model.get(
                "enable_gradient_checkpointing",
                hf_model["enable_gradient_checkpointing"],
            )
        ),
        "dtype": bits[engine.model_dtype],
        "param_dtype": bits[types_.get("param_dtype", "bf16")],
        "reduce_dtype": bits[types_.get("reduce_dtype", "fp32")],
        "max_norm": optim.clip_grad,
        "factors": rates(make, optim.lr, STEPS),
        **torch_defaults(
            optim.optimizer,
            {
                "lr": optim.lr,
                "weight_decay": optim.weight_decay,
                "betas": optim.betas,
            },
        ),
    }


# --- NeMo Automodel


def automodel(text, ranks):
    root = SOURCES / "automodel"
    package = types.ModuleType("nemo_automodel")
    package.__path__ = [str(root / "nemo_automodel")]
    sys.modules["nemo_automodel"] = package
    for name in (
        "components",
        "components.distributed",
        "components.optim",
        "components.training",
        "recipes",
        "shared",
        "components.distributed.pipelining",
    ):
        made = types.ModuleType(f"nemo_automodel.{name}")
        made.__path__ = [str(root / "nemo_automodel" / name.replace(".", "/"))]
        sys.modules[made.__name__] = made
    from nemo_automodel.components.config.loader import translate_value
    from nemo_automodel.components.distributed import mesh_utils
    from nemo_automodel.components.optim.optimizer import LRSchedulerConfig
    from nemo_automodel.components.training.step_scheduler import (
        StepSchedulerConfig,
    )
    from nemo_automodel.recipes._dist_utils import parse_distributed_section

    def translated(value):
        if isinstance(value, dict):
            return {k: translated(v) for k, v in value.items()}
        return translate_value(value)

    config = translated(yaml.safe_load(text))
    parsed = parse_distributed_section(config["distributed"])
    strategy = parsed["strategy_config"]
    shapes = []

    def mesh_of(spec, **_):
        shapes.append(spec.shape)
        return unittest.mock.MagicMock()

    mesh_utils._init_named_mesh = mesh_of
    mesh_utils._create_device_meshes(
        strategy, parsed["parallelism_sizes"], world_size=ranks
    )
    optimizer = {
        k: v for k, v in config["optimizer"].items() if k != "_target_"
    }
    arguments = torch_defaults(config["optimizer"]["_target_"], optimizer)
    steps = StepSchedulerConfig(
        **{
            k: v
            for k, v in config.get("step_scheduler", {}).items()
            if k != "local_batch_size"
        }
    )
    policy = getattr(strategy, "mp_policy", None)
    reshard = getattr(strategy, "reshard_after_forward", None)
    if reshard is None:
        moe = parsed["moe_parallel_config"]
        reshard = (
            moe.reshard_after_forward
            if moe is not None
            else not parsed["pp_enabled"]
        )
    bound = config.get("clip_grad_norm", {}).get("max_norm")
    expected = {
        "frees": reshard,
        "cpu_offload": getattr(strategy, "offload_policy", None) is not None,
        "recomputes": int(bool(parsed["activation_checkpointing"])),
        "dtype": config["model"]["torch_dtype"],
        "param_dtype": word(getattr(policy, "param_dtype", None)),
        "reduce_dtype": word(getattr(policy, "reduce_dtype", None)),
        "max_norm": 1.0 if bound is None else float(bound),
        **arguments,
    }
    if shapes:
        pipeline, replicate, shard, context, tensor = shapes[0]
        expected["mesh"] = [replicate, shard, context, tensor, pipeline]
        expected["experts"] = parsed["ep_size"]
    else:
        expected["mesh"] = [ranks, 1, 1, 1, 1]
    expected["factors"] = [1.0] * STEPS
    if config.get("lr_scheduler") is not None:
        schedule = LRSchedulerConfig(**config["lr_scheduler"])
        run = types.SimpleNamespace(epoch_len=None, max_steps=steps.max_steps)

        class Lone:
            def __init__(self, made):
                made.param_groups[0]["weight_decay"] = 0.0
                (self.inner,) = schedule.build(made, run)

            def step(self):
                self.inner.step(1)

        expected["factors"] = rates(Lone, arguments["lr"], steps.max_steps)
    return expected
