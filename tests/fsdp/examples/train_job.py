# SPDX-License-Identifier: Apache-2.0
"""Runs train_llama with a small model in any number of processes."""

import os
import pathlib
import subprocess
import sys

TESTING = pathlib.Path(__file__).resolve().parents[2] / "testing"
sys.path.insert(0, str(TESTING))

from held_port import held_port

TRAINER = pathlib.Path(
    os.environ.get("TESSERA_TRAIN_LLAMA", "fsdp/examples/train_llama")
).resolve()
# The model, and the loop.
SMALL = ("--dim=32", "--layers=2", "--ffn-dim=48", "--seq-len=16")
LOOP = ("--batch=4", "--lr=1e-3")


class Job:
    """Running ranks; the output of rank 0 is read line by line."""

    def __init__(self, folder, world_size, *flags, loop=LOOP):
        self.printed = ""
        self.log = folder / "log"
        common = {
            **os.environ,
            "OMP_NUM_THREADS": "1",
            "WORLD_SIZE": str(world_size),
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(held_port()),
        }
        with open(self.log, "w") as log:
            self.ranks = [
                subprocess.Popen(
                    [TRAINER, *SMALL, *loop, "--log-every=1", *flags],
                    cwd=folder,
                    env={**common, "RANK": str(r), "LOCAL_RANK": str(r)},
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE if r == 0 else log,
                    stderr=log,
                    text=True,
                )
                for r in range(world_size)
            ]

    def read_until(self, text):
        """Reads until a line contains `text`."""
        for line in self.ranks[0].stdout:
            self.printed += line
            if text in line:
                return
        raise AssertionError(f"never printed '{text}'\n{self.told()}")

    def end(self, code):
        """Waits until all ranks exit with `code`; returns the output."""
        self.printed += self.ranks[0].stdout.read()
        codes = [rank.wait() for rank in self.ranks]
        if codes != [code] * len(codes):
            raise AssertionError(f"exit codes {codes}\n{self.told()}")
        return self.printed

    def told(self):
        # LibTorch's stack traces would hide the error.
        errors = [
            line
            for line in self.log.read_text(errors="replace").splitlines()
            if not line.startswith("frame #")
        ]
        return self.printed + "\n".join(errors)[-4000:]

    def kill(self):
        for rank in self.ranks:
            rank.kill()
        for rank in self.ranks:
            rank.wait()
        self.ranks[0].stdout.close()
