# SPDX-License-Identifier: Apache-2.0
"""Training goes on in PyTorch's FSDP2 from a DCP checkpoint that dcp-convert
made of another framework's: three ranks load model and optimizer, and compare
every tensor with what the framework's library says.

    python resume_dialect.py DCP EXPECTED.safetensors
"""

import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn as nn
from safetensors.torch import load_file
from torch.distributed.checkpoint.state_dict import (
    get_state_dict,
    set_state_dict,
)
from torch.distributed.fsdp import fully_shard

import harness
import judge

WORLD = 3


class Named(nn.Module):
    """Has tensors of given names, and no other code."""

    def __init__(self, tensors, trained):
        super().__init__()
        for name, tensor in tensors.items():
            *path, last = name.split(".")
            module = self
            for child in path:
                if child not in dict(module.named_children()):
                    module.add_module(child, nn.Module())
                module = module.get_submodule(child)
            empty = torch.zeros_like(tensor)
            if tensor.is_floating_point():
                parameter = nn.Parameter(empty, requires_grad=name in trained)
                module.register_parameter(last, parameter)
            else:
                module.register_buffer(last, empty)


def groups_of(path):
    flat = judge.load_flat(path, "dcp")
    groups = []
    while f"optimizer.param_groups.{len(groups)}.params" in flat:
        groups.append(flat[f"optimizer.param_groups.{len(groups)}.params"])
    return groups


def tensors_of(prefix, value):
    """Every tensor of nested dicts, whole, by name."""
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from tensors_of(f"{prefix}.{key}", inner)
    elif isinstance(value, torch.Tensor):
        whole = hasattr(value, "full_tensor")
        yield prefix, value.full_tensor() if whole else value


def run(rank, store, path, expected):
    dist.init_process_group(
        "gloo",
        init_method=store,
        rank=rank,
        world_size=WORLD,
    )
    want = load_file(expected)
    groups = groups_of(path)
    model = Named(
        {n[6:]: t for n, t in want.items() if n.startswith("model.")},
        {name for group in groups for name in group},
    )
    fully_shard(model)
    parameters = dict(model.named_parameters())
    optimizer = torch.optim.AdamW(
        [{"params": [parameters[n] for n in group]} for group in groups]
    )
    model_state, optimizer_state = get_state_dict(model, optimizer)
    state = {"model": model_state, "optimizer": optimizer_state}
    dcp.load(state, checkpoint_id=path)
    set_state_dict(
        model,
        optimizer,
        model_state_dict=state["model"],
        optim_state_dict=state["optimizer"],
    )
    model_state, optimizer_state = get_state_dict(model, optimizer)
    found = dict(tensors_of("model", model_state))
    found.update(tensors_of("optimizer.state", optimizer_state["state"]))
    assert found.keys() == want.keys(), found.keys() ^ want.keys()
    for name, tensor in want.items():
        assert torch.equal(found[name], tensor), name
        assert found[name].dtype == tensor.dtype, name
    assert all(group["lr"] == 0.125 for group in optimizer.param_groups)
    dist.barrier()
    harness.end_rank()


def main():
    with tempfile.TemporaryDirectory() as folder:
        store = f"file://{folder}/store"
        torch.multiprocessing.spawn(run, (store, *sys.argv[1:]), nprocs=WORLD)


if __name__ == "__main__":
    main()
