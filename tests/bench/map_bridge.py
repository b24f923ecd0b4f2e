# SPDX-License-Identifier: Apache-2.0
"""Megatron-Bridge between transformers' files and a torch_dist checkpoint, in one
process without a GPU, for map_rivals.py.

It imports only with TransformerEngine, which no conversion calls: a stand-in is
enough.
"""

import importlib.machinery
import os
import sys
import types

import torch

# Everything in Megatron's configuration that needs a GPU.
GPU_FLAGS = (
    "apply_rope_fusion",
    "bias_activation_fusion",
    "bias_dropout_fusion",
    "cross_entropy_loss_fusion",
    "gradient_accumulation_fusion",
    "masked_softmax_fusion",
    "persist_layer_norm",
)


class Anything(type):
    """A class of any name, with attributes of any name."""

    def __getattr__(cls, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(name, (), {})


class StandIn(types.ModuleType):
    def __getattr__(self, name):
        if name.startswith("__"):
            raise AttributeError(name)
        return Anything(name, (), {})


def start():
    """Imports everything, and begins as the only rank."""
    import megatron.core.models.gpt
    from packaging.version import Version

    # Megatron's core has seen that there is none.
    megatron.core.utils._te_version = Version("2.9.0")
    for name in ("transformer_engine", "transformer_engine.pytorch"):
        module = StandIn(name)
        module.__spec__ = importlib.machinery.ModuleSpec(name, None)
        module.__path__ = []
        sys.modules[name] = module
    torch.cuda.synchronize = lambda *_: None
    torch.cuda.current_device = lambda: "cpu"
    import megatron.bridge
    from megatron.core import dist_checkpointing, parallel_state

    for name, module in list(sys.modules.items()):
        if name.startswith("megatron.core") and hasattr(module, "HAVE_TE"):
            module.HAVE_TE = False
    torch.distributed.init_process_group(
        "gloo", rank=0, world_size=1, store=torch.distributed.HashStore()
    )
    parallel_state.initialize_model_parallel()


def build(directory):
    """The bridge for a model of transformers, and Megatron's model."""
    from megatron.bridge import AutoBridge
    from megatron.core.models.gpt.gpt_layer_specs import (
        get_gpt_layer_local_spec,
    )

    bridge = AutoBridge.from_hf_pretrained(directory)
    provider = bridge.to_megatron_provider(load_weights=False)
    provider.use_cpu_initialization = True
    provider.perform_initialization = False
    provider.params_dtype, provider.bf16 = torch.bfloat16, True
    for flag in GPU_FLAGS:
        setattr(provider, flag, False)
    provider.transformer_layer_spec = get_gpt_layer_local_spec(
        normalization="RMSNorm"
    )
    provider.finalize()
    model = provider.provide(pre_process=True, post_process=True)
    return bridge, model.bfloat16()


@torch.inference_mode()
def from_hf(src, dst):
    from megatron.core import dist_checkpointing

    bridge, model = build(src)
    bridge.load_hf_weights([model])
    dist_checkpointing.save(model.sharded_state_dict(), dst)


@torch.inference_mode()
def to_hf(src, dst, config):
    from megatron.core import dist_checkpointing
    from safetensors.torch import save_file

    bridge, model = build(os.path.dirname(config))
    state = dist_checkpointing.load(model.sharded_state_dict(), src)
    model.load_state_dict(state)
    weights = bridge.export_hf_weights([model], cpu=True, show_progress=False)
    state = {one.param_name: one.weight.contiguous() for one in weights}
    save_file(state, os.path.join(dst, "model.safetensors"))
