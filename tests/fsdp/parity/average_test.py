# SPDX-License-Identifier: Apache-2.0
"""Compares averages of weights on 1 to 3 ranks with PyTorch 2.15's AveragedModel.

Python trains the unsharded model and averages it, by an EMA and with equal
weights; fsdp trains and averages the same in shards. Losses, parameters and
averages after 100 steps must agree, and so must the averages' own loss. Then each
resumes from the other's checkpoint, which holds the averages: Python in an
AveragedModel of the whole model, fsdp on other ranks than those that saved. The
figures are written to average.json in Bazel's folder of outputs.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "interop"))

import cases
import harness
import torch
import whole_model

CASES = {
    "ema": {"average": "ema"},
    "mean": {"average": "mean"},
    "ema_float64": {"average": "ema", "dtype": "float64"},
    "mean_float64": {"average": "mean", "dtype": "float64"},
}
# Relative for losses, absolute for parameters and averages. Sums over ranks are
# added in another order.
LOSSES = {"float32": 1e-5, "float64": 1e-12}
PARAMETERS = {"float32": 1e-4, "float64": 1e-12}
RANKS = (1, 2, 3)


def averaged(name, options, **others):
    """The configuration of a run with an average."""
    return cases.config(
        1,
        name,
        **{
            "optimizer": "fused_adamw",
            "steps": cases.FULL_STEPS,
            **options,
            **others,
        },
    )


def compare(suite, report, name, ours, theirs, config):
    suite.case(
        name,
        whole_model.compare,
        report,
        name,
        ours,
        theirs,
        config,
        (LOSSES, PARAMETERS),
    )


def train(suite, report, saved):
    """Returns the folders of results of both."""
    options = {"save_step": cases.SAVE_STEP}
    theirs = whole_model.run_theirs(
        suite,
        "train",
        [
            averaged(name, case, save=str(saved / f"theirs-{name}"), **options)
            for name, case in CASES.items()
        ],
    )
    ours = {}
    for ranks in RANKS:
        configs = [
            averaged(
                name,
                {**case, "mesh": [ranks]},
                save=str(saved / f"ours-{ranks}-{name}"),
                **options,
            )
            for name, case in CASES.items()
        ]
        ours[ranks] = whole_model.run_ours(suite, "train", ranks, configs)
        for config in configs:
            name = config["name"]
            compare(
                suite,
                report,
                f"{name} on {ranks}",
                ours[ranks] / name,
                theirs / name,
                config,
            )
    return ours, theirs


def resume(suite, report, ours, theirs, saved):
    """Each continues the other's training and averages."""
    options = {"first_step": cases.SAVE_STEP}
    wrong = {"lr": cases.WRONG_LEARNING_RATE}
    configs = [
        averaged(name, case, load=str(saved / f"ours-3-{name}"), **options)
        for name, case in CASES.items()
    ]
    python = whole_model.run_theirs(suite, "resume", configs, **wrong)
    for config in configs:
        name = config["name"]
        compare(
            suite,
            report,
            f"Python resumes {name}",
            python / name,
            ours[3] / name,
            config,
        )
    for ranks, saver in ((1, "ours-2"), (2, "theirs"), (3, "theirs")):
        configs = [
            averaged(
                name,
                {**case, "mesh": [ranks]},
                load=str(saved / f"{saver}-{name}"),
                **options,
            )
            for name, case in CASES.items()
        ]
        folder = whole_model.run_ours(suite, "resume", ranks, configs, **wrong)
        for config in configs:
            name = config["name"]
            compare(
                suite,
                report,
                f"fsdp resumes {saver}'s {name} on {ranks}",
                folder / name,
                theirs / name,
                config,
            )


def check_version():
    version = torch.__version__
    harness.expect(version.startswith("2.15."), f"the judge is {version}")


def main():
    suite = harness.Suite("average_test")
    saved = suite.scratch / "checkpoints"
    saved.mkdir()
    report = {}
    if suite.case("PyTorch 2.15", check_version):
        ours, theirs = train(suite, report, saved)
        resume(suite, report, ours, theirs, saved)
    whole_model.write_report(report, "average.json")
    suite.finish()


if __name__ == "__main__":
    main()
