# SPDX-License-Identifier: Apache-2.0
"""Compares fsdp with Python's FSDP2 on the same weights and data.

For each configuration of cases.py both train on the same number of ranks over
Gloo. Both must place every parameter alike and make as many collectives of
each kind in a step, except for those that a case says are saved. The gradients
of the first step must be equal bit for bit, and so must losses and final
parameters after up to 100 steps of the fused AdamW; after Adam they must agree
within TOLERANCE, because LibTorch's Adam rounds differently from Python's.
Under tensor parallelism nothing is bit for bit: see results.py. The figures are
written to parity.json in Bazel's folder of outputs.
"""

import json
import os
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "interop"))

import cases
import harness
import prepare
import results
import trainers
from harness import expect


def compare_gradients(ours, theirs, dtype, tolerance):
    """Bit for bit, or within the tolerance relative to a gradient's largest."""
    ours, theirs = (results.values(f, "grad.", dtype) for f in (ours, theirs))
    expect(ours and ours.keys() == theirs.keys(), "gradients of other names")
    differences = {
        name: abs(ours[name] - theirs[name]).max()
        for name in theirs
        if ours[name].tobytes() != theirs[name].tobytes()
    }
    harness.expect_no_lines(
        [
            f"gradient of {name}: {(ours[name] != theirs[name]).sum()} of "
            f"{theirs[name].size} differ, by up to {difference}"
            for name, difference in differences.items()
            if not difference <= tolerance * abs(theirs[name]).max()
        ]
    )


def compare_counts(ours, theirs, saved):
    ours, theirs = results.read(ours, theirs, "counts")
    expected = {kind: num - saved.get(kind, 0) for kind, num in theirs.items()}
    expect(
        ours == expected,
        f"collectives of a step: {ours}, PyTorch's: {theirs}"
        + (f" less {saved}" if saved else ""),
    )
    return {"ours": ours, "pytorch": theirs}


def compare_placements(ours, theirs):
    ours, theirs = results.read(ours, theirs, "placements")
    expect(ours and ours.keys() == theirs.keys(), "parameters of other names")
    harness.expect_no_lines(
        [
            f"{name} is {ours[name]}, in PyTorch {theirs[name]}"
            for name in theirs
            if ours[name] != theirs[name]
        ]
    )


def compare(config, ours, theirs, figures):
    dtype = results.DTYPES[config["dtype"]]
    ours, theirs = ours / config["name"], theirs / config["name"]
    compare_placements(ours, theirs)
    figures["collectives"] = compare_counts(ours, theirs, config["saved"])
    # Ours may have a few more: parts are aligned in the buffer of a gather.
    figures["bytes"] = dict(
        zip(("ours", "pytorch"), results.read(ours, theirs, "bytes"))
    )
    compare_gradients(
        ours, theirs, dtype, results.gradient_tolerance_of(config)
    )
    figures["difference"] = results.compare_training(
        ours, theirs, dtype, results.tolerance_of(config)
    )


def train(suite, world_size, configs):
    """Returns the folders of both results, or None after a failure."""
    ours = suite.scratch / f"ours-{world_size}"
    theirs = suite.scratch / f"theirs-{world_size}"
    job = prepare.prepare(suite.scratch, configs, f"job-{world_size}")

    trained = suite.case(
        f"train on {world_size}",
        trainers.run_both,
        suite.tool.path,
        (job, ours),
        (job, theirs),
        world_size,
    )
    return (ours, theirs) if trained else None


def compare_all(suite, all_cases):
    report = {}
    for world_size, configs in all_cases.items():
        folders = train(suite, world_size, configs)
        for config in configs if folders else ():
            name = f"{config['name']} on {world_size}"
            figures = report[name] = {"steps": config["steps"]}
            suite.case(name, compare, config, *folders, figures)
            print("    ", json.dumps(figures), flush=True)
    outputs = os.environ.get("TEST_UNDECLARED_OUTPUTS_DIR")
    if outputs:
        path = pathlib.Path(outputs) / "parity.json"
        path.write_text(json.dumps(report, indent=1))
    suite.finish()


if __name__ == "__main__":
    compare_all(harness.Suite("parity_test"), cases.CASES)
