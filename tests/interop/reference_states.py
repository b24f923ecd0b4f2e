# SPDX-License-Identifier: Apache-2.0
"""Reference checkpoints of one process."""

import collections
import contextlib
import shutil

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn as nn
from torch.distributed.checkpoint._nested_dict import flatten_state_dict
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner

from reference_saving import (
    case,
    chunk_table,
    save_dcp,
    write_expected,
    writer,
)
from values import det


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
