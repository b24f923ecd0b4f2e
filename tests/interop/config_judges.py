# SPDX-License-Identifier: Apache-2.0
"""What accelerate, transformers and TorchTitan make of a training config.

Each judge returns a dict with the keys that `fsdp-config explain --json` has,
or raises whatever the package raises for a config that it refuses.
"""

import contextlib
import dataclasses
import json
import os
import tomllib
import typing
from types import SimpleNamespace
from unittest import mock

import torch
from accelerate.commands.launch import (
    _validate_launch_command,
    launch_command_parser,
)
from accelerate.parallelism_config import ParallelismConfig
from accelerate.utils import FullyShardedDataParallelPlugin, PrecisionType
from accelerate.utils.launch import prepare_multi_gpu_env
from torch.distributed.fsdp import ShardingStrategy
from torchtitan.config import ConfigManager
from torchtitan.distributed import ParallelDims
from transformers import TrainingArguments
from transformers.distributed import DistributedConfig

FREES = (ShardingStrategy.FULL_SHARD, ShardingStrategy.HYBRID_SHARD)
HYBRID = (ShardingStrategy.HYBRID_SHARD, ShardingStrategy._HYBRID_SHARD_ZERO2)
DTYPES = {
    "no": "float32",
    "fp32": "float32",
    "bf16": "bfloat16",
    "fp16": "float16",
}


@contextlib.contextmanager
def _clean_environment():
    """Without variables of launchers, and as on a machine with a GPU."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("FSDP_", "ACCELERATE_", "PARALLELISM_"))
    }
    with contextlib.ExitStack() as stack:
        stack.enter_context(mock.patch.dict(os.environ, kept, clear=True))
        for name, value in (("is_available", True), ("current_device", 0)):
            patch = mock.patch.object(torch.cuda, name, lambda v=value: v)
            stack.enter_context(patch)
        yield


def _plugin_result(plugin):
    """The options of FSDP, from accelerate's plugin."""
    if plugin.fsdp_version == 1:
        reshard = plugin.sharding_strategy in FREES
    else:
        reshard = plugin.reshard_after_forward
    policy = getattr(plugin.auto_wrap_policy, "__name__", "")
    wrap = {
        "transformer_auto_wrap_policy": "TRANSFORMER_BASED_WRAP",
        "size_based_auto_wrap_policy": "SIZE_BASED_WRAP",
    }.get(policy, "NO_WRAP")
    if wrap == "SIZE_BASED_WRAP" and not plugin.min_num_params:
        wrap = "NO_WRAP"
    offload = plugin.cpu_offload
    return {
        "reshard_after_forward": reshard,
        "auto_wrap_policy": wrap,
        "cpu_offload": type(offload).__name__ == "CPUOffloadPolicy"
        or getattr(offload, "offload_params", False),
        "state_dict_type": plugin.state_dict_type.name,
        "activation_checkpointing": int(plugin.activation_checkpointing),
        "activation_cpu_offload": plugin.activation_checkpointing_offload,
        "cpu_ram_efficient_loading": plugin.cpu_ram_efficient_loading,
    }


def _mesh_result(sizes, ranks, machines, plugin):
    if sizes is not None and sizes.total_size > 1:
        return {
            "replicate": sizes.dp_replicate_size,
            "shard": sizes.dp_shard_size,
            "tensor_parallel": sizes.tp_size,
            "context_parallel": sizes.cp_size,
        }
    mesh = {"tensor_parallel": 1, "context_parallel": 1}
    strategy = plugin and plugin.sharding_strategy
    is_copied = plugin is None or strategy == ShardingStrategy.NO_SHARD
    copies = ranks if is_copied else machines if strategy in HYBRID else 1
    return {"replicate": copies, "shard": ranks // copies, **mesh}


def _validated_sizes(sizes, ranks, is_fsdp, is_fsdp2):
    """ParallelismConfig asks four things of an Accelerator."""
    sizes._validate_accelerator(
        SimpleNamespace(
            num_processes=ranks,
            is_fsdp2=is_fsdp2,
            multi_device=not is_fsdp,
            distributed_type="FSDP" if is_fsdp else "MULTI_GPU",
        )
    )
    if sizes.cp_enabled and not is_fsdp:
        raise ValueError("state.py: cp_size needs FSDP")
    return sizes


def accelerate_result(path, ranks):
    """As `accelerate launch --config_file` sets it up for its processes."""
    with _clean_environment():
        arguments = ["--config_file", str(path), "train.py"]
        args = launch_command_parser().parse_args(arguments)
        args, _, _ = _validate_launch_command(args)
        os.environ.update(prepare_multi_gpu_env(args))
        plugin = FullyShardedDataParallelPlugin() if args.use_fsdp else None
        is_fsdp2 = plugin is not None and plugin.fsdp_version == 2
        sizes = None
        if os.environ.get("ACCELERATE_USE_PARALLELISM_CONFIG") == "true":
            sizes = _validated_sizes(
                ParallelismConfig(), ranks, plugin is not None, is_fsdp2
            )
        precision = str(args.mixed_precision).lower()
        PrecisionType(precision)
        machines = args.num_machines or 1
        result = {
            "mesh": _mesh_result(sizes, ranks, machines, plugin),
            "param_dtype": DTYPES[precision],
        }
        if plugin is not None:
            result.update(_plugin_result(plugin))
        return result


def transformers_result(path, ranks):
    """TrainingArguments, and the plugin that they make."""
    values = json.loads(path.read_text())
    with _clean_environment():
        arguments = TrainingArguments(use_cpu=True, **values)
        plugin_values = arguments.fsdp_plugin_args
        plugin = plugin_values and FullyShardedDataParallelPlugin(
            **plugin_values
        )
        precision = (
            "bf16" if arguments.bf16 else "fp16" if arguments.fp16 else "no"
        )
        result = {
            "mesh": _mesh_result(None, ranks, 1, plugin),
            "param_dtype": DTYPES[precision],
        }
        if plugin:
            result.update(_plugin_result(plugin))
        return result


def _check_types(section):
    """In place of tyro, which for this needs a package that is not here."""
    for field in dataclasses.fields(section):
        value = getattr(section, field.name)
        if dataclasses.is_dataclass(value):
            _check_types(value)
        elif typing.get_origin(field.type) is typing.Literal:
            if value not in typing.get_args(field.type):
                raise ValueError(f"{field.name} is {value!r}")
        elif field.type in (bool, int, str) and type(value) is not field.type:
            raise TypeError(f"{field.name} is {value!r}")


def torchtitan_result(path, ranks):
    """JobConfig as ConfigManager makes it, and ParallelDims."""
    manager = ConfigManager()
    config = manager._dict_to_dataclass(
        manager.config_cls, tomllib.loads(path.read_text())
    )
    _check_types(config)
    part = config.parallelism
    dims = ParallelDims(
        dp_replicate=part.data_parallel_replicate_degree,
        dp_shard=part.data_parallel_shard_degree,
        cp=part.context_parallel_degree,
        tp=part.tensor_parallel_degree,
        pp=part.pipeline_parallel_degree,
        ep=part.expert_parallel_degree,
        etp=part.expert_tensor_parallel_degree,
        world_size=ranks,
    )
    inner = dims.dp_shard * dims.cp * dims.tp
    if inner % (dims.ep * dims.etp):
        raise ValueError("no mesh for experts")
    reshard = {"always": True, "never": False, "default": None}[
        part.fsdp_reshard_after_forward
    ]
    if reshard is None and dims.pp > 1:
        reshard = False
    training = config.training
    return {
        "mesh": {
            "replicate": dims.dp_replicate,
            "shard": dims.dp_shard,
            "tensor_parallel": dims.tp,
            "context_parallel": dims.cp,
            "pipeline_parallel": dims.pp,
            "expert_parallel": dims.ep,
            "expert_tensor_parallel": dims.etp if dims.ep > 1 else 1,
        },
        "param_dtype": training.mixed_precision_param,
        "reshard_after_forward": reshard,
        "cpu_offload": training.enable_cpu_offload,
    }


def distributed_config_result(path, ranks):
    """transformers' own FSDP2; all of its ranks are given as numbers."""
    config = DistributedConfig.from_dict(json.loads(path.read_text()))
    made = config.dp_size * config.tp_size * config.pp_size
    if made != ranks:
        raise ValueError(f"{made} ranks, not {ranks}")
    return {
        "mesh": {
            "replicate": config.dp_replicate_size,
            "shard": config.fsdp_size,
            "tensor_parallel": config.tp_size,
            "pipeline_parallel": config.pp_size,
            "expert_parallel": config.ep_size,
        },
        "cpu_offload": config.fsdp_cpu_offload,
        "param_dtype": "bfloat16" if config.fsdp_mixed_precision else "float32",
    }
