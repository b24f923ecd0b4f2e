# SPDX-License-Identifier: Apache-2.0
"""Every malformed checkpoint is refused as its manifest says."""

import json
import os
import re
import shutil

import judge
import torch
from harness import (
    BAD_SOURCE,
    DONE,
    FOUND,
    REFUSED,
    UNCHECKED,
    Suite,
    expect,
    run_script,
)

# The memory that a process may take; the largest input has a few MB.
ADDRESS_SPACE = 1 << 30
MEMORY = ["--max-memory", "64MiB", "--lanes", "1"]
# Longer messages repeat what a file says instead of naming it.
MAX_MESSAGE_BYTES = 4096
# A file inside the checkpoint.
DATA_FILE = re.compile(r"[\w-]*\.(distcp|metadata|safetensors|json)\b")
CODES = {
    "accept": {DONE},
    "reject": {BAD_SOURCE},
    "either": {DONE, BAD_SOURCE},
    "refuse": {REFUSED},
}


def expect_polite(process, case):
    """Checks for every run: one of our exit codes, and a readable message."""
    expect(process.returncode >= 0, f"killed by signal {-process.returncode}")
    for stream in (process.stdout, process.stderr):
        raw = [c for c in (b"\x1b", b"\x07", b"\0") if c in stream]
        expect(not raw, f"control characters {raw} of the input are printed")
    if process.returncode == BAD_SOURCE:
        message = process.stderr.decode(errors="replace")
        named = case["path"] in message or DATA_FILE.search(message)
        expect(named, f"no file is named: {message[:300]}")
        expect(
            len(process.stderr) <= MAX_MESSAGE_BYTES,
            f"a message of {len(process.stderr)} bytes",
        )


def expect_code(process, codes):
    expect(
        process.returncode in codes,
        f"ended with {process.returncode}, not {sorted(codes)}: "
        + process.stderr.decode(errors="replace")[:600],
    )


class Runner:
    def __init__(self, suite, folder):
        self.suite = suite
        self.folder = folder
        self.cwd = suite.fresh("cwd")
        self.out = suite.fresh("out")

    def run(self, *arguments):
        process = self.suite.tool.run(
            *arguments, address_space=ADDRESS_SPACE, cwd=self.cwd
        )
        created = os.listdir(self.cwd)
        expect(not created, f"created in the working directory: {created}")
        return process

    def inspect(self, case):
        process = self.run("inspect", self.folder / case["path"], "--chunks")
        expect_polite(process, case)
        # The index alone may be sound.
        expect_code(process, {DONE, BAD_SOURCE})

    def verify(self, case):
        path = self.folder / case["path"]
        process = self.run("verify", path, "--max-memory", "64MiB")
        expect_polite(process, case)
        wanted = case.get("verify", case["expect"])
        codes = CODES[wanted] | {FOUND if wanted != "accept" else UNCHECKED}
        if wanted == "either":
            codes.add(UNCHECKED)
        expect_code(process, codes)

    def convert(self, case, name):
        target = self.out / (case["name"] + "-" + name)
        self.clear()
        process = self.run(
            "convert", self.folder / case["path"], target, *MEMORY
        )
        expect_polite(process, case)
        wanted = case.get("convert", case["expect"])
        if name == "out":
            wanted = case.get("to_dcp", wanted)
        expect_code(process, CODES[wanted])
        if process.returncode != DONE:
            left = self.clear()
            expect(not left, f"refused, but it left {left}")
            said = process.stderr.decode(errors="replace")
            expect(case.get("says", "") in said, f"says only: {said[:600]}")
            return
        if case["kind"] == "dcp" and case["expect"] == "accept":
            self.expect_base_values(target)

    @staticmethod
    def expect_base_values(target):
        # An accepted file holds no foreign code except numpy scalars, which
        # weights_only refuses.
        flat = judge.load_flat(str(target), weights_only=False)
        tensors = [v for v in flat.values() if isinstance(v, torch.Tensor)]
        want = torch.arange(12.0).reshape(4, 3)
        expect(len(tensors) == 1, f"{len(tensors)} tensors")
        expect(torch.equal(tensors[0], want), f"values {tensors[0]}")

    def clear(self):
        """Empties the output folder; returns its former contents."""
        left = os.listdir(self.out)
        if left:
            shutil.rmtree(self.out)
            self.out.mkdir()
        return left


def main():
    suite = Suite("malformed")
    folder = suite.fresh("malformed")
    run_script("malformed/make_malformed.py", "--out", folder)
    with open(folder / "manifest.json") as f:
        manifest = json.load(f)
    runner = Runner(suite, folder)
    for case in manifest:
        name = case["name"]
        suite.case(f"{name}: inspect", runner.inspect, case)
        suite.case(f"{name}: verify", runner.verify, case)
        suite.case(f"{name}: to pt", runner.convert, case, "out.pt")
        if case["kind"] == "dcp":
            suite.case(f"{name}: to dcp", runner.convert, case, "out")
    suite.finish()


if __name__ == "__main__":
    main()
