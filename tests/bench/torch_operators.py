# SPDX-License-Identifier: Apache-2.0
"""Measures the host's cost of an operator on PyTorch's DTensor.

The twin of operator_bench: the same cases, rounds and figures, as JSON on
standard output.
"""

import json
import time

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor import Shard
from torch.distributed.tensor.parallel import ColwiseParallel
from torch.distributed.tensor.parallel import parallelize_module

ROUNDS = 21
CALLS = 500
DIM = 32


def micros_per_call(call):
    begin = time.thread_time()
    for _ in range(CALLS):
        call()
    return (time.thread_time() - begin) * 1e6 / CALLS


def compare(plain, parallel):
    plain(), parallel()
    figures = {"plain_us": [], "dtensor_us": [], "overhead_us": []}
    for _ in range(ROUNDS):
        figures["plain_us"].append(micros_per_call(plain))
        figures["dtensor_us"].append(micros_per_call(parallel))
        figures["overhead_us"].append(
            figures["dtensor_us"][-1] - figures["plain_us"][-1]
        )
    return figures


@torch.no_grad()
def measure():
    mesh = init_device_mesh("cpu", (1,), mesh_dim_names=("tp",))
    plain, other = torch.ones(4, DIM, DIM), torch.ones(4, DIM, DIM)
    cut, other_cut = (
        DTensor.from_local(x, mesh, [Shard(2)], run_check=False)
        for x in (plain, other)
    )
    flat = (4 * DIM, DIM)
    linear, colwise = nn.Linear(DIM, DIM), nn.Linear(DIM, DIM)
    parallelize_module(colwise, mesh, ColwiseParallel())
    row = torch.ones(1, DIM)
    return {
        "relu": compare(lambda: torch.relu(plain), lambda: torch.relu(cut)),
        "add": compare(
            lambda: torch.add(plain, other), lambda: torch.add(cut, other_cut)
        ),
        "multiply by a number": compare(
            lambda: plain.mul(2), lambda: cut.mul(2)
        ),
        "view": compare(lambda: plain.view(flat), lambda: cut.view(flat)),
        "transpose": compare(
            lambda: plain.transpose(0, 1), lambda: cut.transpose(0, 1)
        ),
        "parallel linear": compare(lambda: linear(row), lambda: colwise(row)),
    }


def main():
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", store=dist.HashStore(), rank=0, world_size=1
    )
    print(json.dumps(measure()))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
