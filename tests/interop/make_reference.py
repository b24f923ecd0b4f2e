"""Makes small, deterministic checkpoints with PyTorch, on a CPU with gloo.

    python make_reference.py --out DIR [--cases a,b,...] [--list]

For every case C the directory DIR receives the checkpoint (C/, C.pt,
C.safetensors ...) and C.expected.json (tensor digests, object values, planner
paths, chunk tables). The script starts `torchrun` itself, once per world size.
The world size is in the name of a case: _ws3, or _2x2 for four ranks.
"""

import argparse
import collections
import contextlib
import os
import pickle
import shutil
import subprocess
import sys
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn as nn
from torch.distributed.checkpoint._nested_dict import flatten_state_dict
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from values import compact, describe_flat, det

warnings.filterwarnings("ignore")
FIXED_SAVE_ID = "00000000-0000-4000-8000-000000000000"
CASES = collections.OrderedDict()  # name -> (world_size, function)


def case(name, ws):
    def deco(fn):
        CASES[name] = (ws, fn)
        return fn

    return deco


def rank0():
    return not dist.is_initialized() or dist.get_rank() == 0


def writer(path, **kw):
    kw.setdefault("sync_files", False)
    w = dcp.FileSystemWriter(path, **kw)
    w.save_id = FIXED_SAVE_ID
    return w


def chunk_table(path, md_name=".metadata"):
    """The chunk/storage table of a checkpoint, read back from its metadata."""
    with open(os.path.join(path, md_name), "rb") as f:
        md = pickle.load(f)
    out = {}
    for fqn, m in md.state_dict_metadata.items():
        if isinstance(m, TensorStorageMetadata):
            out[fqn] = {
                "kind": "tensor",
                "dtype": str(m.properties.dtype)[6:],
                "size": list(m.size),
                "chunks": [[list(c.offsets), list(c.sizes)] for c in m.chunks],
            }
        else:
            out[fqn] = {"kind": "bytes"}
    st = []
    for idx, s in md.storage_data.items():
        st.append(
            [
                idx.fqn,
                None if idx.offset is None else list(idx.offset),
                idx.index,
                s.relative_path,
                s.offset,
                s.length,
                getattr(s, "transform_descriptors", None),
            ]
        )
    return out, st, md.planner_data


def write_expected(name, path, kind, flat, **extra):
    tensors, objects = describe_flat(
        flat
    )  # collective when values are DTensors
    if not rank0():
        return
    e = {
        "case": name,
        "path": path,
        "kind": kind,
        "torch": torch.__version__.split("+")[0],
        "tensors": tensors,
        "objects": objects,
    }
    e.update(extra)
    with open(name + ".expected.json", "w") as f:
        f.write(compact(e))


def full_of(obj):
    """Replace DTensors by full tensors (collective)."""
    from torch.distributed.tensor import DTensor

    if isinstance(obj, DTensor):
        return obj.full_tensor()
    if isinstance(obj, dict):
        return type(obj)((k, full_of(v)) for k, v in obj.items())
    if isinstance(obj, (list, tuple)):
        return type(obj)(full_of(v) for v in obj)
    return obj


def save_dcp(name, sd, planner=None, also_pt=True, path=None, full=None, **kw):
    path = path or name
    dcp.save(sd, storage_writer=writer(path, **kw), planner=planner)
    full = full_of(sd) if full is None else full
    flat, paths = flatten_state_dict(full)
    extra = {
        "world_size": dist.get_world_size() if dist.is_initialized() else 1
    }
    if rank0():
        md, st, pd = chunk_table(path)
        extra.update(
            metadata=md,
            storage=st,
            planner_data={k: list(v) for k, v in pd.items()},
        )
        if also_pt:
            torch.save(full, name + ".pt")
            extra["pt"] = name + ".pt"
    write_expected(name, path, "dcp", flat, **extra)
    if dist.is_initialized():
        dist.barrier()


# ------------------------------------------------------------- state builders
ALL_DTYPES = [
    "float32",
    "float64",
    "float16",
    "bfloat16",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "bool",
    "complex64",
    "complex128",
    "float8_e4m3fn",
    "float8_e5m2",
    "float8_e4m3fnuz",
    "float8_e5m2fnuz",
    "float8_e8m0fnu",
    "uint16",
    "uint32",
    "uint64",
    "complex32",
]


NO_STORAGE_CLASS = [
    torch.uint16,
    torch.uint32,
    torch.uint64,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
    torch.complex32,
]


def dtype_zoo():
    sd = {}
    for i, n in enumerate(ALL_DTYPES):
        dt = getattr(torch, n, None)
        if dt is None:
            continue
        sd[n] = det((3, 5), dt, seed=i)
    return sd


def plain_objects():
    return {
        "step": 7,
        "neg": -3,
        "big": 2**70,
        "negbig": -(2**31) - 1,
        "lr": 1e-3,
        "inf": float("inf"),
        "flag": True,
        "off": False,
        "none": None,
        "name": "caf\u00e9 \u4e2d\u6587",
        "empty": "",
        "bytes": b"\x00\x01\xff",
        "tuple": (1, 2.5, "x"),
        "tuple1": (1,),
        "tuple0": (),
        "list": [1, 2, 3],
        "list0": [],
        "nested_tuple": ((0.9, 0.999), [1, (2,)]),
        "set": {3},
        "cplx": 1 + 2j,
        "dtype": torch.float32,
        "size": torch.Size([2, 3]),
        "odict": collections.OrderedDict(a=1, b=2),
        "dict0": {},
        "intkeys": {0: "zero", 1: "one"},
        "betas": (0.9, 0.95),
        "listofdict": [{"a": 1}, {"a": 2, "t": det((2,), seed=901)}],
        "mixed_list": [det((2, 2), seed=902), 5, "s", None],
        "tuple_with_tensor": (det((3,), seed=903), 1),
        "nested": {"x": {"y": {"z": det((2, 3), seed=904), "k": 1}}},
        "dotted.key": {"a.b": 1},
        "": {"": 2},
        "bytearray": bytearray(b"ab"),
    }


# --------------------------------------------------------------- world size 1
@case("single_dtypes", 1)
def _(name):
    save_dcp(
        name,
        {
            "zoo": dtype_zoo(),
            "scalar": torch.tensor(3.5),
            "scalar_i64": torch.tensor(-9),
            "scalar_bool": torch.tensor(True),
            "empty0": torch.empty(0),
            "empty03": torch.empty(0, 3, dtype=torch.int64),
            "empty30": torch.empty(3, 0, dtype=torch.bfloat16),
            "one": det((1,), seed=5),
            "d5": det((2, 1, 3, 1, 2), seed=6),
        },
    )


@case("single_objects", 1)
def _(name):
    save_dcp(name, plain_objects())


@case("single_views", 1)
def _(name):
    base = det((6, 8), seed=11)
    cl = det((2, 3, 4, 5), seed=12).contiguous(
        memory_format=torch.channels_last
    )
    w = nn.Parameter(det((4, 3), seed=13))
    sd = {
        "base": base,
        "t": base.t(),
        "row": base[2],
        "col": base[:, 3],
        "slice": base[1:4, 2:7],
        "step": base[::2, ::3],
        "expand": det((1, 4), seed=14).expand(3, 4),
        "channels_last": cl,
        "param": w,
        "tied": w,
        "flip_conj": det((3, 4), torch.complex64, seed=15).conj(),
        "neg_view": torch.view_as_complex(det((3, 2), seed=16)).conj().imag,
        "alias": base,
    }
    save_dcp(name, sd)


@case("single_model_tied", 1)
def _(name):
    m = nn.Module()
    m.emb = nn.Embedding(9, 4)
    m.head = nn.Linear(4, 9, bias=True)
    m.head.weight = m.emb.weight
    m.bn = nn.BatchNorm1d(4)
    for i, p in enumerate(m.parameters()):
        p.data.copy_(det(p.shape, seed=20 + i))
    save_dcp(name, {"model": m.state_dict()})


@case("single_noflatten", 1)
def _(name):
    sd = {
        "a": det((3, 2), seed=30),
        "obj": {"k": [1, 2], "t": det((2,), seed=31)},
        "n": 4,
    }
    dcp.save(
        sd,
        storage_writer=writer(name),
        planner=DefaultSavePlanner(flatten_state_dict=False),
    )
    md, st, pd = chunk_table(name)
    write_expected(
        name,
        name,
        "dcp",
        sd,
        world_size=1,
        metadata=md,
        storage=st,
        planner_data=pd,
    )


@case("single_perfile", 1)
def _(name):
    save_dcp(
        name,
        {
            "a": det((3, 2), seed=40),
            "b": det((5,), torch.int64, seed=41),
            "n": 4,
            "s": "str",
        },
        single_file_per_rank=False,
    )


@case("single_threads3", 1)
def _(name):
    save_dcp(
        name,
        {
            **{f"t{i}": det((i + 1, 3), seed=50 + i) for i in range(7)},
            **{f"o{i}": i for i in range(5)},
        },
        thread_count=3,
    )


@case("single_async", 1)
def _(name):
    sd = {"w": det((8, 3), seed=60), "step": 3}
    ref = {
        k: (v.clone() if isinstance(v, torch.Tensor) else v)
        for k, v in sd.items()
    }
    with single_pg():
        fut = dcp.async_save(sd, storage_writer=writer(name))
        sd["w"].zero_()  # after staging, mutation must not reach the checkpoint
        fut.result()
    md, st, pd = chunk_table(name)
    write_expected(
        name,
        name,
        "dcp",
        ref,
        world_size=1,
        metadata=md,
        storage=st,
        planner_data={k: list(v) for k, v in pd.items()},
    )


@contextlib.contextmanager
def single_pg():
    import tempfile

    d = tempfile.mkdtemp()
    dist.init_process_group(
        "gloo", init_method="file://" + d + "/s", rank=0, world_size=1
    )
    try:
        yield
    finally:
        dist.destroy_process_group()
        shutil.rmtree(d, ignore_errors=True)


@case("pt_zoo", 1)
def _(name):
    base = det((6, 8), seed=11)
    p = nn.Parameter(det((4, 3), seed=13))
    sd = collections.OrderedDict(
        base=base,
        view=base[1:3],
        t=base.t(),
        param=p,
        frozen=nn.Parameter(det((2,), seed=70), requires_grad=False),
        scalar=torch.tensor(2.5),
        empty=torch.empty(0, 2),
        step=3,
        cfg={"lr": 0.1, "betas": (0.9, 0.999)},
        conj=det((3,), torch.complex64, seed=71).conj(),
        size=torch.Size([1, 2]),
        dtype=torch.bfloat16,
        device=torch.device("cpu"),
        reqgrad=det((2,), seed=72).requires_grad_(True),
    )
    for n, t in dtype_zoo().items():
        sd["zoo." + n] = t
    torch.save(sd, name + ".pt")
    write_expected(name, name + ".pt", "pt", flatten_state_dict(sd)[0])
    # The legacy writer makes unreadable files of dtypes without a storage
    # class of their own.
    old = collections.OrderedDict(
        (k, v)
        for k, v in sd.items()
        if k != "device"
        and not (isinstance(v, torch.Tensor) and v.dtype in NO_STORAGE_CLASS)
    )
    write_expected(
        name + "_legacy", name + "_legacy.pt", "pt", flatten_state_dict(old)[0]
    )
    torch.save(old, name + "_legacy.pt", _use_new_zipfile_serialization=False)
    for proto in (2, 3, 4, 5):
        torch.save(
            {"a": base, "n": 1, "s": "x"},
            f"{name}_proto{proto}.pt",
            pickle_protocol=proto,
        )
        write_expected(
            f"{name}_proto{proto}",
            f"{name}_proto{proto}.pt",
            "pt",
            {"a": base, "n": 1, "s": "x"},
        )
    m = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4))
    for i, q in enumerate(m.parameters()):
        q.data.copy_(det(q.shape, seed=80 + i))
    opt = torch.optim.AdamW(m.parameters(), lr=1e-2)
    for q in m.parameters():
        q.grad = torch.ones_like(q)
    opt.step()
    sd = {
        "model": m.state_dict(),
        "optimizer": opt.state_dict(),
        "epoch": 2,
        "rng": det((16,), torch.uint8, seed=85),
    }
    torch.save(sd, name + "_train.pt")
    write_expected(
        name + "_train", name + "_train.pt", "pt", flatten_state_dict(sd)[0]
    )


@case("safetensors_zoo", 1)
def _(name):
    from safetensors.torch import save_file

    ok = [
        "float32",
        "float64",
        "float16",
        "bfloat16",
        "int8",
        "int16",
        "int32",
        "int64",
        "uint8",
        "bool",
        "float8_e4m3fn",
        "float8_e5m2",
        "uint16",
        "uint32",
        "uint64",
        "complex64",
    ]
    sd = {n: t for n, t in dtype_zoo().items() if n in ok}
    sd.update(
        scalar=torch.tensor(1.5),
        empty=torch.empty(0, 4),
        z=det((7,), torch.bool, seed=90),
    )
    save_file(
        sd,
        name + ".safetensors",
        metadata={"format": "pt", "note": "caf\u00e9"},
    )
    write_expected(name, name + ".safetensors", "safetensors", sd)


@case("hf_single", 1)
def _(name):
    from torch.distributed.checkpoint import HuggingFaceStorageWriter

    sd = {
        "a.weight": det((4, 3), seed=100),
        "a.bias": det((4,), torch.bfloat16, seed=101),
        "b.weight": det((5, 2), seed=102),
        "c": det((3,), torch.int64, seed=103),
    }
    dcp.save(
        sd,
        storage_writer=HuggingFaceStorageWriter(
            name,
            fqn_to_index_mapping={
                "a.weight": 1,
                "a.bias": 1,
                "b.weight": 2,
                "c": 2,
            },
        ),
    )
    write_expected(name, name, "hf", sd)


@case("aligned4k", 1)
def _(name):
    """Items and payloads begin at multiples of 4096; CRCs are zero."""
    import rewrite_aligned

    sd = {
        "w": det((33, 7), seed=110),
        "b": det((5,), torch.bfloat16, seed=111),
        "e": torch.empty(0, 2),
        "s": torch.tensor(4),
        "step": 9,
        "d": {"x": [1, 2]},
    }
    dcp.save(sd, storage_writer=writer(name + "_src"))
    rewrite_aligned.rewrite(
        name + "_src", name, align=4096, zero_crc=True, gap=True
    )
    shutil.rmtree(name + "_src")
    md, st, pd = chunk_table(name)
    write_expected(
        name,
        name,
        "dcp",
        flatten_state_dict(sd)[0],
        world_size=1,
        metadata=md,
        storage=st,
        planner_data={k: list(v) for k, v in pd.items()},
    )


# ------------------------------------------------------- hand-placed DTensors
def dt_state(mesh, placements_cycle):
    from torch.distributed.tensor import distribute_tensor

    shapes = [
        ((5, 3), "float32"),
        ((7, 4), "bfloat16"),
        ((4, 6), "int64"),
        ((3, 2, 5), "float32"),
        ((1, 9), "bool"),
        ((2, 2), "float8_e4m3fn"),
        ((6, 5), "complex64"),
        ((9,), "float32"),
        ((1,), "float64"),
        ((4, 0), "float32"),
        ((8, 8), "float16"),
    ]
    sd, full = {}, {}
    i = 0
    for pname, pl in placements_cycle:
        for j, (sh, dt) in enumerate(shapes):
            from torch.distributed.tensor import Shard

            if any(isinstance(p, Shard) and p.dim >= len(sh) for p in pl):
                continue
            t = det(sh, getattr(torch, dt), seed=200 + i)
            i += 1
            with torch.no_grad():
                try:
                    d = distribute_tensor(t, mesh, pl, src_data_rank=None)
                except TypeError:
                    d = distribute_tensor(t, mesh, pl)
            sd[f"{pname}.t{j}"] = d
            full[f"{pname}.t{j}"] = t
    rest = dict(
        plain=det((4, 4), seed=300),
        scalar=torch.tensor(2.25),
        step=11,
        cfg={"lr": 0.5, "betas": (0.9, 0.999)},
        lst=[det((3,), seed=301), 4, {"q": "z"}],
        rank_same=[1, 2, 3],
    )
    sd.update(rest)
    full.update(rest)
    return dict(sd=sd, full=full)


def _dt1d(ws):
    def fn(name):
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Replicate, Shard

        mesh = init_device_mesh("cpu", (ws,))
        save_dcp(
            name,
            **dt_state(
                mesh,
                [("s0", [Shard(0)]), ("s1", [Shard(1)]), ("r", [Replicate()])],
            ),
        )

    return fn


for _ws in (2, 3, 4):
    CASES[f"dt_ws{_ws}"] = (_ws, _dt1d(_ws))


@case("dt_2x2", 4)
def _(name):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    save_dcp(
        name,
        **dt_state(
            mesh,
            [
                ("s0s1", [Shard(0), Shard(1)]),
                ("s1s0", [Shard(1), Shard(0)]),
                ("s0s0", [Shard(0), Shard(0)]),
                ("rs0", [Replicate(), Shard(0)]),
                ("s0r", [Shard(0), Replicate()]),
                ("rr", [Replicate(), Replicate()]),
            ],
        ),
    )


@case("dt_lowest_ws3", 3)
def _(name):
    sd = {f"p{i}": det((4, i + 1), seed=400 + i) for i in range(6)}
    sd.update({f"o{i}": i for i in range(4)})
    save_dcp(
        name, sd, planner=DefaultSavePlanner(dedup_save_to_lowest_rank=True)
    )


@case("dt_balance_ws3", 3)
def _(name):
    sd = {f"p{i}": det((4, i + 1), seed=400 + i) for i in range(6)}
    sd.update({f"o{i}": i for i in range(4)})
    save_dcp(name, sd)


@case("dt_threads_ws2", 2)
def _(name):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Shard

    mesh = init_device_mesh("cpu", (2,))
    save_dcp(name, **dt_state(mesh, [("s0", [Shard(0)])]), thread_count=2)


@case("nocoll_ws2", 2)
def _(name):
    """use_collectives=False: one metadata file per rank."""
    sd = {"w": det((3, 2), seed=500 + dist.get_rank()), "rank": dist.get_rank()}
    dcp.save(sd, storage_writer=writer(name), use_collectives=False)
    per = [None] * dist.get_world_size()
    t, o = describe_flat(sd)
    dist.all_gather_object(per, {"tensors": t, "objects": o})
    write_expected(
        name,
        name,
        "dcp-rank-local",
        {},
        world_size=dist.get_world_size(),
        per_rank=per,
    )
    dist.barrier()


# ----------------------------------------------------- FSDP2 / HSDP / FSDP+TP
class Block(nn.Module):
    def __init__(self, d, h):
        super().__init__()
        self.norm = nn.LayerNorm(d)
        self.up = nn.Linear(d, h)
        self.down = nn.Linear(h, d, bias=False)

    def forward(self, x):
        return x + self.down(torch.relu(self.up(self.norm(x))))


class Net(nn.Module):
    def __init__(self, d=6, h=13, vocab=11, tied=False):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.blocks = nn.ModuleList([Block(d, h), Block(d, h)])
        self.head = nn.Linear(d, vocab, bias=not tied)
        if tied:
            self.head.weight = self.emb.weight
        self.register_buffer("counter", torch.tensor(5))
        self.register_buffer("freqs", det((3,), torch.float64, seed=600))


def build(mesh, tied=False, tp=None, d=6, h=13, vocab=11):
    from torch.distributed.fsdp import fully_shard

    m = Net(d, h, vocab, tied)
    for i, p in enumerate(m.parameters()):
        p.data.copy_(det(p.shape, seed=610 + i))
    m.blocks[1].norm.weight.requires_grad_(False)
    if tp is not None:
        from torch.distributed.tensor.parallel import (
            ColwiseParallel,
            RowwiseParallel,
            parallelize_module,
        )

        for b in m.blocks:
            parallelize_module(
                b, tp, {"up": ColwiseParallel(), "down": RowwiseParallel()}
            )
    for b in m.blocks:
        fully_shard(b, mesh=mesh)
    fully_shard(m, mesh=mesh)
    decay = [p for p in m.parameters() if p.ndim > 1]
    nodecay = [p for p in m.parameters() if p.ndim <= 1]
    opt = torch.optim.AdamW(
        [
            {"params": decay, "weight_decay": 0.1},
            {"params": nodecay, "weight_decay": 0.0},
        ],
        lr=1e-2,
        foreach=False,
    )
    sched = torch.optim.lr_scheduler.StepLR(opt, 10)
    for i, p in enumerate(m.parameters()):
        if not p.requires_grad:
            continue
        g = torch.zeros_like(p)
        loc = g.to_local()
        if loc.numel():
            loc.copy_(det(loc.shape, loc.dtype, seed=700 + i))
        p.grad = g
    opt.step()
    opt.zero_grad()
    return m, opt, sched


def fsdp_case(name, mesh, options=None, **kw):
    from torch.distributed.checkpoint.state_dict import (
        StateDictOptions,
        get_state_dict,
    )

    m, opt, sched = build(mesh, **kw)
    msd, osd = get_state_dict(m, opt, options=options or StateDictOptions())
    sd = {
        "model": msd,
        "optim": osd,
        "train": {
            "step": 1,
            "lr_scheduler": sched.state_dict(),
            "tokens": 12345678901,
        },
    }
    save_dcp(name, sd)


def _fsdp1d(ws):
    def fn(name):
        from torch.distributed.device_mesh import init_device_mesh

        fsdp_case(name, init_device_mesh("cpu", (ws,)))

    return fn


for _ws in (2, 3, 4):
    CASES[f"fsdp_ws{_ws}"] = (_ws, _fsdp1d(_ws))


@case("fsdp_flatoptim_ws2", 2)
def _(name):
    from torch.distributed.checkpoint.state_dict import StateDictOptions
    from torch.distributed.device_mesh import init_device_mesh

    fsdp_case(
        name,
        init_device_mesh("cpu", (2,)),
        options=StateDictOptions(flatten_optimizer_state_dict=True),
    )


@case("fsdp_tied_ws2", 2)
def _(name):
    from torch.distributed.device_mesh import init_device_mesh

    fsdp_case(name, init_device_mesh("cpu", (2,)), tied=True)


@case("fsdp_nofrozen_ws2", 2)
def _(name):
    from torch.distributed.checkpoint.state_dict import StateDictOptions
    from torch.distributed.device_mesh import init_device_mesh

    fsdp_case(
        name,
        init_device_mesh("cpu", (2,)),
        options=StateDictOptions(ignore_frozen_params=True, cpu_offload=True),
    )


@case("hsdp_2x2", 4)
def _(name):
    from torch.distributed.device_mesh import init_device_mesh

    fsdp_case(
        name, init_device_mesh("cpu", (2, 2), mesh_dim_names=("rep", "shard"))
    )


@case("fsdp_tp_2x2", 4)
def _(name):
    from torch.distributed.device_mesh import init_device_mesh

    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    fsdp_case(name, mesh["dp"], tp=mesh["tp"], d=6, h=12)


# -------------------------------------------------------- Hugging Face writer
def _hf(name, consolidate):
    from torch.distributed.checkpoint import HuggingFaceStorageWriter
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (2,))
    full = {
        "a.weight": det((5, 3), seed=800),
        "b.weight": det((4, 7), torch.bfloat16, seed=801),
        "c.weight": det((6, 2, 3), seed=802),
        "n.bias": det((4,), torch.float16, seed=803),
    }
    pl = {
        "a.weight": Shard(0),
        "b.weight": Shard(1),
        "c.weight": Shard(0),
        "n.bias": Replicate(),
    }
    sd = {k: distribute_tensor(v, mesh, [pl[k]]) for k, v in full.items()}
    dcp.save(
        sd,
        storage_writer=HuggingFaceStorageWriter(
            name,
            fqn_to_index_mapping={
                "a.weight": 1,
                "b.weight": 2,
                "c.weight": 2,
                "n.bias": 1,
            },
            save_distributed=True,
            enable_consolidation=consolidate,
        ),
    )
    dist.barrier()
    if consolidate:
        write_expected(
            name + "_sharded", name + "/sharded", "hf", full, world_size=2
        )
    write_expected(name, name, "hf", full, world_size=2)
    dist.barrier()


def _safetensors_items(name):
    """DCP data files that are safetensors files; PyTorch cannot read them."""
    from torch.distributed.checkpoint.filesystem import SerializationFormat

    sd = {
        "a.weight": det((5, 3), seed=900),
        "b.weight": det((4, 7), torch.bfloat16, seed=901),
        "c.ids": det((6,), torch.int64, seed=902),
        "d.scalar": torch.tensor(1.5),
    }
    full = dict(sd)
    if dist.is_initialized():
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard, distribute_tensor

        mesh = init_device_mesh("cpu", (dist.get_world_size(),))
        for key, dim in (("a.weight", 0), ("b.weight", 1), ("c.ids", 0)):
            sd[key] = distribute_tensor(full[key], mesh, [Shard(dim)])
    layout = SerializationFormat.SAFETENSORS
    dcp.save(sd, storage_writer=writer(name, serialization_format=layout))
    write_expected(name, name, "dcp-safetensors-items", full)
    if dist.is_initialized():
        dist.barrier()


CASES["st_items_single"] = (1, _safetensors_items)
CASES["st_items_ws3"] = (3, _safetensors_items)
CASES["hf_sharded_ws2"] = (2, lambda n: _hf(n, False))
CASES["hf_consolidated_ws2"] = (2, lambda n: _hf(n, True))


# --------------------------------------------------------------------- driver
def run_cases(out, names):
    os.makedirs(out, exist_ok=True)
    os.chdir(out)
    torch.manual_seed(0)
    torch.set_num_threads(1)
    for n in names:
        ws, fn = CASES[n]
        if ws > 1:
            if not dist.is_initialized():
                dist.init_process_group("gloo")
        if rank0():
            shutil.rmtree(n, ignore_errors=True)
        if ws > 1:
            dist.barrier()
        fn(n)
        if rank0():
            print("made", n, flush=True)
    if dist.is_initialized():
        dist.destroy_process_group()


def main():
    ap = argparse.ArgumentParser()
    ap.add_argument("--out", required=True)
    ap.add_argument("--cases", default="")
    ap.add_argument("--list", action="store_true")
    ap.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    a = ap.parse_args()
    if a.list:
        print("\n".join(f"{n} {ws}" for n, (ws, _) in CASES.items()))
        return
    want = [c for c in (a.cases.split(",") if a.cases else CASES) if c]
    out = os.path.abspath(a.out)
    if a.worker:
        run_cases(out, want)
        return
    for ws in sorted({CASES[c][0] for c in want}):
        names = [c for c in want if CASES[c][0] == ws]
        me = os.path.abspath(__file__)
        args = [me, "--worker", "--out", out, "--cases", ",".join(names)]
        if ws == 1:
            cmd = [sys.executable] + args
        else:
            cmd = [
                sys.executable,
                "-m",
                "torch.distributed.run",
                "--standalone",
                f"--nproc_per_node={ws}",
            ] + args
        env = dict(os.environ, OMP_NUM_THREADS="1")
        # A rank of PyTorch's may abort while it ends, when a thread of Gloo's
        # is still there; what it wrote is made again.
        for _ in range(2):
            r = subprocess.run(cmd, env=env)
            if not r.returncode:
                break
        else:
            sys.exit(f"world size {ws} failed")


if __name__ == "__main__":
    main()
