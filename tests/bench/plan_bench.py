# SPDX-License-Identifier: Apache-2.0
"""Times PyTorch's planner on the problems of plan_bench.cc; same output.

    python plan_bench.py [--scale DIVISOR] [--repeat N]

Loads are planned by create_read_items_for_chunk_list, which makes the read
items inside create_default_local_load_plan; it is called once per tensor with
the boxes of all ranks, which lets it sort them once. Coverage is checked by
_validate_global_plan. Saves have no counterpart: there every rank plans for
itself and the coordinator merges the plans.
"""

import argparse
import itertools
import json
import time

import torch
from torch.distributed.checkpoint.default_planner import _validate_global_plan
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.checkpoint.planner_helpers import (
    create_read_items_for_chunk_list,
)

ROWS = 1_048_576
COLUMNS = 4096


def cut(size, num_pieces):
    """(offset, size) of each piece, as torch.chunk cuts."""
    step = -(-size // num_pieces)
    offsets = [min(size, step * i) for i in range(num_pieces + 1)]
    return [(a, b - a) for a, b in zip(offsets, offsets[1:])]


def shards(shape, mesh):
    """Dimension a is cut by mesh axis a; the others are whole."""
    cuts = [
        cut(n, k) for n, k in itertools.zip_longest(shape, mesh, fillvalue=1)
    ]
    return [
        ChunkStorageMetadata(
            torch.Size(offset for offset, _ in box),
            torch.Size(size for _, size in box),
        )
        for box in itertools.product(*cuts)
    ]


def tensor(shape, chunks):
    return TensorStorageMetadata(TensorProperties(), torch.Size(shape), chunks)


def measure(report, workload, args, num_chunks, run):
    seconds = []
    for _ in range(args.repeat):
        start = time.process_time()
        num_items = run()
        seconds.append(time.process_time() - start)
    report.append(
        {
            "workload": workload,
            "scale": args.scale,
            "chunks": num_chunks,
            "items": num_items,
            "seconds": seconds,
        }
    )


def load(num_tensors, stored, wanted):
    return sum(
        len(create_read_items_for_chunk_list(f"tensor{t}", stored, wanted))
        for t in range(num_tensors)
    )


def check(num_tensors, stored):
    metadata = Metadata({f"tensor{t}": stored for t in range(num_tensors)})
    # Two plans, because with one it does not compare the volumes.
    if not _validate_global_plan([None, None], metadata):
        raise SystemExit("PyTorch finds the plan wrong")
    return num_tensors * len(stored.chunks)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--scale", type=int, default=10)
    parser.add_argument("--repeat", type=int, default=1)
    args = parser.parse_args()
    report = []

    shape = (ROWS, COLUMNS)
    num_tensors = 1000 // args.scale
    stored = tensor(shape, shards(shape, (1000,)))
    wanted = shards(shape, (1024,))
    chunks = num_tensors * 1000
    measure(
        report,
        "load-tensors",
        args,
        chunks,
        lambda: load(num_tensors, stored, wanted),
    )
    measure(
        report,
        "check-tensors",
        args,
        chunks,
        lambda: check(num_tensors, stored),
    )

    shape = (ROWS, ROWS)
    side = int((1_000_000 // args.scale) ** 0.5)
    stored = tensor(shape, shards(shape, (side, side)))
    for name, mesh in (
        ("coarse", (32, 32)),
        ("rows", (1024,)),
        ("shifted", (side - 1, side - 1)),
    ):
        wanted = shards(shape, mesh)
        measure(
            report,
            f"load-grid-{name}",
            args,
            side * side,
            lambda: load(1, stored, wanted),
        )
    measure(report, "check-grid", args, side * side, lambda: check(1, stored))
    print(json.dumps(report, indent=1))


if __name__ == "__main__":
    main()
