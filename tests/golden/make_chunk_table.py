# SPDX-License-Identifier: Apache-2.0
"""Writes chunk_table.json: the boxes that DTensor gives each rank.

    python make_chunk_table.py OUT.json

A row is {"shape", "mesh", "placements", "chunks", "contiguous"}. Placements are
"S0", "S1", ..., "R", or "SS0:2" for a strided shard of dimension 0 with split
factor 2. "chunks" holds one [offsets, sizes] per mesh coordinate, in row-major
order of the mesh. PyTorch computes the table, and an independent model over
lists of indices checks it. "contiguous": false marks rows where the indices of
some rank are not one box, so that its single chunk would be wrong.
"""

import itertools
import json
import sys

from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor._utils import (
    _compute_local_shape_and_global_offset as compute,
)
from torch.distributed.tensor.placement_types import _StridedShard

EXTENTS = [(n,) for n in (0, 1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 17)]
MATRICES = [(a, b) for a in (1, 3, 5, 8) for b in (2, 5)]


def parse(placement):
    if placement == "R":
        return Replicate()
    if placement.startswith("SS"):
        dim, factor = placement[2:].split(":")
        return _StridedShard(int(dim), split_factor=int(factor))
    return Shard(int(placement[1:]))


def sharded_dim(placement):
    return int(placement.lstrip("S").split(":")[0])


def chunk(extent, count, slot):
    """(start, length) of one slot; like torch.chunk, but always `count`."""
    step = -(-extent // count)
    start = min(extent, step * slot)
    return start, min(extent, step * (slot + 1)) - start


def cut(indices, count, slot):
    start, length = chunk(len(indices), count, slot)
    return indices[start : start + length]


def index_model(shape, mesh, placements, coordinate):
    """The indices a rank holds in each dimension."""
    indices = [list(range(n)) for n in shape]
    for axis, placement in enumerate(placements):
        if placement == "R":
            continue
        dim = sharded_dim(placement)
        slot = mesh[axis], coordinate[axis]
        if placement.startswith("SS"):
            factor = int(placement.split(":")[1])
            pieces = (cut(indices[dim], factor, j) for j in range(factor))
            indices[dim] = [i for p in pieces for i in cut(p, *slot)]
        else:
            indices[dim] = cut(indices[dim], *slot)
    return indices


def jobs():
    for shape in EXTENTS + MATRICES:
        options = ["R"] + [f"S{d}" for d in range(len(shape))]
        for mesh in ((1,), (2,), (3,), (4,), (5,), (8,)):
            for placement in options:
                yield shape, mesh, [placement]
    for shape in EXTENTS + MATRICES:
        options = ["R"] + [f"S{d}" for d in range(len(shape))]
        for mesh in ((2, 2), (2, 3), (3, 2), (4, 2)):
            for pair in itertools.product(options, options):
                yield shape, mesh, list(pair)
            for d in range(len(shape)):
                yield shape, mesh, [f"SS{d}:{mesh[1]}", f"S{d}"]
    for shape in ((8, 6), (5, 4), (16,)):
        yield shape, (2, 2, 2), ["S0", "S0", "S0"]
        yield shape, (2, 2, 2), ["R", "SS0:2", "S0"]


def check(row, coordinate, size, offset):
    """Compares one chunk with the model; true if the indices are one box."""
    shape, mesh, placements = row
    indices = index_model(shape, mesh, placements, coordinate)
    want_offset = [x[0] if x else n for x, n in zip(indices, shape)]
    sharded = {sharded_dim(p) for p in placements if p != "R"}
    for dim in range(len(shape)):
        if dim not in sharded:
            want_offset[dim] = 0
    if [len(x) for x in indices] != list(size) or want_offset != list(offset):
        sys.exit(f"model and PyTorch differ: {row} at {coordinate}")
    return all(x == list(range(x[0], x[0] + len(x))) for x in indices if x)


def main():
    rows = []
    for shape, mesh, placements in jobs():
        chunks, contiguous = [], True
        for coordinate in itertools.product(*map(range, mesh)):
            size, offset = compute(
                shape, mesh, list(coordinate), [parse(x) for x in placements]
            )
            chunks.append([list(offset), list(size)])
            contiguous &= check(
                (shape, mesh, placements), coordinate, size, offset
            )
        row = {
            "shape": list(shape),
            "mesh": list(mesh),
            "placements": placements,
            "chunks": chunks,
            "contiguous": contiguous,
        }
        rows.append(json.dumps(row, separators=(",", ":")))
    with open(sys.argv[1], "w") as f:
        f.write("[\n" + ",\n".join(rows) + "\n]\n")
    print(len(rows), "rows")


if __name__ == "__main__":
    main()
