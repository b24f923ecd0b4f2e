# SPDX-License-Identifier: Apache-2.0
"""fsdp and PyTorch train a model in two stages, each sharded over two ranks,
with the same losses and norms of gradients, and each resumes from the other's
checkpoint, also in one stage.
"""

import os
import pathlib
import sys

FSDP = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(FSDP.parent / "interop"), str(FSDP / "parity")]

import harness

import trainers

HERE = pathlib.Path(__file__).resolve().parent
TOLERANCE = 1e-10


def train(suite, who, ranks, pp, steps, load="-", save="-"):
    """[loss, norm of the gradients] of each step."""
    folder = suite.fresh(who)
    out = folder / "numbers"
    words = (pp, *steps, load, save)
    if who == "theirs":
        begun = [
            trainers.start(
                folder / "log",
                sys.executable,
                "-B",
                HERE / "torch_pipeline.py",
                ranks,
                *words,
                out,
                PYTHONPATH=os.pathsep.join(sys.path[:2]),
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
    lines = out.read_text().splitlines()
    return [[float(word) for word in line.split()] for line in lines]


def expect_equal(actual, expected):
    harness.expect(
        len(actual) == len(expected) > 0
        and all(
            abs(a - b) <= TOLERANCE * abs(b)
            for mine, theirs in zip(actual, expected)
            for a, b in zip(mine, theirs)
        ),
        f"{actual}\nis not\n{expected}",
    )


def main():
    suite = harness.Suite("pipeline_parity_test")
    ours, theirs = suite.scratch / "ours", suite.scratch / "theirs"
    first = train(suite, "ours", 4, 2, (0, 3), save=ours)
    second = train(suite, "ours", 4, 2, (3, 5), load=ours)

    def one_process():
        expect_equal(train(suite, "ours", 1, 1, (0, 3)), first)

    def from_ours(who, ranks, pp, save="-"):
        expect_equal(train(suite, who, ranks, pp, (3, 5), ours, save), second)

    def from_theirs(ranks, pp, expected):
        expect_equal(train(suite, "ours", ranks, pp, (5, 7), theirs), expected)

    suite.case("one process", one_process)
    suite.case("PyTorch resumes on 2 x 2", from_ours, "theirs", 4, 2, theirs)
    suite.case("PyTorch resumes in one stage", from_ours, "theirs", 2, 1)
    suite.case("fsdp resumes in one stage", from_ours, "ours", 2, 1)
    expected = train(suite, "theirs", 4, 2, (5, 7), load=theirs)
    suite.case("fsdp resumes PyTorch's on 2 x 2", from_theirs, 4, 2, expected)
    suite.case("fsdp resumes PyTorch's on one", from_theirs, 1, 1, expected)
    suite.finish()


if __name__ == "__main__":
    main()
