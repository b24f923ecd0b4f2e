# SPDX-License-Identifier: Apache-2.0
"""FSDP2 with parameters that are wrappers, like torchao's for training in
float8: each rank's part is a wrapper that has no memory itself."""

import pathlib
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor import Replicate
from torch.distributed.tensor import Shard

import rank_end
import tessera.torch
from wrappers import Wrapper

WEIGHT = torch.arange(40.0).reshape(8, 5)


def sharded(tensor, mesh, placement):
    """A DTensor; the part on this rank is a Wrapper."""
    part = tensor
    if placement.is_shard():
        part = tensor.chunk(mesh.size(), placement.dim)[mesh.get_local_rank()]
    return DTensor.from_local(
        Wrapper(part.clone()), mesh, [placement], run_check=False
    )


def main(folder):
    dist.init_process_group("gloo")
    torch.serialization.add_safe_globals([Wrapper])
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for number, placement in enumerate((Shard(0), Replicate())):
        path = folder / str(number)
        state = {"w": sharded(WEIGHT, mesh, placement)}
        dcp.save(state, storage_writer=tessera.torch.Writer(path))
        for reader in (dcp.FileSystemReader, tessera.torch.Reader):
            target = {"w": sharded(torch.zeros(8, 5), mesh, placement)}
            dcp.load(target, storage_reader=reader(path))
            found = target["w"].to_local().inner
            assert torch.equal(found, state["w"].to_local().inner)
        # Other ranks, and plain tensors.
        whole = {"w": torch.zeros(8, 5)}
        dcp.load(whole, storage_reader=tessera.torch.Reader(path))
        assert torch.equal(whole["w"], WEIGHT)
    dist.barrier()
    dist.destroy_process_group()


main(pathlib.Path(sys.argv[1]))
rank_end.end()
