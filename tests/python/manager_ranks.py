# SPDX-License-Identifier: Apache-2.0
"""The ranks that manager_test.py starts: manager_ranks.py save|resume DIR"""

import os
import pathlib
import signal
import sys

import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import distribute_tensor
from torch.distributed.tensor import Shard

import rank_end
import tessera
from tessera.torch import CheckpointManager


def state_at(step, mesh):
    whole = torch.full((64, 8), float(step))
    return {"w": distribute_tensor(whole, mesh, [Shard(0)]), "step": step}


def assert_is(state, step):
    assert state["step"] == step
    assert (state["w"].to_local() == step).all()


def save(folder, mesh):
    tessera.save(state_at(7, mesh), folder / "one")
    found = state_at(0, mesh)
    tessera.load(found, folder / "one")
    assert_is(found, 7)
    with CheckpointManager(
        folder / "run", save_every=2, keep_last=2
    ) as manager:
        assert manager.resume(state_at(0, mesh)) is None
        for step in range(1, 100):
            manager.before_optimizer_step()
            # One rank alone is told.
            if step == 6 and dist.get_rank() == 1:
                os.kill(os.getpid(), signal.SIGTERM)
            if manager.should_save(step):
                manager.save(step, state_at(step, mesh))
            if manager.should_exit():
                break
        assert step == 6
    assert manager.latest() == 6
    names = {path.name for path in (folder / "run").iterdir()}
    assert names == {"step-4", "step-6"}, names


def resume(folder, mesh):
    with CheckpointManager(folder / "run") as manager:
        found = state_at(0, mesh)
        assert manager.resume(found) == 6
        assert_is(found, 6)
    try:
        tessera.load({"missing": torch.zeros(1)}, folder / "one")
        raise SystemExit("a missing key was loaded")
    except RuntimeError as failure:
        assert "missing" in str(failure)


dist.init_process_group("gloo")
call = {"save": save, "resume": resume}[sys.argv[1]]
call(
    pathlib.Path(sys.argv[2]), init_device_mesh("cpu", (dist.get_world_size(),))
)
dist.barrier()
dist.destroy_process_group()
rank_end.end()
