# SPDX-License-Identifier: Apache-2.0
"""Reference checkpoints of DTensors that are placed by hand."""

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint._nested_dict import flatten_state_dict
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner

from reference_saving import CASES, case, save_dcp, write_expected, writer
from values import describe_flat, det


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


@case("nocoll_dt_ws3", 3)
def _(name):
    """use_collectives=False: each rank's metadata has its own shards."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard

    mesh = init_device_mesh("cpu", (3,))
    state = dt_state(
        mesh,
        [("s0", [Shard(0)]), ("s1", [Shard(1)]), ("r", [Replicate()])],
    )
    dcp.save(state["sd"], storage_writer=writer(name), use_collectives=False)
    write_expected(
        name, name, "dcp-ranks", flatten_state_dict(state["full"])[0]
    )
    dist.barrier()


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
