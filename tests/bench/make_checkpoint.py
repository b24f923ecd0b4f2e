# SPDX-License-Identifier: Apache-2.0
"""Writes checkpoints to measure with, by PyTorch itself.

    python make_checkpoint.py transformer DIR BYTES
    python make_checkpoint.py index DIR TENSORS[xRANKS]

`transformer` is a language model as FSDP saves it: four ranks, every tensor
sharded by rows, bfloat16 except for the norms. `index` is the .metadata of that
many small tensors on that many ranks, or four, with data files that are holes.
"""

import os
import pathlib
import pickle
import sys
import tempfile

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import metadata as md
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.tensor import DTensor, Shard, init_device_mesh

NUM_RANKS = 4


def shapes(num_bytes):
    """Name -> (shape, dtype) of a decoder with about that many bytes."""
    widths = [(10e9, 4096), (1e9, 2048), (2e8, 1024), (0, 512)]
    hidden = next(width for least, width in widths if num_bytes >= least)
    vocab, ffn, kv = hidden * 16, hidden * 11 // 4, hidden // 8
    layer = {
        "self_attn.q_proj.weight": (hidden, hidden),
        "self_attn.k_proj.weight": (kv, hidden),
        "self_attn.v_proj.weight": (kv, hidden),
        "self_attn.o_proj.weight": (hidden, hidden),
        "mlp.gate_proj.weight": (ffn, hidden),
        "mlp.up_proj.weight": (ffn, hidden),
        "mlp.down_proj.weight": (hidden, ffn),
        "input_layernorm.weight": (hidden,),
        "post_attention_layernorm.weight": (hidden,),
    }
    embedding = 2 * vocab * hidden
    layer_bytes = 2 * hidden * (2 * hidden + 2 * kv + 3 * ffn) + 8 * hidden
    num_layers = max(1, round((num_bytes - 2 * embedding) / layer_bytes))
    result = {"model.embed_tokens.weight": (vocab, hidden)}
    for i in range(num_layers):
        for name, shape in layer.items():
            result[f"model.layers.{i}.{name}"] = shape
    result["model.norm.weight"] = (hidden,)
    result["lm_head.weight"] = (vocab, hidden)
    return {
        name: (shape, torch.bfloat16 if len(shape) == 2 else torch.float32)
        for name, shape in result.items()
    }


def local_values(shape, dtype, noise):
    """Finite values that no disk compresses, at the speed of memory."""
    numel = shape.numel()
    repeat = -(-numel // noise.numel())
    return noise.repeat(repeat)[:numel].to(dtype).reshape(shape).clone()


def run_ranks(function, *arguments):
    """Calls function(rank, store, *arguments) in NUM_RANKS processes."""
    with tempfile.TemporaryDirectory() as folder:
        store = f"file://{folder}/store"
        torch.multiprocessing.spawn(
            function, (store, *arguments), nprocs=NUM_RANKS
        )


def join_ranks(rank, store):
    dist.init_process_group(
        "gloo", init_method=store, rank=rank, world_size=NUM_RANKS
    )
    torch.set_num_threads(1)  # ranks share the processors


def save_rank(rank, store, directory, num_bytes):
    join_ranks(rank, store)
    mesh = init_device_mesh("cpu", (NUM_RANKS,))
    torch.manual_seed(rank)
    noise = torch.randn(1 << 22)
    noise_bf16 = noise.bfloat16()
    state = {}
    for name, (shape, dtype) in shapes(num_bytes).items():
        rows = len(torch.arange(shape[0]).chunk(NUM_RANKS)[rank])
        source = noise_bf16 if dtype == torch.bfloat16 else noise
        local = local_values(torch.Size((rows, *shape[1:])), dtype, source)
        state[name] = DTensor.from_local(local, mesh, [Shard(0)])
    dcp.save({"model": state, "step": 1000}, checkpoint_id=directory)
    dist.destroy_process_group()


def make_transformer(directory, num_bytes):
    run_ranks(save_rank, directory, num_bytes)


def make_index(directory, num_tensors, num_ranks):
    path = pathlib.Path(directory)
    path.mkdir(parents=True)
    properties = md.TensorProperties(dtype=torch.bfloat16)
    rows, columns, item_bytes = 64, 1024, 132_000
    tensors, storage = {}, {}
    for i in range(num_tensors):
        name = f"model.layers.{i // 10}.mlp.experts.{i % 10}.weight"
        chunks = []
        for rank in range(num_ranks):
            offsets = torch.Size((rank * rows, 0))
            chunks.append(
                md.ChunkStorageMetadata(offsets, torch.Size((rows, columns)))
            )
            storage[md.MetadataIndex(name, offsets, rank)] = _StorageInfo(
                f"__{rank}_0.distcp", i * item_bytes, item_bytes
            )
        tensors[name] = md.TensorStorageMetadata(
            properties, torch.Size((rows * num_ranks, columns)), chunks
        )
    index = md.Metadata(tensors, {name: (name,) for name in tensors}, storage)
    for rank in range(num_ranks):
        with open(path / f"__{rank}_0.distcp", "wb") as file:
            file.truncate(num_tensors * item_bytes)
    with open(path / ".metadata", "wb") as file:
        pickle.dump(index, file)


def main():
    kind, directory, number = sys.argv[1:]
    if kind == "transformer":
        make_transformer(directory, int(number))
    elif kind == "index":
        num_tensors, _, num_ranks = number.partition("x")
        make_index(directory, int(num_tensors), int(num_ranks or NUM_RANKS))
    else:
        sys.exit(f"unknown kind {kind}")


if __name__ == "__main__":
    main()
