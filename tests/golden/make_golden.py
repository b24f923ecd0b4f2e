# SPDX-License-Identifier: Apache-2.0
"""Writes the golden checkpoints of the PyTorch that runs this script.

    python make_golden.py        writes torch-<version>/ next to this script

Runs under every PyTorch from 2.2 on, on a CPU with gloo; what a version lacks
(newer dtypes, the Hugging Face writer, safetensors items) is left out. The
script starts `torchrun` itself for the cases that take two ranks.
"""

import collections
import inspect
import io
import os
import pathlib
import shutil
import subprocess
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.filesystem import FileSystemWriter
from torch.distributed.device_mesh import init_device_mesh

try:
    from torch.distributed.tensor import DTensor, Replicate, Shard
except ImportError:  # before PyTorch 2.5
    from torch.distributed._tensor import DTensor, Replicate, Shard

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "interop"))
from values import canon, compact, det, digest, raw_bytes  # noqa: E402

VERSION = torch.__version__.split("+")[0]
FIXED_SAVE_ID = "00000000-0000-4000-8000-000000000000"
WORLD_SIZE = 2

ZOO = (
    "float32 float64 float16 bfloat16 int8 int16 int32 int64 uint8 bool "
    "complex64 complex128 complex32 uint16 uint32 uint64 float8_e4m3fn "
    "float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz float8_e8m0fnu"
).split()
# Dtypes with a storage class of their own: all that the legacy format holds.
TYPED = ZOO[:12]


def before_2_4():
    return tuple(int(x) for x in VERSION.split(".")[:2]) < (2, 4)


# ----------------------------------------------------------- expected values
def is_leaf_list(value):
    """The rule since PyTorch 2.4: a list of plain values is one entry."""
    return not any(
        isinstance(x, (torch.Tensor, dict))
        or (isinstance(x, list) and not is_leaf_list(x))
        for x in value
    )


def flatten(value, path=()):
    """Yields (path, leaf); see "Names" in dcp/format/README.md."""
    if isinstance(value, dict):
        for k, v in value.items():
            yield from flatten(v, path + (str(k),))
    elif isinstance(value, list) and not is_leaf_list(value):
        for k, v in enumerate(value):
            yield from flatten(v, path + (k,))
    else:
        yield path, value


def contains_tensor(value):
    if isinstance(value, dict):
        return any(contains_tensor(v) for v in value.values())
    if isinstance(value, list):
        return any(contains_tensor(v) for v in value)
    return isinstance(value, torch.Tensor)


def flatten_before_2_4(value, path=()):
    """The older rule: what holds no tensor at all is one entry."""
    if isinstance(value, (dict, list)) and (not path or not is_old_leaf(value)):
        pairs = value.items() if isinstance(value, dict) else enumerate(value)
        for k, v in pairs:
            key = str(k) if isinstance(value, dict) else k
            yield from flatten_before_2_4(v, path + (key,))
    else:
        yield path, value


def is_old_leaf(value):
    values = value.values() if isinstance(value, dict) else value
    return not any(
        isinstance(x, torch.Tensor)
        or (isinstance(x, (dict, list)) and not is_old_leaf(x))
        for x in values
    )


def golden_digest(t):
    return dict(digest(t), hex=raw_bytes(t).hex())


def write_expected(name, path, kind, value, flattener=flatten, **more):
    """Writes <name>.expected.json; see README.md for its fields."""
    tensors, objects, paths = {}, {}, {}
    for leaf_path, leaf in flattener(value):
        key = ".".join(str(p) for p in leaf_path)
        paths[key] = list(leaf_path)
        if isinstance(leaf, torch.Tensor):
            tensors[key] = golden_digest(leaf)
        else:
            objects[key] = canon(leaf)
    expected = {
        "case": name,
        "path": path,
        "kind": kind,
        "torch": VERSION,
        "tensors": tensors,
        "objects": objects,
    }
    if kind == "dcp":
        expected["planner_data"] = paths
    expected.update(more)
    pathlib.Path(name + ".expected.json").write_text(compact(expected))


# -------------------------------------------------------------------- states
class Split:
    """A full tensor that the sharded state holds as a DTensor."""

    def __init__(self, full, dim):
        self.full, self.dim = full, dim

    def shard(self, mesh):
        full = self.full
        if self.dim is None:
            local, placement = full, Replicate()
        else:
            step = -(-full.shape[self.dim] // WORLD_SIZE)
            begin = min(full.shape[self.dim], step * dist.get_rank())
            end = min(full.shape[self.dim], begin + step)
            local = full.narrow(self.dim, begin, end - begin).contiguous()
            placement = Shard(self.dim)
        return DTensor.from_local(
            local,
            mesh,
            [placement],
            run_check=False,
            shape=full.shape,
            stride=full.stride(),
        )


def resolve(value, leaf):
    """`value` with every Split replaced by leaf(split)."""
    if isinstance(value, Split):
        return leaf(value)
    if isinstance(value, dict):
        return type(value)((k, resolve(v, leaf)) for k, v in value.items())
    if isinstance(value, list):
        return [resolve(v, leaf) for v in value]
    return value


def sharded_state():
    """Hand-placed tensors of several dtypes, and entries of every nesting."""
    # PyTorch 2.2 refuses to give a rank no row at all.
    row_dim = 1 if before_2_4() else 0
    return {
        "model": collections.OrderedDict(
            [
                ("emb.weight", Split(det((5, 3), seed=1), 0)),
                ("emb.bias", Split(det((5,), torch.bfloat16, seed=2), 0)),
                ("out.weight", Split(det((4, 6), seed=3), 1)),
                ("out.half", Split(det((3, 2, 2), torch.float16, seed=4), 0)),
                ("one_row", Split(det((1, 4), torch.int64, seed=5), row_dim)),
                ("copied", Split(det((2, 2), seed=6), None)),
                ("plain", det((4,), torch.float64, seed=7)),
                ("scalar", torch.tensor(2.5)),
                ("count", torch.tensor(41, dtype=torch.int64)),
                ("flag", torch.tensor([True, False, True])),
                ("empty", torch.empty(0, 3)),
                ("transposed", det((3, 5), seed=8).t()),
            ]
        ),
        "step": 7,
        "lr": 1e-3,
        "big": 2**70,
        "none": None,
        "name": "caf\u00e9",
        "betas": (0.9, 0.999),
        "losses": [1.5, 2.5],
        "blob": b"\x00\xff",
        "cfg": {"a": {"b": [1, "x", {"c": True}]}, "dtype": torch.bfloat16},
        "mixed": [det((2,), seed=9), 5, {"q": "z"}],
        "size": torch.Size([2, 3]),
    }


def train_state():
    """The shape of what get_state_dict returns for FSDP2 and AdamW."""
    names = ["up.weight", "up.bias"]
    shapes = [(5, 2), (5,)]
    state, model = {}, {}
    for k, (name, shape) in enumerate(zip(names, shapes)):
        model[name] = Split(det(shape, seed=20 + k), 0)
        state[name] = {
            "step": torch.tensor(3.0),
            "exp_avg": Split(det(shape, seed=30 + k), 0),
            "exp_avg_sq": Split(det(shape, seed=40 + k), 0),
        }
    group = {
        "lr": 0.01,
        "betas": (0.9, 0.999),
        "eps": 1e-8,
        "weight_decay": 0.1,
        "amsgrad": False,
        "foreach": None,
    }
    groups = [dict(group, params=[n]) for n in names]
    return {
        "model": model,
        "optim": {"state": state, "param_groups": groups},
        "train": {"step": 3, "tokens": 12345678901, "epochs": [0, 1]},
    }


def can_be_saved(dtype_name):
    """Whether this PyTorch has the dtype, and torch.save can write it."""
    if not hasattr(torch, dtype_name):
        return False
    try:
        torch.save(
            torch.empty(1, dtype=getattr(torch, dtype_name)), io.BytesIO()
        )
    except KeyError:
        return False
    return True


def archive_state(dtypes):
    base = det((4, 6), seed=50)
    state = collections.OrderedDict(
        base=base,
        rows=base[1:3],
        transposed=base.t(),
        every_other=base[:, ::2],
        broadcast=det((1, 3), seed=51).expand(2, 3),
        param=nn.Parameter(det((2, 3), seed=52)),
        frozen=nn.Parameter(det((2,), seed=53), requires_grad=False),
        scalar=torch.tensor(2.5),
        empty=torch.empty(0, 2),
        conj=det((3,), torch.complex64, seed=54).conj(),
        step=3,
        cfg={"lr": 0.1, "betas": (0.9, 0.999), "name": "caf\u00e9"},
        groups=[{"params": [0, 1], "lr": 0.5}],
        size=torch.Size([1, 2]),
        big=-(2**70),
        nested=collections.OrderedDict(
            inner=collections.OrderedDict(w=det((2, 2), seed=55))
        ),
    )
    for k, name in enumerate(dtypes):
        if can_be_saved(name):
            dtype = getattr(torch, name)
            state["zoo." + name] = det((2, 3), dtype, seed=60 + k)
    return state


# --------------------------------------------------------------------- cases
def writer(path, **options):
    storage = FileSystemWriter(path, sync_files=False, **options)
    storage.save_id = FIXED_SAVE_ID
    return storage


def make_dcp(name, state):
    mesh = init_device_mesh("cpu", (WORLD_SIZE,))
    sharded = resolve(state, lambda s: s.shard(mesh))
    dcp.save(sharded, storage_writer=writer(name), planner=DefaultSavePlanner())
    if dist.get_rank() == 0:
        full = resolve(state, lambda s: s.full)
        rule = flatten_before_2_4 if before_2_4() else flatten
        write_expected(
            name, name, "dcp", full, flattener=rule, world_size=WORLD_SIZE
        )


def tensors_only():
    return {
        "a.weight": Split(det((5, 3), seed=70), 0),
        "b.weight": Split(det((4, 5), torch.bfloat16, seed=71), 1),
        "c.bias": Split(det((4,), torch.float16, seed=72), None),
        "d.ids": Split(det((3,), torch.int64, seed=73), 0),
    }


def make_safetensors_items(name):
    """DCP data files that are safetensors files (PyTorch cannot read them)."""
    options = inspect.signature(FileSystemWriter.__init__).parameters
    if "serialization_format" not in options:
        return
    from torch.distributed.checkpoint.filesystem import SerializationFormat

    mesh = init_device_mesh("cpu", (WORLD_SIZE,))
    state = tensors_only()
    dcp.save(
        resolve(state, lambda s: s.shard(mesh)),
        storage_writer=writer(
            name, serialization_format=SerializationFormat.SAFETENSORS
        ),
    )
    if dist.get_rank() == 0:
        full = resolve(state, lambda s: s.full)
        write_expected(name, name, "dcp-safetensors-items", full)


def make_hugging_face(name):
    storage_class = getattr(dcp, "HuggingFaceStorageWriter", None)
    if storage_class is None:
        return
    options = inspect.signature(storage_class.__init__).parameters
    if "save_distributed" not in options:
        return
    mesh = init_device_mesh("cpu", (WORLD_SIZE,))
    state = tensors_only()
    # The consolidation of PyTorch fails for integer tensors.
    del state["d.ids"]
    files = {"a.weight": 1, "b.weight": 2, "c.bias": 1}
    dcp.save(
        resolve(state, lambda s: s.shard(mesh)),
        storage_writer=storage_class(
            name,
            fqn_to_index_mapping=files,
            save_distributed=True,
            enable_consolidation=True,
        ),
    )
    dist.barrier()
    if dist.get_rank() == 0:
        full = resolve(state, lambda s: s.full)
        write_expected(name, name, "hf", full)
        write_expected(name + "_sharded", name + "/sharded", "hf", full)


def make_archives():
    state = archive_state(ZOO)
    torch.save(state, "archive.pt")
    write_expected("archive", "archive.pt", "pt", state)
    state = archive_state(TYPED)
    torch.save(state, "legacy.pt", _use_new_zipfile_serialization=False)
    write_expected("legacy", "legacy.pt", "pt", state)


def worker(out):
    os.chdir(out)
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    make_dcp("sharded", sharded_state())
    make_dcp("train", train_state())
    make_safetensors_items("safetensors_items")
    make_hugging_face("hugging_face")
    dist.barrier()
    # A process group must not outlive its peers; some older versions hang
    # while they destroy it, so the process just ends.
    sys.stdout.flush()
    os._exit(0)


def main():
    out = HERE / ("torch-" + ".".join(VERSION.split(".")[:2]))
    if sys.argv[1:] == ["--worker"]:
        worker(out)
        return
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir()
    os.chdir(out)
    make_archives()
    command = [
        sys.executable,
        "-m",
        "torch.distributed.run",
        "--standalone",
        f"--nproc_per_node={WORLD_SIZE}",
        os.path.abspath(__file__),
        "--worker",
    ]
    environment = dict(os.environ, OMP_NUM_THREADS="1")
    subprocess.run(command, env=environment, check=True, timeout=300)


if __name__ == "__main__":
    main()
