# SPDX-License-Identifier: Apache-2.0
"""Trains the model of tiny_moe.h with PyTorch, over Gloo on the CPU.

    torch_moe.py RANKS EP FIRST_STEP LAST_STEP LOAD SAVE OUT    LOAD, SAVE: or -

Dense parameters lie on "fsdp", those of experts on "efsdp" x "ep" of the same
ranks, and tokens travel by all-to-all, as TorchTitan does it.
"""

import os
import sys
import warnings

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
import torch.multiprocessing as mp
import torch.nn.functional as F
from torch import nn
from torch.distributed._functional_collectives import all_to_all_single_autograd
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.checkpoint.state_dict import set_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import distribute_tensor
from torch.distributed.tensor import DTensor
from torch.distributed.tensor import Shard

import harness
import trainers

VOCAB, DIM, HIDDEN, EXPERTS, TOP, LAYERS, TOKENS = 32, 16, 12, 4, 2, 2, 24


class Experts(nn.Module):
    """Rows are by expert; counts says how many each has."""

    def __init__(self):
        super().__init__()
        self.w1 = nn.Parameter(torch.empty(EXPERTS, HIDDEN, DIM))
        self.w2 = nn.Parameter(torch.empty(EXPERTS, DIM, HIDDEN))
        self.w3 = nn.Parameter(torch.empty(EXPERTS, HIDDEN, DIM))
        self.ep = None

    def forward(self, rows, counts):
        weights = [
            w.to_local() if isinstance(w, DTensor) else w
            for w in (self.w1, self.w2, self.w3)
        ]
        if self.ep is None:
            return self.compute(weights, rows, counts.tolist())
        ranks, local = self.ep.size(), EXPERTS // self.ep.size()
        theirs = torch.empty_like(counts)
        dist.all_to_all_single(theirs, counts, group=self.ep)
        sent = counts.view(ranks, -1).sum(1).tolist()
        received = theirs.view(ranks, -1).sum(1).tolist()
        rows = all_to_all_single_autograd(rows, received, sent, self.ep)
        expert = torch.arange(local).repeat(ranks).repeat_interleave(theirs)
        order = expert.argsort(stable=True)
        numbers = theirs.view(ranks, local).sum(0).tolist()
        out = self.compute(weights, rows[order], numbers)
        return all_to_all_single_autograd(
            out[order.argsort()], sent, received, self.ep
        )

    @staticmethod
    def compute(weights, rows, numbers):
        out = []
        for e, x in enumerate(rows.split(numbers)):
            w1, w2, w3 = (w[e] for w in weights)
            out.append((F.silu(x @ w1.t()) * (x @ w3.t())) @ w2.t())
        return torch.cat(out)


class Router(nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = nn.Linear(DIM, EXPERTS, bias=False)

    def forward(self, x):
        return self.gate(x).softmax(-1).topk(TOP, -1)


class MoE(nn.Module):
    def __init__(self):
        super().__init__()
        self.router = Router()
        self.experts = Experts()

    def forward(self, x):
        score, expert = self.router(x)
        order = expert.flatten().argsort(stable=True)
        counts = torch.bincount(expert.flatten(), minlength=EXPERTS)
        token = order // TOP
        y = self.experts(x[token], counts) * score.flatten()[order].unsqueeze(1)
        return torch.zeros_like(x).index_add(0, token, y)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(DIM, eps=1e-5)
        self.moe = MoE()

    def forward(self, h):
        return h + self.moe(self.norm(h))


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, DIM)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.head = nn.Linear(DIM, VOCAB, bias=False)

    def forward(self, tokens):
        h = self.embed(tokens)
        for layer in self.layers:
            h = layer(h)
        return self.head(h)


def build():
    net = Net().double()
    with torch.no_grad():
        for t, (name, p) in enumerate(net.named_parameters()):
            wave = torch.arange(p.numel(), dtype=torch.float64)
            wave = torch.sin(0.37 * wave + 1.7 * t).view(p.shape)
            scale = 0.9 if "gate" in name else 0.4
            p.copy_(1 + 0.1 * wave if "norm" in name else scale * wave)
    return net


def shard(net, ranks, ep):
    dense = init_device_mesh("cpu", (ranks,), mesh_dim_names=("fsdp",))
    sparse = init_device_mesh(
        "cpu", (ranks // ep, ep), mesh_dim_names=("efsdp", "ep")
    )
    for layer in net.layers:
        experts = layer.moe.experts
        if ep > 1:
            for name, p in list(experts.named_parameters()):
                part = distribute_tensor(p, sparse["ep"], [Shard(0)])
                experts.register_parameter(name, nn.Parameter(part))
            experts.ep = sparse["ep"].get_group()
            fully_shard(experts, mesh=sparse["efsdp"])
            # Each gradient has tokens of all ranks in it.
            experts.set_gradient_divide_factor(ranks)
        fully_shard(layer, mesh=dense)
    fully_shard(net, mesh=dense)


def batch(step, first, count):
    i = torch.arange(first, first + count)
    return (3 * i * i + 5 * i + 7 * step) % VOCAB, (i * 11 + step) % VOCAB


def state_of(net, optimizer):
    return dict(zip(("model", "optim"), get_state_dict(net, optimizer)))


def train(rank, ranks, ep, steps, load, save, out):
    net = build()
    shard(net, ranks, ep)
    optimizer = torch.optim.AdamW(
        net.parameters(), lr=1e-2, weight_decay=0.1, foreach=False
    )
    if load != "-":
        state = state_of(net, optimizer)
        dcp.load(state, checkpoint_id=load)
        set_state_dict(
            net,
            optimizer,
            model_state_dict=state["model"],
            optim_state_dict=state["optim"],
        )
    share = TOKENS // ranks
    losses = []
    for step in steps:
        tokens, targets = batch(step, rank * share, share)
        optimizer.zero_grad()
        loss = F.cross_entropy(net(tokens), targets)
        loss.backward()
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        losses.append(mean.item() / ranks)
        optimizer.step()
    if rank == 0:
        with open(out, "w") as f:
            f.writelines(f"{loss!r}\n" for loss in losses)
    if save != "-":
        dcp.save(state_of(net, optimizer), checkpoint_id=save)


def worker(rank, ranks, port, *arguments):
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    os.environ.update(
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        RANK=str(rank),
        WORLD_SIZE=str(ranks),
    )
    dist.init_process_group("gloo")
    train(rank, ranks, *arguments)
    dist.barrier()
    harness.end_rank()


def main():
    ranks, ep, first, last = (int(word) for word in sys.argv[1:5])
    arguments = (ranks, trainers.held_port(), ep, range(first, last))
    mp.spawn(worker, args=(*arguments, *sys.argv[5:8]), nprocs=ranks)


if __name__ == "__main__":
    main()
