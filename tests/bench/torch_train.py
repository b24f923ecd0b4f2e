# SPDX-License-Identifier: Apache-2.0
"""One rank of a training run with Python's FSDP2; the twin of train_bench.

    RANK=0 WORLD_SIZE=2 MASTER_ADDR=... MASTER_PORT=... \
        python torch_train.py SPEC.json OUT

train_bench.py writes the specification. Writes OUT.<rank>.json.
"""

import json
import os
import pathlib
import sys
import time

PARITY = pathlib.Path(__file__).resolve().parents[1] / "fsdp/parity"
sys.path.insert(0, str(PARITY))

import measure
import models
import numpy
import parallel
import torch
import torch.distributed as dist
import torch.nn.functional as F
import torch_trainer
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.fsdp._fully_shard import _fsdp_param_group
from torch.distributed.tensor import DTensor


def local(tensor):
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


class UnshardedBytes:
    """The most bytes of gathered parameters, of all groups at once."""

    def __init__(self, model):
        self.groups = [
            module._get_fsdp_state()._fsdp_param_group
            for module in model.modules()
            if isinstance(module, torch.distributed.fsdp.FSDPModule)
        ]
        self.peak = 0

    def __enter__(self):
        kind = _fsdp_param_group.FSDPParamGroup
        self.wait = kind.wait_for_unshard

        def wait_and_look(group):
            self.wait(group)
            self.peak = max(self.peak, self.now())

        kind.wait_for_unshard = wait_and_look
        return self

    def __exit__(self, *unused):
        _fsdp_param_group.FSDPParamGroup.wait_for_unshard = self.wait

    def now(self):
        storages = {}
        for group in self.groups:
            for parameter in group.fsdp_params if group else ():
                for tensor in getattr(parameter, "all_gather_outputs", ()):
                    storage = tensor.untyped_storage()
                    storages[id(tensor)] = storage.size()
        return sum(storages.values())


def make_model(spec):
    model = models.Llama(spec["sizes"])
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            path = pathlib.Path(spec["init"]) / f"{name}.bin"
            values = numpy.fromfile(path, numpy.float32)
            parameter.copy_(torch.from_numpy(values).view(parameter.shape))
    model.to(spec["device"])
    tp = spec["tp"]
    mesh = init_device_mesh(
        spec["device"],
        (dist.get_world_size() // tp, tp),
        mesh_dim_names=("dp", "tp"),
    )
    if tp > 1:
        parallel.parallelize(model, mesh["tp"], spec["plan"])
    if spec["sharded"]:
        for layer in model.layers:
            fully_shard(layer, mesh=mesh["dp"])
        fully_shard(model, mesh=mesh["dp"])
    return model


def make_optimizer(model, spec):
    if spec["optimizer"] == "muon":
        return torch_trainer.make_muon(
            model, spec["lr"], adjust_lr_fn="match_rms_adamw"
        )
    return torch.optim.AdamW(
        model.parameters(),
        lr=spec["lr"],
        fused=spec["optimizer"] == "fused_adamw",
    )


def train(spec):
    on_gpu = spec["device"] != "cpu"
    # As in train_bench.cc.
    before = 0 if on_gpu else measure.private_bytes()
    model = make_model(spec)
    optimizer = make_optimizer(model, spec)
    data = torch.from_numpy(numpy.fromfile(spec["data"], numpy.int64))
    data = data.view(-1, spec["batch"], spec["length"]).to(spec["device"])
    synchronize = torch.cuda.synchronize if on_gpu else lambda: None

    # Ranks that cut one model have the same rows.
    num_shares = dist.get_world_size() // spec["tp"]
    share = dist.get_rank() // spec["tp"]

    def forward_backward(step):
        rows = data[step].chunk(num_shares)[share]
        logits = model(rows[:, :-1])
        with parallel.loss_context(spec.get("plan")):
            loss = F.cross_entropy(logits.flatten(0, 1), rows[:, 1:].flatten())
            loss.backward()
        return local(loss.detach())

    seconds, optimizer_seconds, cpu_seconds, losses = [], [], [], []
    for step in range(spec["steps"]):
        cpu_begin = time.process_time()
        begin = time.perf_counter()
        optimizer.zero_grad()
        losses.append(forward_backward(step))
        synchronize()
        middle = time.perf_counter()
        optimizer.step()
        synchronize()
        end = time.perf_counter()
        seconds.append(end - begin)
        cpu_seconds.append(time.process_time() - cpu_begin)
        optimizer_seconds.append(end - middle)
    peak = 0 if on_gpu else measure.peak_private_bytes()
    result = {
        "seconds": seconds,
        "optimizer_seconds": optimizer_seconds,
        "losses": [loss.item() for loss in losses],
        "cpu_seconds": cpu_seconds,
        "private_before_bytes": before,
        "private_peak_bytes": peak,
        "device_peak_bytes": torch.cuda.max_memory_allocated() if on_gpu else 0,
        "shard_bytes": sum(local(p).nbytes for p in model.parameters()),
    }
    if (spec["sharded"] or spec["tp"] > 1) and not on_gpu:
        # Measured separately, because looking costs time.
        unsharded = UnshardedBytes(model)
        optimizer.zero_grad()
        with torch_trainer.CountCollectives() as counting, unsharded:
            forward_backward(0)
            optimizer.step()
        result["collectives"] = counting.counts
        result["collective_bytes"] = sum(counting.bytes.values())
        result["unsharded_peak_bytes"] = unsharded.peak
    return result


def main():
    spec = json.loads(pathlib.Path(sys.argv[1]).read_text())
    torch.set_num_threads(1)
    on_gpu = spec["device"] != "cpu"
    dist.init_process_group("cpu:gloo,cuda:nccl" if on_gpu else "gloo")
    result = train(spec)
    out = pathlib.Path(f"{sys.argv[2]}.{os.environ['RANK']}.json")
    out.write_text(json.dumps(result))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
