# SPDX-License-Identifier: Apache-2.0
"""Trains in Python on the whole model, and with fsdp on ranks, and compares."""

import json
import os
import pathlib

import prepare
import results
import trainers


def run_theirs(suite, phase, configs, **options):
    """Python on the whole model; returns the folder of results."""
    name = f"{phase}-theirs"
    whole = [{**config, "mesh": []} for config in configs]
    job = prepare.prepare(suite.scratch, whole, name, **options)
    out = suite.scratch / f"results-{name}"
    trainers.wait_for([trainers.start_theirs(job, 1, out)])
    return out


def run_ours(suite, phase, world_size, configs, **options):
    """fsdp on `world_size` ranks; returns the folder of results."""
    name = f"{phase}-ours-{world_size}"
    job = prepare.prepare(suite.scratch, configs, name, **options)
    out = suite.scratch / f"results-{name}"
    trainers.wait_for(
        trainers.start_ours(suite.tool.path, job, world_size, out)
    )
    return out


def compare(report, name, ours, theirs, config, tolerances):
    """Compares the runs in both folders, and notes their differences.

    `tolerances` are those of losses and of parameters, by dtype.
    """
    losses, parameters = tolerances
    figures = results.compare_training(
        ours,
        theirs,
        results.DTYPES[config["dtype"]],
        losses[config["dtype"]],
        first_step=config["first_step"],
        parameter_tolerance=parameters[config["dtype"]],
    )
    report[name] = figures
    print("    ", json.dumps({name: figures}), flush=True)


def write_report(report, name):
    """Writes the figures into Bazel's folder of outputs."""
    outputs = os.environ.get("TEST_UNDECLARED_OUTPUTS_DIR")
    if outputs:
        path = pathlib.Path(outputs) / name
        path.write_text(json.dumps(report, indent=1))
