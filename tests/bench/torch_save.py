# SPDX-License-Identifier: Apache-2.0
"""One rank that saves and loads with PyTorch, measured; save_bench's twin.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=... MASTER_PORT=... \
        python torch_save.py save|steps|load|rank0|full SPEC.json OUT

save_bench.py writes the specification. Writes OUT.<rank>.json; `full` writes
the file that rank0 loads.
"""

import concurrent.futures
import ctypes
import json
import os
import pathlib
import shutil
import sys
import time
import warnings

import measure
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import state_dict as dcp_state_dict
from torch.distributed.checkpoint._state_dict_stager import StateDictStager
from torch.distributed.checkpoint.staging import AsyncStager
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate, Shard
from torch.distributed.tensor._utils import (
    compute_local_shape_and_global_offset,
)

# The same constants as in save_bench.cc.
PATTERN_MASK = (1 << 23) - 1
STEP = 12


class KeptStager(AsyncStager):
    """Keeps its memory from save to save.

    PyTorch's own stager allocates for every save; the one that was made to
    keep memory, DefaultStager, drops it after each and fails in the second
    call. This is built from its parts.
    """

    _synchronize_after_execute = False

    def __init__(self, in_background=False, share_memory=False):
        self.stager = StateDictStager(share_memory=share_memory)
        self.executor = (
            concurrent.futures.ThreadPoolExecutor(1) if in_background else None
        )

    def stage(self, state_dict):
        if self.executor:
            return self.executor.submit(self.stager.stage, state_dict)
        return self.stager.stage(state_dict)

    def close(self):
        if self.executor:
            self.executor.shutdown()
        self.stager.close()


def barrier():
    dist.barrier()


def files_of(path):
    return list(path.iterdir()) if path.is_dir() else [path]


def on_rank0(work, *arguments):
    if dist.get_rank() == 0:
        work(*arguments)
    barrier()


def sync_file(path):
    fd = os.open(path, os.O_RDONLY)
    os.fsync(fd)
    os.close(fd)


def remove_and_sync(path):
    shutil.rmtree(path, ignore_errors=True)
    sync_file(path.parent)


def remove(path):
    on_rank0(remove_and_sync, path)


def forget_pages(path):
    for file in files_of(path):
        sync_file(file)
        fd = os.open(file, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def read_pages(path):
    for file in files_of(path):
        with file.open("rb", buffering=0) as stream:
            while stream.read(4 * 2**20):
                pass


def process_io(name):
    for line in pathlib.Path("/proc/self/io").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    raise KeyError(name)


class AddedBytes:
    """Memory that the block takes beyond `before`, or beyond the start."""

    def __init__(self, before=None):
        self.before = measure.private_bytes() if before is None else before

    def __enter__(self):
        measure.forget_peak()
        return self

    def __exit__(self, *unused):
        self.bytes = measure.peak_private_bytes() - self.before


class State:
    def __init__(self, spec, with_optimizer):
        names = ("shard",) if len(spec["mesh"]) == 1 else ("replicate", "shard")
        self.mesh = init_device_mesh(
            "cpu", tuple(spec["mesh"]), mesh_dim_names=names
        )
        self.placements = [Replicate()] * (self.mesh.ndim - 1) + [Shard(0)]
        self.parts = []  # local tensor, where it begins, salt
        model = {name: self.add(shape) for name, shape in spec["tensors"]}
        self.num_parameters = len(self.parts)
        self.state = model
        if with_optimizer:
            optim = {
                name: {
                    "exp_avg": self.add(shape),
                    "exp_avg_sq": self.add(shape),
                    "step": torch.tensor(float(STEP)),
                }
                for name, shape in spec["tensors"]
            }
            self.state = {
                "model": model,
                "optim": {"state": optim},
                "step": STEP,
            }

    def add(self, shape):
        local_shape, offset = compute_local_shape_and_global_offset(
            shape, self.mesh, self.placements
        )
        local = torch.empty(local_shape)
        stride = torch.empty(shape, device="meta").stride()
        self.parts.append((local, offset[0] * stride[0], len(self.parts)))
        return DTensor.from_local(
            local,
            self.mesh,
            self.placements,
            shape=torch.Size(shape),
            stride=stride,
            run_check=False,
        )

    def num_bytes(self):
        return sum(local.nbytes for local, _, _ in self.parts)

    def fill(self):
        for local, begin, salt in self.parts:
            local.copy_(expected(local.shape, begin, salt))

    def zero(self):
        for local, _, _ in self.parts:
            local.zero_()
        if "step" in self.state:
            self.state["step"] = 0

    def check(self):
        for local, begin, salt in self.parts:
            if not torch.equal(local, expected(local.shape, begin, salt)):
                raise RuntimeError(f"tensor {salt} is not what was saved")
        if self.state.get("step", STEP) != STEP:
            raise RuntimeError("'step' is not what was saved")

    def step_optimizer(self):
        for local, _, _ in self.parts[: self.num_parameters]:
            local.mul_(1.0)


def expected(shape, begin, salt):
    flat = torch.arange(begin, begin + shape.numel(), dtype=torch.int32)
    flat = flat.bitwise_and_(PATTERN_MASK).add_(salt)
    return flat.to(torch.float32).view(shape)


def warm_up(path):
    state = {"tensor": torch.ones(1024), "step": 0}
    dcp.save(state, checkpoint_id=path)
    dcp.load(state, checkpoint_id=path)
    remove(path)


def load_and_check(state, path):
    state.zero()
    dcp.load(state.state, checkpoint_id=path)
    state.check()


class Saving:
    """A save under way, as fsdp::SaveHandle."""

    def __init__(self, response):
        whole = isinstance(response, concurrent.futures.Future)
        self.staged = None if whole else response.staging_completion
        self.future = response if whole else response.upload_completion

    def wait_staged(self):
        if self.staged:
            self.staged.result()

    def done(self):
        return self.future.done()

    def wait(self):
        self.future.result()


# Name: what async_save is given. Its thread needs its own group, because
# training continues in the default one.
WAYS = {
    "async": lambda: {},
    "async, kept memory": lambda: {"async_stager": KeptStager()},
    "overlapped": lambda: {"async_stager": KeptStager(in_background=True)},
    "process": lambda: {
        "async_stager": KeptStager(in_background=True, share_memory=True),
        "async_checkpointer_type": AsyncCheckpointerType.PROCESS,
    },
}


class Saver:
    def __init__(self, way):
        self.options = WAYS[way]()
        if way != "process":
            self.options["process_group"] = dist.new_group()

    def save(self, state, path):
        return Saving(
            dcp.async_save(state.state, checkpoint_id=path, **self.options)
        )

    def close(self):
        if "async_stager" in self.options:
            self.options["async_stager"].close()


def measure_sync_save(state, path, thread_count):
    with AddedBytes() as added:
        barrier()
        begin = time.perf_counter()
        dcp.save(
            state.state,
            storage_writer=dcp.FileSystemWriter(
                path, thread_count=thread_count
            ),
        )
        seconds = time.perf_counter() - begin
    return {"durable": seconds, "added_bytes": added.bytes}


def measure_async_save(state, saver, path, before):
    with AddedBytes(before) as added:
        barrier()
        begin = time.perf_counter()
        handle = saver.save(state, path)
        handle.wait_staged()
        stall = time.perf_counter() - begin
        handle.wait()
        seconds = time.perf_counter() - begin
    return {"stall": stall, "durable": seconds, "added_bytes": added.bytes}


def measure_save(spec):
    path = pathlib.Path(spec["path"])
    state = State(spec, with_optimizer=True)
    state.fill()
    warm_up(path)
    result = {"bytes": state.num_bytes()}
    for thread_count in (1, 2):
        remove(path)
        name = f"sync, {thread_count} threads"
        result[name] = [measure_sync_save(state, path, thread_count)]
        if spec["check"]:
            load_and_check(state, path)
    for way in ("async", "async, kept memory"):
        # Memory that earlier ways left in the heap is not counted for this one.
        ctypes.CDLL(None).malloc_trim(0)
        before = measure.private_bytes()
        saver = Saver(way)
        result[way] = []
        for _ in range(spec["repeats"]):
            remove(path)
            result[way].append(measure_async_save(state, saver, path, before))
            if spec["check"]:
                load_and_check(state, path)
        saver.close()
    return result


class Trainer:
    """As in save_bench.cc."""

    def __init__(self, state, spec):
        self.state = state
        self.products = spec["products"]
        self.a = torch.ones(spec["width"], spec["width"])
        self.c = torch.empty_like(self.a)

    def step(self, handle=None):
        for _ in range(self.products):
            torch.mm(self.a, self.a, out=self.c)
        saving = torch.tensor([1.0 if handle and not handle.done() else 0.0])
        dist.all_reduce(saving)
        if handle:
            handle.wait_staged()
        self.state.step_optimizer()
        return saving.item() > 0

    def seconds_per_step(self, num_steps):
        barrier()
        begin = time.perf_counter()
        for _ in range(num_steps):
            self.step()
        return (time.perf_counter() - begin) / num_steps


def measure_steps(spec):
    path = pathlib.Path(spec["path"])
    state = State(spec, with_optimizer=True)
    state.fill()
    warm_up(path)
    trainer = Trainer(state, spec)
    result = {}
    for way in spec["ways"]:
        saver = Saver(way)
        # The first save starts threads and processes and allocates memory.
        saver.save(state, path).wait()
        remove(path)
        result[way] = []
        for _ in range(spec["repeats"]):
            run = {"before": trainer.seconds_per_step(spec["steps"])}
            barrier()
            begin = time.perf_counter()
            handle = saver.save(state, path)
            count = 1
            while trainer.step(handle):
                count += 1
            run["saving"] = time.perf_counter() - begin
            run["steps"] = count
            handle.wait()
            run["after"] = trainer.seconds_per_step(spec["steps"])
            result[way].append(run)
            remove(path)
        saver.close()
    return result


def load_once(state, path):
    read_bytes, disk_bytes = process_io("rchar"), process_io("read_bytes")
    with AddedBytes() as added:
        barrier()
        begin = time.perf_counter()
        dcp.load(state.state, checkpoint_id=path)
        seconds = time.perf_counter() - begin
    run = {
        "seconds": seconds,
        "added_bytes": added.bytes,
        "read_bytes": process_io("rchar") - read_bytes,
        "disk_bytes": process_io("read_bytes") - disk_bytes,
    }
    state.check()
    return run


def measure_load(spec):
    path = pathlib.Path(spec["path"])
    state = State(spec, with_optimizer=True)
    warm_up(pathlib.Path(spec["scratch"]))
    state.zero()
    on_rank0(forget_pages, path)
    result = {"bytes": state.num_bytes(), "cold": [load_once(state, path)]}
    state.zero()
    on_rank0(read_pages, path)
    result["warm"] = [load_once(state, path)]
    return result


def module_of(parameters):
    """A module that has these parameters under these names."""
    root = torch.nn.Module()
    for name, tensor in parameters.items():
        *folders, last = name.split(".")
        module = root
        for folder in folders:
            if folder not in dict(module.named_children()):
                module.add_module(folder, torch.nn.Module())
            module = module.get_submodule(folder)
        module.register_parameter(last, torch.nn.Parameter(tensor))
    return root


def measure_rank0(spec):
    path = pathlib.Path(spec["path"])
    state = State(spec, with_optimizer=False)
    warm_up(pathlib.Path(spec["scratch"]))
    state.zero()
    module = module_of(state.state)
    on_rank0(forget_pages, path)
    with AddedBytes() as added:
        barrier()
        begin = time.perf_counter()
        full = torch.load(path, mmap=True) if dist.get_rank() == 0 else {}
        dcp_state_dict.set_model_state_dict(
            module,
            full,
            options=dcp_state_dict.StateDictOptions(
                full_state_dict=True, broadcast_from_rank0=True
            ),
        )
        seconds = time.perf_counter() - begin
    for (local, begin, salt), parameter in zip(
        state.parts, module.parameters()
    ):
        found = parameter.to_local()
        if not torch.equal(found, expected(local.shape, begin, salt)):
            raise RuntimeError(f"tensor {salt} is not what was saved")
    run = {"seconds": seconds, "added_bytes": added.bytes}
    return {"bytes": state.num_bytes(), "rank0": [run]}


def write_full(spec):
    torch.save(
        {
            name: expected(torch.Size(shape), 0, salt)
            for salt, (name, shape) in enumerate(spec["tensors"])
        },
        spec["path"],
    )
    return {}


def main():
    what, spec = sys.argv[1], pathlib.Path(sys.argv[2])
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    torch.set_grad_enabled(False)
    dist.init_process_group("gloo")
    result = {
        "save": measure_save,
        "steps": measure_steps,
        "load": measure_load,
        "rank0": measure_rank0,
        "full": write_full,
    }[what](json.loads(spec.read_text()))
    out = pathlib.Path(f"{sys.argv[3]}.{os.environ['RANK']}.json")
    out.write_text(json.dumps(result))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
