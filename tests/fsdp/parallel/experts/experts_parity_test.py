# SPDX-License-Identifier: Apache-2.0
"""fsdp and PyTorch train the same mixture of experts, with the same losses, and
each resumes from the other's checkpoint, on the same mesh and on others.
"""

import os
import pathlib
import sys

FSDP = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(FSDP.parent / "interop"), str(FSDP / "parity")]

import harness
from torch.distributed.checkpoint import FileSystemReader

import trainers

HERE = pathlib.Path(__file__).resolve().parent
RANKS, EP = 4, 2
SAVE_STEP, LAST_STEP = 3, 6
TOLERANCE = 1e-12


def train(suite, who, ranks, ep, steps, load="-", save="-"):
    """Losses of the steps of a run."""
    folder = suite.fresh(who)
    out = folder / "losses"
    words = (ep, *steps, load, save)
    if who == "theirs":
        path = os.pathsep.join(sys.path[:2])
        begun = [
            trainers.start(
                folder / "log",
                sys.executable,
                "-B",
                HERE / "torch_moe.py",
                ranks,
                *words,
                out,
                PYTHONPATH=path,
            )
        ]
    else:
        port = str(trainers.held_port())
        begun = [
            trainers.start(
                folder / "log",
                suite.tool.path,
                *words,
                out if rank == 0 else f"{out}.{rank}",
                RANK=str(rank),
                LOCAL_RANK=str(rank),
                WORLD_SIZE=str(ranks),
                MASTER_ADDR="127.0.0.1",
                MASTER_PORT=port,
            )
            for rank in range(ranks)
        ]
    trainers.wait_for(begun)
    return [float(line) for line in out.read_text().split()]


def expect_close(actual, expected):
    harness.expect(len(actual) == len(expected), f"{actual}, not {expected}")
    harness.expect(
        all(abs(a - b) <= TOLERANCE for a, b in zip(actual, expected)),
        f"losses {actual}, not {expected}",
    )


def chunks(path):
    """Every tensor's boxes, with duplicates of replicas left out."""
    metadata = FileSystemReader(path).read_metadata().state_dict_metadata
    return {
        name: sorted({(tuple(c.offsets), tuple(c.sizes)) for c in entry.chunks})
        for name, entry in metadata.items()
        if hasattr(entry, "chunks")
    }


def same_chunks(ours, theirs):
    differing = [n for n in theirs if ours.get(n) != theirs[n]]
    harness.expect(not differing and ours.keys() == theirs.keys(), differing)
    harness.expect("model.layers.0.moe.experts.w1" in theirs, list(theirs))


def main():
    suite = harness.Suite("experts_parity_test")
    losses, paths = {}, {}

    def begin(who):
        paths[who] = suite.scratch / f"checkpoint-{who}"
        losses[who] = train(
            suite, who, RANKS, EP, (0, SAVE_STEP), save=paths[who]
        )

    for who in ("ours", "theirs"):
        if not suite.case(f"{who} trains and saves", begin, who):
            suite.finish()
    suite.case(
        "the same losses", expect_close, losses["ours"], losses["theirs"]
    )
    suite.case(
        "the same chunks", same_chunks, *(chunks(paths[w]) for w in losses)
    )

    expected = train(suite, "ours", 1, 1, (SAVE_STEP, LAST_STEP), paths["ours"])
    for who, other, ranks, ep in (
        ("ours", "theirs", 1, 1),
        ("ours", "theirs", 4, 1),
        ("ours", "theirs", 4, 4),
        ("ours", "theirs", 4, 2),
        ("theirs", "ours", 4, 2),
        ("theirs", "ours", 4, 1),
    ):
        suite.case(
            f"{who} on {ranks} with ep {ep} resumes from {other}",
            lambda: expect_close(
                train(
                    suite, who, ranks, ep, (SAVE_STEP, LAST_STEP), paths[other]
                ),
                expected,
            ),
        )
    suite.finish()


if __name__ == "__main__":
    main()
