# SPDX-License-Identifier: Apache-2.0
"""Saves and resumes a training by torch_trainer, as users would.

A checkpoint has "model", "optim" and plain values. Its name ends in "-full" if
it was saved from whole tensors: by PyTorch as a file of torch.save, by
parity_trainer as a DCP folder that only rank 0 wrote. It ends in ".pt" if it is
one file: PyTorch saves it from whole tensors, parity_trainer from shards. With
an average of the weights there is "average", the state of an AveragedModel.
"""

import pathlib

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.checkpoint.state_dict import set_state_dict
from torch.distributed.checkpoint.state_dict import StateDictOptions

NOTE = "n\u00f6te"


def save(path, step, model, optimizer, average=None):
    full = path.endswith(("-full", ".pt"))
    options = StateDictOptions(full_state_dict=full, cpu_offload=full)
    parts = get_state_dict(model, optimizer, options=options)
    state = dict(zip(("model", "optim"), parts))
    state["train"] = {"step": step, "note": NOTE}
    if average is not None:
        state["average"] = average.state_dict()
    if not full:
        dcp.save(state, checkpoint_id=path)
    elif dist.get_rank() == 0:
        torch.save(state, path)
    dist.barrier()


def load(path, step, model, optimizer, average=None):
    is_file = path.endswith(".pt")
    if is_file:
        state = torch.load(path, map_location="cpu", weights_only=True)
    else:
        assert pathlib.Path(path).is_dir(), path
        parts = get_state_dict(model, optimizer)
        state = dict(zip(("model", "optim"), parts))
        state["train"] = {"step": 0, "note": ""}
        if average is not None:
            state["average"] = average.state_dict()
        dcp.load(state, checkpoint_id=path)
    set_state_dict(
        model,
        optimizer,
        model_state_dict=state["model"],
        optim_state_dict=state["optim"],
        options=StateDictOptions(full_state_dict=is_file),
    )
    if average is not None:
        average.load_state_dict(state["average"])
    assert state["train"] == {"step": step, "note": NOTE}, state["train"]
