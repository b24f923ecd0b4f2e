# SPDX-License-Identifier: Apache-2.0
"""Writes checkpoints as training frameworks do, to measure with.

    python make_dialect.py deepspeed|verl|accelerate DIR BYTES

`deepspeed` has the files of ZeRO stage 3 with AdamW, laid out as DeepSpeed's
engine lays them out, which requires no GPU. `verl` has a pickle of DTensors for
each rank, `accelerate` a DCP directory of the model, both of four ranks. The
model is a decoder in float32.
"""

import collections
import os
import pathlib
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.tensor import DTensor, Shard, init_device_mesh

import make_checkpoint

NUM_RANKS = 4


def shapes_of(num_parameters):
    named = make_checkpoint.shapes(2 * num_parameters)
    return {name: torch.Size(shape) for name, (shape, _) in named.items()}


def values(numel, seed):
    """Finite values that no disk compresses, at the speed of memory."""
    noise = torch.randn(1 << 20, generator=torch.Generator().manual_seed(seed))
    return noise.repeat(-(-numel // noise.numel()))[:numel].clone()


def write_deepspeed(directory, num_bytes):
    """Each parameter is cut into pieces of ceil(numel / ranks); a rank's pieces
    stand one after the other in one vector."""
    from deepspeed.runtime.zero.config import ZeroStageEnum

    # Weights and two moments, in float32.
    shapes = shapes_of(num_bytes // 12)
    tag = pathlib.Path(directory) / "global_step1"
    tag.mkdir(parents=True)
    (tag.parent / "latest").write_text(tag.name)
    piece = sum(-(-shape.numel() // NUM_RANKS) for shape in shapes.values())
    groups = [{"lr": 1e-3, "betas": (0.9, 0.95), "eps": 1e-8, "params": [0]}]
    for rank in range(NUM_RANKS):
        name = f"zero_pp_rank_{rank}_mp_rank_00"
        model = {
            "module": {key: torch.empty(0) for key in shapes},
            "buffer_names": [],
            "optimizer": None,
            "param_shapes": [collections.OrderedDict(shapes)],
            "frozen_param_shapes": None,
            "frozen_param_fragments": None,
            "shared_params": {},
            "lr_scheduler": None,
            "global_steps": 1,
            "dp_world_size": NUM_RANKS,
            "mp_world_size": 1,
            "ds_version": "0.19.8",
        }
        torch.save(model, tag / f"{name}_model_states.pt")
        inner = {
            "step": torch.tensor(1.0),
            "exp_avg": values(piece, 10 + rank),
            "exp_avg_sq": values(piece, 20 + rank).square(),
        }
        optimizer = {
            "zero_stage": ZeroStageEnum.weights,
            "loss_scaler": None,
            "partition_count": NUM_RANKS,
            "optimizer_state_dict": {
                "state": {0: inner},
                "param_groups": groups,
            },
            "fp32_flat_groups": [values(piece, rank)],
        }
        torch.save(
            {"optimizer_state_dict": optimizer, "ds_version": "0.19.8"},
            tag / f"{name}_optim_states.pt",
        )


def write_rank(rank, store, kind, directory, num_bytes):
    make_checkpoint.join_ranks(rank, store)
    mesh = init_device_mesh("cpu", (NUM_RANKS,), mesh_dim_names=("fsdp",))
    state = {}
    for seed, (name, shape) in enumerate(shapes_of(num_bytes // 4).items()):
        rows = [len(c) for c in torch.arange(shape[0]).chunk(NUM_RANKS)]
        mine = rows[rank] if rank < len(rows) else 0
        local = values(mine * shape[1:].numel(), seed * NUM_RANKS + rank)
        state[name] = DTensor.from_local(
            local.view(mine, *shape[1:]),
            mesh,
            [Shard(0)],
            run_check=False,
            shape=shape,
            stride=torch.empty(shape, device="meta").stride(),
        )
    if kind == "verl":
        name = f"model_world_size_{NUM_RANKS}_rank_{rank}.pt"
        torch.save(state, os.path.join(directory, name))
    else:
        path = os.path.join(directory, "pytorch_model_fsdp_0")
        dcp.save({"model": state}, checkpoint_id=path)
    dist.destroy_process_group()


def main():
    kind, directory, num_bytes = sys.argv[1:]
    if kind == "deepspeed":
        write_deepspeed(directory, int(num_bytes))
        return
    os.makedirs(directory)
    if kind == "verl":
        config = pathlib.Path(directory) / "fsdp_config.json"
        config.write_text(f'{{"FSDP_version": 2, "world_size": {NUM_RANKS}}}')
    make_checkpoint.run_ranks(write_rank, kind, directory, int(num_bytes))


if __name__ == "__main__":
    main()
