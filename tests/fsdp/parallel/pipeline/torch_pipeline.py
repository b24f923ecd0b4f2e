# SPDX-License-Identifier: Apache-2.0
"""The training of pipeline_trainer.cc, in PyTorch: stages of
torch.distributed.pipelining, each under fully_shard.

torch_pipeline.py RANKS PP FIRST_STEP LAST_STEP LOAD SAVE OUT
"""

import os
import sys

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.checkpoint.state_dict import set_state_dict
from torch.distributed.checkpoint.state_dict import StateDictOptions
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining import Schedule1F1B

import harness
import trainers

VOCABULARY, DIM, LAYERS = 11, 6, 6
ROWS, MICROBATCHES, MAX_NORM = 16, 4, 0.5
FLAT = StateDictOptions(flatten_optimizer_state_dict=True)


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.up = nn.Linear(DIM, 2 * DIM)
        self.down = nn.Linear(2 * DIM, DIM)

    def forward(self, x):
        return x + self.down(nn.functional.gelu(self.up(x)))


class Model(nn.Module):
    """The modules of one stage, under the names of the whole model."""

    def __init__(self, stage, stages):
        super().__init__()
        # As pipeline_module_names divides them.
        self.embed = nn.Embedding(VOCABULARY, DIM) if stage == 0 else None
        counts = {1: [6], 2: [3, 3]}[stages]
        first = sum(counts[:stage])
        self.layers = nn.ModuleDict(
            {str(first + i): Layer() for i in range(counts[stage])}
        )
        last = stage == stages - 1
        self.norm = nn.LayerNorm(DIM) if last else None
        self.head = nn.Linear(DIM, VOCABULARY) if last else None

    def forward(self, tokens):
        h = self.embed(tokens) if self.embed else tokens
        for layer in self.layers.values():
            h = layer(h)
        h = self.norm(h) if self.norm else h
        return self.head(h) if self.head else h


def tokens(step):
    generator = torch.Generator().manual_seed(100 + step)
    return torch.randint(VOCABULARY, (ROWS, 4), generator=generator)


def loss_of(logits, targets):
    return nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten())


def load(path, model, optimizer):
    parts = get_state_dict(model, optimizer, options=FLAT)
    state = dict(zip(("model", "optim"), parts))
    dcp.load(state, checkpoint_id=path)
    set_state_dict(
        model,
        optimizer,
        model_state_dict=state["model"],
        optim_state_dict=state["optim"],
        options=FLAT,
    )


def clip(model, mesh):
    """The norm over all stages, as TorchTitan computes it."""
    grads = [p.grad for p in model.parameters()]
    norm = nn.utils.get_total_norm(grads).full_tensor() ** 2
    dist.all_reduce(norm, group=mesh.get_group("pp"))
    norm **= 0.5
    nn.utils.clip_grads_with_norm_(model.parameters(), MAX_NORM, norm)
    return norm.item()


def run(
    rank, ranks, pp, first_step, last_step, load_path, save_path, out, port
):
    torch.set_num_threads(1)
    torch.set_default_dtype(torch.float64)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    mesh = init_device_mesh(
        "cpu", (pp, ranks // pp), mesh_dim_names=("pp", "dp")
    )
    stage = mesh.get_local_rank("pp")
    torch.manual_seed(stage)  # replaced by the loaded values
    model = Model(stage, pp)
    options = {"mesh": mesh["dp"], "reshard_after_forward": False}
    for layer in model.layers.values():
        fully_shard(layer, **options)
    fully_shard(model, **options)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.1)
    load(load_path, model, optimizer)
    pipeline = PipelineStage(
        model, stage, pp, torch.device("cpu"), group=mesh.get_group("pp")
    )
    schedule = Schedule1F1B(pipeline, MICROBATCHES, loss_of)
    with open(out if rank == 0 else f"{out}.{rank}", "w") as numbers:
        for step in range(first_step, last_step):
            optimizer.zero_grad()
            mine = mesh.get_local_rank("dp")
            x, y = (
                tokens(s).chunk(ranks // pp)[mine] for s in (step, 50 + step)
            )
            losses = []
            schedule.step(
                *((x,) if pipeline.is_first else ()),
                target=y if pipeline.is_last else None,
                losses=losses,
            )
            loss = torch.zeros(1)
            if pipeline.is_last:
                loss += torch.stack(losses).mean().detach()
            dist.all_reduce(loss)
            norm = clip(model, mesh)
            numbers.write(f"{loss.item() / (ranks // pp)!r} {norm!r}\n")
            optimizer.step()
    if save_path != "-":
        parts = get_state_dict(model, optimizer, options=FLAT)
        dcp.save(dict(zip(("model", "optim"), parts)), checkpoint_id=save_path)
    dist.barrier()
    harness.end_rank()


def main():
    ranks, pp, first_step, last_step = map(int, sys.argv[1:5])
    words = (ranks, pp, first_step, last_step, *sys.argv[5:8])
    port = str(trainers.held_port())
    torch.multiprocessing.spawn(run, (*words, port), nprocs=ranks)


if __name__ == "__main__":
    main()
