# SPDX-License-Identifier: Apache-2.0
"""fsdp and Python's FSDP2 each resume a training that the other has saved.

Both train and save after some steps; then each resumes from the other's
checkpoint, on the same mesh and on others, with and without tensor parallelism:
model, Adam and plain values. The resuming run begins with other weights and
another learning rate, and must arrive at the losses and parameters of the run
that saved and continued.
"""

import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "interop"))

import cases
import harness
import prepare
import results
import trainers

WHO = ("ours", "theirs")


def other(who):
    return WHO[1 - WHO.index(who)]


def path_of(suite, who, world_size, name):
    return suite.scratch / "checkpoints" / who / f"{world_size}-{name}"


def saved(suite, who, world_size):
    """The configurations of all runs that save on `world_size` ranks."""
    return [
        cases.config(
            world_size,
            name,
            **options,
            save=str(path_of(suite, who, world_size, name)),
            save_step=cases.SAVE_STEP,
        )
        for name, (options, _) in cases.SAVED[world_size].items()
    ]


def sources(who, options):
    """Whose checkpoints to resume: between plans, fsdp's own ones as well."""
    return WHO if who == "ours" and "plan" in options else (other(who),)


def resumed(suite, who, world_size):
    """[(who saved, on how many ranks, under which name, configuration)]"""
    return [
        (
            source,
            before,
            name,
            cases.config(
                world_size,
                f"{source}-{before}-{name}",
                **{**options, "mesh": [world_size], **on[world_size]},
                load=str(path_of(suite, source, before, name)),
                first_step=cases.SAVE_STEP,
            ),
        )
        for before, rows in cases.SAVED.items()
        for name, (options, on) in rows.items()
        if world_size in on
        for source in sources(who, options)
    ]


def run(suite, phase, world_size, configs_of, **options):
    """Runs both at once; who -> folder of results, or None after a failure."""
    jobs = {}
    for who in WHO:
        name = f"{phase}-{who}-{world_size}"
        job = prepare.prepare(suite.scratch, configs_of[who], name, **options)
        jobs[who] = (job, suite.scratch / f"results-{name}")
    trained = suite.case(
        f"{phase} on {world_size}",
        trainers.run_both,
        suite.tool.path,
        *jobs.values(),
        world_size,
    )
    return {who: jobs[who][1] for who in WHO} if trained else None


def tolerance_of(before, config):
    """Allows for the other order of sums on another mesh."""
    same = all(config[key] == before[key] for key in ("mesh", "tp", "plan"))
    if same:
        return results.tolerance_of(config)
    return results.TOLERANCE[config["param_dtype"] or config["dtype"]]


def compare(before, config, begun, gone_on):
    """Compares both runs and prints their differences."""
    figures = results.compare_training(
        gone_on / config["name"],
        begun / before["name"],
        results.DTYPES[config["dtype"]],
        tolerance_of(before, config),
        first_step=config["first_step"],
    )
    print("    ", json.dumps(figures), flush=True)


def main():
    suite = harness.Suite("resume_test")
    for who in WHO:
        (suite.scratch / "checkpoints" / who).mkdir(parents=True)
    begun = {}
    before = {}
    for world_size in cases.SAVED:
        configs = {who: saved(suite, who, world_size) for who in WHO}
        begun[world_size] = run(suite, "save", world_size, configs)
        for config in configs["ours"]:
            before[world_size, config["name"]] = config
    if not all(begun.values()):
        suite.finish()
    worlds = {
        w
        for rows in cases.SAVED.values()
        for _, on in rows.values()
        for w in on
    }
    for world_size in sorted(worlds):
        rows = {who: resumed(suite, who, world_size) for who in WHO}
        gone_on = run(
            suite,
            "resume",
            world_size,
            {who: [config for *_, config in rows[who]] for who in WHO},
            lr=cases.WRONG_LEARNING_RATE,
        )
        for who in WHO if gone_on else ():
            for source, saved_on, name, config in rows[who]:
                suite.case(
                    f"{who} on {world_size} from {source}, {name} on {saved_on}",
                    compare,
                    before[saved_on, name],
                    config,
                    begun[saved_on][source],
                    gone_on[who],
                )
    suite.finish()


if __name__ == "__main__":
    main()
