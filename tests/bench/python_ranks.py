# SPDX-License-Identifier: Apache-2.0
"""A rank of tools/bench python: saves or loads a sharded state with one side.

    python_ranks.py WHAT SIDE SPEC OUT

WHAT is save, async, load or whole (one process, a safetensors file). SIDE is
tessera, tessera-background (stages in the background), or torch with options:
torch-1 and torch-2 (threads), torch-cached (keeps its staged state); for whole
it is tessera, safetensors or fastsafetensors. Each rank writes OUT.RANK.json.
"""

import json
import os
import pathlib
import statistics
import sys
import time

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint._state_dict_stager import StateDictStager
from torch.distributed.checkpoint.staging import AsyncStager
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor import Shard

# The size of each matrix of the state.
COLUMNS = 4096
ROWS = 4096
# A step of training: this many products of square matrices of this width.
PRODUCTS = 8
WIDTH = 768
# How many of them compute before the state changes.
STEPS_BEFORE_CHANGE = 10


def make_state(num_bytes, fill):
    """Matrices of float32 that take this on each rank, sharded by rows."""
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    count = max(num_bytes // (ROWS * COLUMNS * 4 // dist.get_world_size()), 1)
    state = {}
    for i in range(count):
        rows = ROWS // dist.get_world_size()
        local = torch.full((rows, COLUMNS), float(fill + i))
        state[f"layers.{i}.weight"] = DTensor.from_local(
            local, mesh, [Shard(0)], run_check=False
        )
    return {"model": state, "step": fill}


def writer(side, path):
    if side.startswith("tessera"):
        import tessera.torch

        return tessera.torch.Writer(
            path, async_staging=side == "tessera-background"
        )
    options = {"overwrite": True, "sync_files": True}
    threads = 1 if side == "torch-cached" else int(side.split("-")[1])
    return dcp.FileSystemWriter(path, thread_count=threads, **options)


class KeptStager(AsyncStager):
    """PyTorch's best: its own stagers allocate for each save, or require CUDA.

    This is built from their parts.
    """

    _synchronize_after_execute = False

    def __init__(self):
        self.stager = StateDictStager()

    def stage(self, state_dict):
        return self.stager.stage(state_dict)

    def close(self):
        self.stager.close()


def reader(side, path):
    if side == "tessera":
        import tessera.torch

        return tessera.torch.Reader(path)
    return dcp.FileSystemReader(path)


def timed(work):
    dist.barrier()
    begin = time.monotonic()
    result = work()
    seconds = time.monotonic() - begin
    dist.barrier()
    return seconds, result


def forget_peak():
    pathlib.Path("/proc/self/clear_refs").write_text("5")
    return status_bytes("VmRSS")


def status_bytes(key):
    for line in pathlib.Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key + ":"):
            return int(line.split()[1]) * 1024
    raise KeyError(key)


def save(side, spec):
    state = make_state(spec["bytes"], 1)
    before = forget_peak()
    seconds = []
    for i in range(spec["repeats"]):
        path = f"{spec['path']}-{i % 2}"
        seconds.append(
            timed(lambda: dcp.save(state, storage_writer=writer(side, path)))[0]
        )
    return {
        "durable": statistics.median(seconds),
        "memory": status_bytes("VmHWM") - before,
    }


def step():
    square = torch.ones(WIDTH, WIDTH)
    begin = time.monotonic()
    for _ in range(PRODUCTS):
        square @ square
    return time.monotonic() - begin


def async_(side, spec):
    state = make_state(spec["bytes"], 1)
    alone = statistics.median(step() for _ in range(20))
    before = forget_peak()
    kept = writer(side, f"{spec['path']}-0")
    options = {"async_stager": KeptStager()} if side == "torch-cached" else {}
    stalls, durable, steps = [], [], []
    for i in range(spec["repeats"] + 1):
        dist.barrier()
        begin = time.monotonic()
        saved = dcp.async_save(
            state,
            checkpoint_id=f"{spec['path']}-{i % 2}",
            storage_writer=kept,
            **options,
        )
        stalls.append(time.monotonic() - begin)
        if side == "tessera-background":
            steps += [step() for _ in range(STEPS_BEFORE_CHANGE)]
            waits = time.monotonic()
            saved.staging_completion.result()
            stalls[-1] += time.monotonic() - waits
            saved = saved.upload_completion
        while not saved.done():
            steps.append(step())
        saved.result()
        durable.append(time.monotonic() - begin)
    return {
        "first_stall": stalls[0],
        "later_stall": statistics.median(stalls[1:]),
        "durable": statistics.median(durable[1:]),
        "slowdown": statistics.mean(steps) / alone,
        "memory": status_bytes("VmHWM") - before,
    }


def load(side, spec):
    state = make_state(spec["bytes"], 0)
    before = forget_peak()
    seconds, _ = timed(
        lambda: dcp.load(state, storage_reader=reader(side, spec["path"]))
    )
    for i, tensor in enumerate(state["model"].values()):
        assert (tensor.to_local() == 1 + i).all()
    return {"seconds": seconds, "memory": status_bytes("VmHWM") - before}


def whole(side, spec):
    begin = time.monotonic()
    if side == "tessera":
        import tessera

        with tessera.open(spec["path"]) as checkpoint:
            tensors = checkpoint.to_torch()
    elif side == "fastsafetensors":
        from fastsafetensors import fastsafe_open

        # The tensors share the memory of the file, which lasts as long as it.
        file = fastsafe_open([spec["path"]], nogds=True, device="cpu")
        tensors = {name: file.get_tensor(name) for name in file.keys()}
    else:
        from safetensors.torch import load_file

        tensors = load_file(spec["path"])
    # A tensor that is only mapped is not loaded yet.
    total = sum(float(t.view(-1)[::512].sum()) for t in tensors.values())
    assert total > 0
    return {"seconds": time.monotonic() - begin}


def main():
    what, side, spec, out = sys.argv[1:]
    spec = json.loads(spec)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    work = {"save": save, "async": async_, "load": load, "whole": whole}[what]
    result = work(side, spec)
    path = pathlib.Path(f"{out}.{os.environ['RANK']}.json")
    path.write_text(json.dumps(result))
    dist.barrier()
    # Threads of Gloo may still free tensors, which aborts an interpreter that is
    # being finalized.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
