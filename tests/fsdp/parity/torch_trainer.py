# SPDX-License-Identifier: Apache-2.0
"""Trains with Python's FSDP2 as a job file describes, like parity_trainer.

    python torch_trainer.py JOB.json WORLD_SIZE OUT

PyTorch is imported once; the ranks are forked from there. Rank 0 writes, per
configuration: losses.bin, grad.<name>.bin after the first backward,
param.<name>.bin at the end, all in the dtype of the model; placements.json, the
text of each parameter's placements; and counts.json and bytes.json, the
collectives of the second step by kind, and the bytes that rank 0 gave to them.
With an average of the weights the last loss is its loss on the last rows, and
param.average.<name>.bin has its parameters.
"""

import json
import os
import pathlib
import signal
import sys
import traceback

import checkpoints
import models
import numpy
import parallel
import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.distributed._composable.replicate_with_fsdp import replicate
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule
from torch.distributed.fsdp import MixedPrecisionPolicy
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor import Shard
from torch.optim.swa_utils import AveragedModel
from torch.optim.swa_utils import get_ema_avg_fn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

DTYPES = {
    "float32": torch.float32,
    "float64": torch.float64,
    "bfloat16": torch.bfloat16,
}
KINDS = {
    "all_gather": "all_gather",
    "allgather": "all_gather",
    "reduce_scatter": "reduce_scatter",
    "all_reduce": "all_reduce",
    "allreduce": "all_reduce",
    "all_to_all": "all_to_all",
    "alltoall": "all_to_all",
    "broadcast": "broadcast",
}


def bytes_given(schema, args):
    """The bytes of the tensors that a collective sends."""
    given = (
        value
        for argument, value in zip(schema.arguments, args)
        if argument.name.startswith(("input", "tensors"))
    )
    return sum(tensor.nbytes for tensor in tree_leaves(list(given)))


class CountCollectives(TorchDispatchMode):
    def __init__(self):
        super().__init__()
        self.counts = dict.fromkeys(KINDS.values(), 0)
        # The bytes that this rank gave to them.
        self.bytes = dict.fromkeys(self.counts, 0)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        # DTensor is decomposed into plain operators, which get here again.
        if any(issubclass(kind, DTensor) for kind in types):
            return NotImplemented
        if func.namespace in ("c10d", "_c10d_functional"):
            name = func._schema.name.split("::")[1].lstrip("_")
            for prefix, kind in KINDS.items():
                if name.startswith(prefix):
                    self.counts[kind] += 1
                    self.bytes[kind] += bytes_given(func._schema, args)
        return func(*args, **(kwargs or {}))


def make_model(job, config):
    model = models.make(config["model"], config["checkpoint_activations"])
    if not config["load"]:
        load_weights(pathlib.Path(job["init"]) / config["model"], model)
    return model.to(DTYPES[config["dtype"]])


def freeze(model, config):
    if config["frozen_layer"] >= 0:
        layer = model.layers[config["frozen_layer"]]
        for parameter in layer.parameters():
            parameter.requires_grad_(False)


@torch.no_grad()
def load_weights(folder, model):
    for name, parameter in model.named_parameters():
        values = numpy.fromfile(folder / f"{name}.bin", numpy.float32)
        parameter.copy_(torch.from_numpy(values).view(parameter.shape))


def make_mesh(config):
    shape = tuple(config["mesh"])
    names = ("replicate", "shard")[2 - len(shape) :]
    if config["tp"] > 1:
        shape, names = (*shape, config["tp"]), (*names, "tp")
    if not shape:
        return None
    return init_device_mesh("cpu", shape, mesh_dim_names=names)


def cut(model, config, mesh):
    """Returns the mesh of fully_shard, or None."""
    if config["tp"] == 1:
        return mesh
    parallel.parallelize(model, mesh["tp"], config["plan"])
    return mesh[mesh.mesh_dim_names[:-1]] if config["mesh"] else None


def mixed_precision(model, config):
    options = {
        "param_dtype": DTYPES[config["param_dtype"]],
        "reduce_dtype": DTYPES.get(config["reduce_dtype"]),
    }
    if word := config["keep_dtype"]:
        kept = {id(p) for name, p in model.named_parameters() if word in name}
        options["param_dtype_override_fn"] = lambda parameter: (
            parameter.dtype if id(parameter) in kept else None
        )
    return MixedPrecisionPolicy(**options)


def own_placement(model, config):
    from torch.distributed.fsdp._fully_shard import _fsdp_common as common

    own = init_device_mesh("cpu", (2, 2), mesh_dim_names=("replicate", "shard"))
    info = common.HSDPMeshInfo(own, shard_mesh_dim=1, replicate_mesh_dim=0)
    named = model.named_parameters()
    ids = {id(p) for name, p in named if config["own_mesh"] in name}
    return lambda parameter: (
        common.ShardPlacementResult(Shard(0), info)
        if id(parameter) in ids
        else None
    )


def shard(model, config, mesh):
    options = {"mesh": mesh}
    if config["param_dtype"]:
        options["mp_policy"] = mixed_precision(model, config)
    if config["replicate"]:
        apply = replicate
    else:
        apply = fully_shard
        options["reshard_after_forward"] = config["reshard_after_forward"]
    if config["own_mesh"]:
        options["shard_placement_fn"] = own_placement(model, config)
    for layer in model.layers:
        apply(layer, **options)
    apply(model, **options)
    for module in model.modules():
        if config["force_sum"] and isinstance(module, FSDPModule):
            module.set_force_sum_reduction_for_comms(True)
    for name, value in config["switches"].items():
        getattr(model, f"set_{name}")(value)
    if config["finalize"]:
        model.set_manual_backward_finalization(True)


def whole(tensor):
    tensor = tensor.detach()
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def write(path, tensor):
    if dist.get_rank() == 0:
        tensor.contiguous().numpy().tofile(path)


def rows_of_rank(config, rows):
    """Ranks that cut one model have the same rows."""
    index = dist.get_rank() // config["tp"]
    share = rows.chunk(dist.get_world_size() // config["tp"])[index]
    return share[:, : config["row_length"]]


def loss_of(model, config, rows):
    """The mean over this rank's rows."""
    mine = rows_of_rank(config, rows)
    logits = model(mine[:, :-1]).to(DTYPES[config["dtype"]])
    return F.cross_entropy(
        logits.reshape(-1, logits.size(-1)), mine[:, 1:].reshape(-1)
    )


def backward(model, config, batches):
    """All micro-batches of one step; returns the loss of this rank."""
    num = config["accumulate"]
    total = 0.0
    for i, rows in enumerate(batches):
        if config["no_sync"]:
            last = i == num - 1 and not config["finalize"]
            model.set_requires_gradient_sync(last)
        if config["postpone_all_reduce"]:
            model.set_requires_all_reduce(i == num - 1)
        with parallel.loss_context(config["plan"]):
            loss = loss_of(model, config, rows)
            (loss / num).backward()
        total += whole(loss).item() / num
    finalize(model, config)
    return total


def finalize(model, config):
    if not config["finalize"]:
        return
    model.set_requires_gradient_sync(True)
    handle = model.finalize_backward(async_op=config["finalize"] == "handle")
    if handle is not None:
        handle.wait()


def fail(model, config, rows):
    """Two backwards, of which the second fails, and a forward."""

    def refuse(_):
        raise ValueError("on purpose")

    for fails in (False, True):
        logits = model(rows_of_rank(config, rows)[:, :-1])
        if fails:
            logits.register_hook(refuse)
        try:
            logits.sum().backward()
        except ValueError:
            model(rows_of_rank(config, rows)[:, :-1])
    model.reset_iter_state()


class Together:
    """Several optimizers that step together."""

    def __init__(self, *optimizers):
        self.optimizers = optimizers

    def __iter__(self):
        return iter(self.optimizers)

    def zero_grad(self):
        for optimizer in self.optimizers:
            optimizer.zero_grad()

    def step(self):
        for optimizer in self.optimizers:
            optimizer.step()


def make_muon(model, lr, **options):
    """Muon for the matrices within layers, AdamW for everything else."""
    parts = {True: [], False: []}
    for name, parameter in model.named_parameters():
        is_matrix = name.startswith("layers.") and parameter.ndim == 2
        parts[is_matrix].append(parameter)
    return Together(
        torch.optim.Muon(parts[True], lr=lr, **options),
        torch.optim.AdamW(parts[False], lr=lr, fused=True),
    )


def make_optimizer(job, config, model):
    if config["optimizer"] == "muon":
        return make_muon(
            model,
            job["lr"],
            nesterov=config["nesterov"],
            adjust_lr_fn=config["adjust_lr_fn"] or None,
        )
    trained = [p for p in model.parameters() if p.requires_grad]
    if config["optimizer"] == "fused_adamw":
        return torch.optim.AdamW(trained, lr=job["lr"], fused=True)
    # foreach: one dispatch of DTensor per operator, not per parameter; it
    # refuses parameters of several meshes.
    foreach = config["tp"] == 1 and not config["own_mesh"]
    return torch.optim.Adam(trained, lr=job["lr"], foreach=foreach)


def make_average(config, model):
    """A model of its own, or None."""
    if not config["average"]:
        return None
    average_by = {"ema": get_ema_avg_fn(config["ema_decay"]), "mean": None}
    return AveragedModel(model, avg_fn=average_by[config["average"]])


def mean_of_ranks(loss):
    mean = torch.tensor(loss, dtype=torch.float64)
    dist.all_reduce(mean)
    return mean.item() / dist.get_world_size()


def train(job, config, out):
    model = make_model(job, config)
    mesh = cut(model, config, make_mesh(config))
    # SequenceParallel makes new parameters, which would be trained.
    freeze(model, config)
    if mesh is not None:
        shard(model, config, mesh)
    write_placements(out, model)
    optimizer = make_optimizer(job, config, model)
    average = make_average(config, model)
    data = torch.from_numpy(numpy.fromfile(job["data"], numpy.int64))
    data = data.view(-1, job["batch"], job["length"])
    num = config["accumulate"]
    losses = []
    first_step = config["first_step"]
    if config["load"]:
        checkpoints.load(config["load"], first_step, model, optimizer, average)
    for step in range(first_step, config["steps"]):
        if step == config["save_step"]:
            checkpoints.save(config["save"], step, model, optimizer, average)
        rows = data[step * num : (step + 1) * num]
        optimizer.zero_grad()
        if config["fails"]:
            fail(model, config, rows[0])
        counting = CountCollectives()
        if step == 1:
            with counting:
                loss = backward(model, config, rows)
                clip(model, config)
                optimizer.step()
            write_json(out / "counts.json", counting.counts)
            write_json(out / "bytes.json", counting.bytes)
        else:
            loss = backward(model, config, rows)
            if step == 0:
                for name, parameter in model.named_parameters():
                    if parameter.grad is not None:
                        write(out / f"grad.{name}.bin", whole(parameter.grad))
            clip(model, config)
            optimizer.step()
        losses.append(mean_of_ranks(loss))
        if average is not None:
            average.update_parameters(model)
    if average is not None:
        with torch.no_grad():
            losses.append(mean_of_ranks(loss_of(average, config, rows[-1])))
        for name, parameter in average.module.named_parameters():
            write(out / f"param.average.{name}.bin", whole(parameter))
    write(out / "losses.bin", torch.tensor(losses, dtype=torch.float64))
    for name, parameter in model.named_parameters():
        write(out / f"param.{name}.bin", whole(parameter))


def clip(model, config):
    if config["clip"] > 0:
        # foreach, the default, leaves gradients as they are that
        # SequenceParallel has made Partial.
        foreach = None if config["tp"] == 1 else False
        torch.nn.utils.clip_grad_norm_(
            model.parameters(), config["clip"], foreach=foreach
        )


def write_placements(out, model):
    texts = {
        name: str(parameter.placements)
        for name, parameter in model.named_parameters()
        if isinstance(parameter, DTensor)
    }
    write_json(out / "placements.json", texts)


def write_json(path, value):
    if dist.get_rank() == 0:
        path.write_text(json.dumps(value))


def run_rank(job, rank, world_size, out):
    dist.init_process_group(
        "gloo",
        init_method=f"file://{out}/store",
        rank=rank,
        world_size=world_size,
    )
    for config in job["configs"]:
        folder = out / config["name"]
        folder.mkdir(parents=True, exist_ok=True)
        train(job, config, folder)
    dist.destroy_process_group()


def main():
    job = json.loads(pathlib.Path(sys.argv[1]).read_text())
    world_size, out = int(sys.argv[2]), pathlib.Path(sys.argv[3]).resolve()
    out.mkdir(parents=True, exist_ok=True)
    children = []
    for rank in range(world_size):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                torch.set_num_threads(1)
                run_rank(job, rank, world_size, out)
                code = 0
            except BaseException:
                print(f"rank {rank}:", file=sys.stderr)
                traceback.print_exc()
            sys.stderr.flush()
            os._exit(code)
        children.append(child)
    sys.exit(wait_for(children))


def wait_for(children):
    """Returns 1 and ends the others if a rank fails; they would wait for it."""
    running = set(children)
    failed = 0
    while running:
        child, status = os.wait()
        running.discard(child)
        if status != 0 and not failed:
            failed = 1
            for other in running:
                os.kill(other, signal.SIGKILL)
    return failed


if __name__ == "__main__":
    main()
