# SPDX-License-Identifier: Apache-2.0
"""What the cases of make_reference.py share: their table, and how a state is
saved and described."""

import collections
import os
import pickle

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint._nested_dict import flatten_state_dict
from torch.distributed.checkpoint.metadata import TensorStorageMetadata

from values import compact, describe_flat


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
