# SPDX-License-Identifier: Apache-2.0
"""Reference checkpoints of models under FSDP2, HSDP and tensor parallelism, and
of the Hugging Face writers."""

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.nn as nn

from reference_saving import CASES, case, save_dcp, write_expected, writer
from values import det


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


class Experts(nn.Module):
    def __init__(self):
        super().__init__()
        self.w1 = nn.Parameter(det((8, 5, 4), seed=810))
        self.w2 = nn.Parameter(det((8, 4, 5), seed=811))


class Mixture(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(3, 10)
        self.experts = Experts()


@case("fsdp_experts_2x2", 4)
def _(name):
    """Experts on a mesh of their own, other parameters on all ranks."""
    from torch.distributed.checkpoint.state_dict import get_model_state_dict
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard
    from torch.distributed.tensor import Shard, distribute_tensor

    dense = init_device_mesh("cpu", (4,), mesh_dim_names=("fsdp",))
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("efsdp", "ep"))
    model = Mixture()
    for i, p in enumerate(model.up.parameters()):
        p.data.copy_(det(p.shape, seed=820 + i))
    experts = model.experts
    for key, p in list(experts.named_parameters()):
        cut = distribute_tensor(p.data, mesh["ep"], [Shard(0)])
        setattr(experts, key, nn.Parameter(cut))
    fully_shard(experts, mesh=mesh["efsdp"])
    fully_shard(model, mesh=dense)
    save_dcp(name, {"model": get_model_state_dict(model)})
