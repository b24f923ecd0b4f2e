# SPDX-License-Identifier: Apache-2.0
"""The tensor parallelism plans for models.py, in PyTorch's form.

parallel.cc has ours, under the same names: "tp", and for a Llama also "sp"
(activations between blocks are cut along the sequence) and "sp_loss" (logits
stay cut by class, too; the loss and its backward are within `loss_context`).
"""

import contextlib

import models
from torch import nn
from torch.distributed.tensor import distribute_module
from torch.distributed.tensor import DTensor
from torch.distributed.tensor import Replicate
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel
from torch.distributed.tensor.parallel import loss_parallel
from torch.distributed.tensor.parallel import parallelize_module
from torch.distributed.tensor.parallel import ParallelStyle
from torch.distributed.tensor.parallel import PrepareModuleInput
from torch.distributed.tensor.parallel import RowwiseParallel
from torch.distributed.tensor.parallel import SequenceParallel


class Replicated(ParallelStyle):
    """Every rank computes all of it, on DTensors.

    PyTorch has no such style, but its clip_grad_norm_ refuses plain parameters
    next to DTensors.
    """

    def _apply(self, module, mesh):

        def enter(_module, inputs, mesh):
            return tuple(
                DTensor.from_local(x, mesh, [Replicate()], run_check=False)
                for x in inputs
            )

        def leave(_module, output, _mesh):
            return output.to_local()

        return distribute_module(module, mesh, None, enter, leave)


def gathering(num_inputs):
    """The first input of a module comes as a part of the sequence."""
    others = (None,) * (num_inputs - 1)
    return PrepareModuleInput(
        input_layouts=(Shard(1), *others),
        desired_input_layouts=(Replicate(), *others),
    )


def llama_plan(plan):
    sequence = plan != "tp"
    between = Shard(1) if sequence else Replicate()
    norm = SequenceParallel() if sequence else Replicated()
    cut_logits = plan == "sp_loss"
    table = {
        "embed_tokens": RowwiseParallel(
            input_layouts=Replicate(), output_layouts=between
        ),
        "layers.*.self_attn.[qkv]_proj": ColwiseParallel(),
        "layers.*.self_attn.o_proj": RowwiseParallel(output_layouts=between),
        "layers.*.mlp.gate_proj": ColwiseParallel(),
        "layers.*.mlp.up_proj": ColwiseParallel(),
        "layers.*.mlp.down_proj": RowwiseParallel(output_layouts=between),
        "layers.*.*_layernorm": norm,
        "norm": norm,
        "lm_head": ColwiseParallel(
            input_layouts=between,
            output_layouts=Shard(-1) if cut_logits else Replicate(),
            use_local_output=not cut_logits,
        ),
    }
    if sequence:
        table["layers.*.self_attn"] = gathering(3)
        table["layers.*.mlp"] = gathering(1)
    return table


def gpt_plan():
    """Queries, keys and values are one matrix, and parts of it are not heads.

    So its result is gathered, and each rank computes the whole attention.
    """
    return {
        "tok": RowwiseParallel(input_layouts=Replicate()),
        "layers.*.attn.qkv": ColwiseParallel(output_layouts=Replicate()),
        "layers.*.attn.out": RowwiseParallel(input_layouts=Replicate()),
        "layers.*.up": ColwiseParallel(),
        "layers.*.down": RowwiseParallel(),
        "head": ColwiseParallel(output_layouts=Replicate()),
    }


def parallelize(model, mesh, plan):
    """Cuts the model, which is not sharded yet, over the axis `mesh`."""
    if isinstance(model, models.Gpt):
        assert plan == "tp", plan
        parallelize_module(model, mesh, gpt_plan())
        return
    tied = model.lm_head is None
    if tied:
        # Only a module can have a style, and a style replaces its parameters.
        vocab_size, dim = model.embed_tokens.weight.shape
        model.lm_head = nn.Linear(dim, vocab_size, bias=False)
    parallelize_module(model, mesh, llama_plan(plan))
    if tied:
        model.lm_head.weight = model.embed_tokens.weight


def loss_context(plan):
    return loss_parallel() if plan == "sp_loss" else contextlib.nullcontext()
