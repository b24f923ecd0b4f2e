# SPDX-License-Identifier: Apache-2.0
"""Compares fsdp's Muon on 1 to 4 ranks with torch.optim.Muon on a whole model.

Python trains the unsharded model with torch.optim.Muon for the matrices within
layers and AdamW for the rest; fsdp trains the same with MuonWithAdamW, sharded.
Losses and parameters after 100 steps must agree. Then each resumes from the
other's checkpoint, which holds momentum and moments: Python on the whole model,
fsdp on other ranks than those that saved. The figures are written to muon.json
in Bazel's folder of outputs.
"""

import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "interop"))

import cases
import harness
import whole_model

CASES = {
    "original": {},
    "match_rms": {"adjust_lr_fn": "match_rms_adamw", "nesterov": False},
    "float64": {"dtype": "float64", "adjust_lr_fn": "match_rms_adamw"},
}
# Relative.
LOSSES = {"float32": 1e-5, "float64": 1e-12}
# Absolute. The last bit of a float32 gradient depends on the order of sums, and
# may change a number that is rounded to bfloat16. A step moves parameters by up
# to 1e-3.
PARAMETERS = {"float32": 1e-3, "float64": 1e-12}
MESHES = {1: [[1]], 2: [[2]], 3: [[3]], 4: [[4], [2, 2]]}


def muon(name, options, **others):
    """The configuration of a run with Muon."""
    return cases.config(
        1,
        name,
        **{"optimizer": "muon", "steps": cases.FULL_STEPS, **options, **others},
    )


def compare_with_whole(suite, report, theirs, saved):
    """Trains on every mesh; on three ranks it saves too."""
    folders = {}
    for world_size, meshes in MESHES.items():
        configs = [
            muon(f"{name}-{len(mesh)}", {**options, "mesh": mesh})
            for name, options in CASES.items()
            for mesh in meshes
        ]
        if world_size == 3:
            for config in configs:
                config["save"] = str(saved / f"ours-{config['name']}")
                config["save_step"] = cases.SAVE_STEP
        folders[world_size] = whole_model.run_ours(
            suite, "train", world_size, configs
        )
        for config in configs:
            case = config["name"].split("-")[0]
            suite.case(
                f"{config['name']} on {world_size}",
                whole_model.compare,
                report,
                f"{config['name']} on {world_size}",
                folders[world_size] / config["name"],
                theirs / case,
                config,
                (LOSSES, PARAMETERS),
            )
    return folders


def resume(suite, report, theirs, ours, saved):
    """Each continues the other's training, with a learning rate from there."""
    load = {"first_step": cases.SAVE_STEP}
    wrong = {"lr": cases.WRONG_LEARNING_RATE}
    from_ours = [
        muon(name, options, load=str(saved / f"ours-{name}-1"), **load)
        for name, options in CASES.items()
    ]
    from_theirs = [
        muon(
            name,
            {**options, "mesh": [2, 2]},
            load=str(saved / f"theirs-{name}"),
            **load,
        )
        for name, options in CASES.items()
    ]
    python = whole_model.run_theirs(suite, "resume", from_ours, **wrong)
    fsdp = whole_model.run_ours(suite, "resume", 4, from_theirs, **wrong)
    for config in from_ours:
        name = config["name"]
        suite.case(
            f"Python resumes {name}",
            whole_model.compare,
            report,
            f"Python resumes {name}",
            python / name,
            ours[3] / f"{name}-1",
            config,
            (LOSSES, PARAMETERS),
        )
    for config in from_theirs:
        name = config["name"]
        suite.case(
            f"fsdp resumes {name}",
            whole_model.compare,
            report,
            f"fsdp resumes {name}",
            fsdp / name,
            theirs / name,
            config,
            (LOSSES, PARAMETERS),
        )


def main():
    suite = harness.Suite("muon_test")
    saved = suite.scratch / "checkpoints"
    saved.mkdir()
    report = {}
    theirs = whole_model.run_theirs(
        suite,
        "train",
        [
            muon(
                name,
                options,
                save=str(saved / f"theirs-{name}"),
                save_step=cases.SAVE_STEP,
            )
            for name, options in CASES.items()
        ],
    )
    ours = compare_with_whole(suite, report, theirs, saved)
    resume(suite, report, theirs, ours, saved)
    whole_model.write_report(report, "muon.json")
    suite.finish()


if __name__ == "__main__":
    main()
