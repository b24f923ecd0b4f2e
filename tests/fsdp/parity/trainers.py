# SPDX-License-Identifier: Apache-2.0
"""Runs the trainers of both sides; each rank of ours is a process."""

import os
import pathlib
import subprocess
import sys
import time

from harness import expect

HERE = pathlib.Path(__file__).resolve().parent
sys.path.append(str(HERE.parents[1] / "testing"))

from held_port import held_port

# Reached only if ranks hang.
HANG_SECONDS = 600
COMMON = {"OMP_NUM_THREADS": "1"}


def wait_for(processes):
    """Ends all if one fails, because the others would wait for it.

    Each is (process, its log).
    """
    deadline = time.monotonic() + HANG_SECONDS
    running = list(processes)
    try:
        while running:
            process, log = running[0]
            expect(time.monotonic() < deadline, f"hangs\n{tail(log)}")
            try:
                process.wait(timeout=0.2)
            except subprocess.TimeoutExpired:
                pass
            for process, log in list(running):
                code = process.poll()
                if code is not None:
                    running.remove((process, log))
                    expect(code == 0, f"exit code {code}\n{tail(log)}")
    finally:
        for process, _ in processes:
            process.kill()
            process.wait()


def tail(log):
    lines = log.read_text(errors="replace").splitlines()
    # LibTorch's stack traces would hide the error.
    lines = [line for line in lines if not line.startswith("frame #")]
    return "\n".join(lines)[-4000:]


def start(log, *arguments, **environment):
    """(process, its log), to which it appends."""
    with open(log, "a") as output:
        process = subprocess.Popen(
            [str(word) for word in arguments],
            env={**os.environ, **COMMON, **environment},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
    return process, log


def start_ours(tool, job, world_size, out):
    out.mkdir()
    common = {
        "WORLD_SIZE": str(world_size),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(held_port()),
    }
    return [
        start(
            out / "log",
            tool,
            job,
            out,
            RANK=str(r),
            LOCAL_RANK=str(r),
            **common,
        )
        for r in range(world_size)
    ]


def start_theirs(job, world_size, out):
    out.mkdir()
    script = HERE / "torch_trainer.py"
    return start(
        out / "log", sys.executable, "-B", script, job, world_size, out
    )


def run_both(tool, ours, theirs, world_size):
    """Runs both at once, because ranks mostly wait for each other. `ours` and
    `theirs` are (job file, folder of results)."""
    begun = [start_theirs(theirs[0], world_size, theirs[1])]
    begun += start_ours(tool, ours[0], world_size, ours[1])
    wait_for(begun)
