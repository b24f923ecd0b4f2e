# SPDX-License-Identifier: Apache-2.0
"""Writes the input of all trainers of the parity test: weights, data, job."""

import json

import cases
import models
import numpy
import torch


def prepare(folder, configs, name, lr=cases.LEARNING_RATE):
    """Writes everything below `folder`; returns the path of the job file."""
    for model_name in sorted({config["model"] for config in configs}):
        write_weights(folder / "init" / model_name, model_name)
    data = folder / f"{name}.tokens"
    steps = max(config["steps"] * config["accumulate"] for config in configs)
    generator = torch.Generator().manual_seed(99)
    torch.randint(
        models.Gpt.vocab_size,
        (steps, cases.BATCH, cases.ROW_LENGTH),
        generator=generator,
    ).numpy().astype(numpy.int64).tofile(data)
    job = {
        "init": str(folder / "init"),
        "data": str(data),
        "batch": cases.BATCH,
        "length": cases.ROW_LENGTH,
        "lr": lr,
        "configs": configs,
    }
    path = folder / f"{name}.json"
    path.write_text(json.dumps(job, indent=1))
    return path


def write_weights(folder, model_name):
    if folder.exists():
        return
    folder.mkdir(parents=True)
    torch.manual_seed(1234)
    for name, parameter in models.make(model_name).named_parameters():
        values = parameter.detach().numpy().astype(numpy.float32)
        values.tofile(folder / f"{name}.bin")
