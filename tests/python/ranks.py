# SPDX-License-Identifier: Apache-2.0
"""One rank in the tests with several: torchrun ranks.py CASE FOLDER."""

import pathlib
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.checkpoint.state_dict import set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP1

import rank_end
import tessera
import tessera.torch

try:
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import distribute_tensor
    from torch.distributed.tensor import DTensor
    from torch.distributed.tensor import Replicate
    from torch.distributed.tensor import Shard
except ImportError:  # before PyTorch 2.6
    from torch.distributed._composable.fsdp import fully_shard
    from torch.distributed._tensor import distribute_tensor
    from torch.distributed._tensor import DTensor
    from torch.distributed._tensor import Replicate
    from torch.distributed._tensor import Shard


def make_training(case, seed):
    """A model under one parallelism, with an optimizer, after a step."""
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Linear(10, 3))
    ranks = dist.get_world_size()
    if case == "fsdp2":
        fully_shard(model, mesh=init_device_mesh("cpu", (ranks,)))
    elif case == "hsdp":
        mesh = init_device_mesh(
            "cpu", (2, ranks // 2), mesh_dim_names=("replicate", "shard")
        )
        fully_shard(model, mesh=mesh)
    elif case == "ddp":
        model = nn.parallel.DistributedDataParallel(model)
    elif case == "fsdp1":
        model = FSDP1(
            model, use_orig_params=True, device_id=torch.device("cpu")
        )
    elif case == "2d":
        mesh = init_device_mesh(
            "cpu", (2, ranks // 2), mesh_dim_names=("dp", "tp")
        )
        for layer in (model[0], model[2]):
            for name, parameter in list(layer.named_parameters()):
                cut = distribute_tensor(parameter.data, mesh["tp"], [Shard(0)])
                setattr(layer, name, nn.Parameter(cut))
        fully_shard(model, mesh=mesh["dp"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter) * (seed + 1)
    optimizer.step()
    return model, optimizer


def train_state(model, optimizer):
    model_state, optim_state = get_state_dict(model, optimizer)
    return {"model": model_state, "optim": optim_state}


def full(value):
    """The whole values, for any sharding."""
    if isinstance(value, dict):
        return {key: full(each) for key, each in value.items()}
    if isinstance(value, DTensor):
        return value.full_tensor()
    if hasattr(value, "local_shards"):  # FSDP1's ShardedTensor
        return [shard.tensor.clone() for shard in value.local_shards()]
    return value.clone() if isinstance(value, torch.Tensor) else value


def same(a, b):
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return torch.equal(a, b) if isinstance(a, torch.Tensor) else a == b


def there_and_back(case, folder):
    """Trains, saves with each side and resumes with the other."""
    model, optimizer = make_training(case, seed=1)
    state = train_state(model, optimizer)
    expected = full(state)
    dcp.save(
        state, storage_writer=tessera.torch.Writer(folder / f"{case}-ours")
    )
    dcp.save(state, checkpoint_id=folder / f"{case}-theirs")
    for source, reader in (
        ("ours", dcp.FileSystemReader(folder / f"{case}-ours")),
        ("theirs", tessera.torch.Reader(folder / f"{case}-theirs")),
        ("ours", tessera.torch.Reader(folder / f"{case}-ours", verify=True)),
    ):
        model, optimizer = make_training(case, seed=2)
        state = train_state(model, optimizer)
        assert not same(full(state), expected)
        dcp.load(state, storage_reader=reader)
        set_state_dict(
            model,
            optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optim"],
        )
        assert same(full(train_state(model, optimizer)), expected), source
    dist.barrier()
    if dist.get_rank() == 0:
        ours, theirs = folder / f"{case}-ours", folder / f"{case}-theirs"
        assert tessera.diff(ours, theirs)["equal"]
        assert tessera.verify(ours)["num_items_unchecked"] == 0


def failing_rank(folder):
    """If one rank cannot resolve a tensor, the save fails on all."""
    path = folder / "failing"
    kept = {"w": torch.full((3,), 7.0)}
    dcp.save(kept, storage_writer=tessera.torch.Writer(path))

    class Failing(dcp.DefaultSavePlanner):
        def resolve_data(self, write_item):
            if dist.get_rank() == 1:
                raise RuntimeError("this rank has lost its tensor")
            return super().resolve_data(write_item)

    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    state = {"w": distribute_tensor(torch.ones(8, 2), mesh, [Shard(0)])}
    writer = tessera.torch.Writer(path)
    try:
        dcp.save(state, storage_writer=writer, planner=Failing())
        raise AssertionError("the save succeeded")
    except dcp.api.CheckpointException as raised:
        assert "lost its tensor" in str(raised)
    dist.barrier()
    found = {"w": torch.zeros(3)}
    dcp.load(found, storage_reader=tessera.torch.Reader(path))
    assert same(found, kept)
    # The next save to the same path works, also with another writer.
    dcp.save(state, storage_writer=tessera.torch.Writer(path))
    loaded = {"w": distribute_tensor(torch.zeros(8, 2), mesh, [Shard(0)])}
    dcp.load(loaded, storage_reader=tessera.torch.Reader(path))
    assert same(full(loaded), full(state))
    dist.barrier()
    if dist.get_rank() == 0:
        assert len(list(path.glob("*.distcp"))) == dist.get_world_size()


def resharding(folder):
    """A tensor saved in each layout is loaded in each other one."""
    ranks = dist.get_world_size()
    line = init_device_mesh("cpu", (ranks,))
    square = init_device_mesh("cpu", (2, ranks // 2))
    layouts = [
        (line, [Shard(0)]),
        (line, [Shard(1)]),
        (line, [Replicate()]),
        (square, [Shard(0), Shard(1)]),
        (square, [Shard(1), Shard(0)]),
        (square, [Shard(0), Shard(0)]),
        (square, [Replicate(), Shard(0)]),
        (square, [Shard(1), Replicate()]),
    ]
    # Not divisible by the number of ranks.
    whole = torch.arange(70.0).reshape(7, 10)
    for i, layout in enumerate(layouts):
        path = folder / f"layout-{i}"
        dcp.save(
            {"w": distribute_tensor(whole, *layout)},
            storage_writer=tessera.torch.Writer(path),
        )
        for other in layouts:
            state = {"w": distribute_tensor(torch.zeros(7, 10), *other)}
            dcp.load(state, storage_reader=tessera.torch.Reader(path))
            assert torch.equal(state["w"].full_tensor(), whole), (layout, other)


def alone(folder):
    """Without the process group, each rank reads the whole tensor."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    whole = torch.arange(70.0).reshape(7, 10)
    dcp.save(
        {"w": distribute_tensor(whole, mesh, [Shard(0)])},
        storage_writer=tessera.torch.Writer(folder / "c"),
    )
    state = {"w": torch.zeros(7, 10)}
    dcp.load(
        state, storage_reader=tessera.torch.Reader(folder / "c"), no_dist=True
    )
    assert torch.equal(state["w"], whole)


def process(folder):
    """Another process makes the asynchronous save."""
    # Not before PyTorch 2.7.
    from torch.distributed.checkpoint.state_dict_saver import (
        AsyncCheckpointerType,
    )

    model, optimizer = make_training("fsdp2", seed=1)
    state = train_state(model, optimizer)
    expected = full(state)
    for step in range(2):
        dcp.async_save(
            state,
            checkpoint_id=folder / str(step),
            storage_writer=tessera.torch.Writer(),
            async_checkpointer_type=AsyncCheckpointerType.PROCESS,
        ).result()
    model, optimizer = make_training("fsdp2", seed=2)
    state = train_state(model, optimizer)
    dcp.load(state, storage_reader=tessera.torch.Reader(folder / "1"))
    assert same(full(state), expected)


def from_daemon(url):
    """Loads this rank's rows from a daemon."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    rows = distribute_tensor(torch.zeros(1024, 1024), mesh, [Shard(0)])
    state = {"w": rows, "step": 0}
    dcp.load(state, storage_reader=tessera.torch.Reader(url))
    expected = torch.arange(1 << 20).reshape(1024, 1024).float()
    assert same(full(state), {"w": expected, "step": 7})


def main():
    case, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    of_their_own = {
        "failing_rank": failing_rank,
        "resharding": resharding,
        "alone": alone,
        "process": process,
        "from_daemon": lambda _: from_daemon(sys.argv[2]),
    }
    if case in of_their_own:
        of_their_own[case](folder)
    else:
        there_and_back(case, folder)
    dist.barrier()
    rank_end.end()


if __name__ == "__main__":
    main()
