# SPDX-License-Identifier: Apache-2.0
"""Runs a program as two ranks of one job on this machine, for tools/gpu_check.

    python ranks.py PROGRAM ARGUMENT...

Prints what rank 0 prints. Ends as soon as a rank fails, with its exit code,
because the other would wait for it.
"""

import os
import pathlib
import subprocess
import sys

BENCH = pathlib.Path(__file__).resolve().parents[2] / "bench"
sys.path.insert(0, str(BENCH))

import measure

NUM_RANKS = 2


def start(command):
    common = {
        **os.environ,
        "OMP_NUM_THREADS": "1",
        "WORLD_SIZE": str(NUM_RANKS),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(measure.held_port()),
    }
    return [
        subprocess.Popen(
            command,
            env={**common, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=None if rank == 0 else sys.stderr,
        )
        for rank in range(NUM_RANKS)
    ]


def main():
    ranks = start(sys.argv[1:])
    for _ in ranks:
        _, status = os.wait()
        code = os.waitstatus_to_exitcode(status)
        if code != 0:
            for rank in ranks:
                rank.kill()
            sys.exit(code if code > 0 else 128 - code)


if __name__ == "__main__":
    main()
