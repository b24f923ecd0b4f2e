# SPDX-License-Identifier: Apache-2.0
"""tools/gpu_check on a simulated machine: packed from programs that are built,
unpacked in another folder, and run on the CPU, without Bazel in the path and
with the libraries of the judge's PyTorch."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import tarfile

sys.path.insert(0, str(pathlib.Path("tests/interop").absolute()))

from harness import Suite, expect

REQUIRE_A_GPU = {"nccl_test", "cuda_test"}
# What the script itself calls.
COMMANDS = ("bash", "dirname")


class Machine:
    """A folder with the unpacked file, and a path of few commands."""

    def __init__(self, tool, scratch):
        self.tool = tool
        self.scratch = scratch
        self.out = scratch / "out"
        commands = scratch / "bin"
        commands.mkdir()
        for name in COMMANDS:
            (commands / name).symlink_to(shutil.which(name))
        self.env = {
            "PATH": str(commands),
            "HOME": str(scratch),
            "TESSERA_PYTHON": sys.executable,
        }

    def unpack(self):
        packed = self.scratch / "packed.tar.xz"
        self.tool("--pack", packed, "--programs", pathlib.Path.cwd())
        with tarfile.open(packed) as archive:
            archive.extractall(self.scratch)

    def run(self, *options, **changes):
        tool = self.scratch / "tessera-gpu-check/tools/gpu_check"
        return subprocess.run(
            [shutil.which("bash"), tool, "--out", self.out, *options],
            env={**self.env, **changes},
            cwd=self.scratch,
            capture_output=True,
            text=True,
            timeout=240,
        )

    def report(self):
        return json.loads((self.out / "gpu_check.json").read_text())


def check_verdicts(machine):
    done = machine.run("--cpu")
    expect(done.returncode == 0, done.stdout + done.stderr)
    steps = machine.report()["steps"]
    expect(REQUIRE_A_GPU < set(steps), f"the steps are {list(steps)}")
    for name, step in steps.items():
        wanted = "skipped" if name in REQUIRE_A_GPU else "ok"
        expect(step["verdict"] == wanted, f"{name}: {step}")
        expect(f"| {name} | " in done.stdout, f"{name} is not in the table")
    table = (machine.out / "gpu_check.md").read_text()
    expect(table == done.stdout, "gpu_check.md is not what was printed")


def check_libraries(machine):
    """The programs used the LibTorch of this Python, not of the build."""
    import torch

    wanted = os.path.realpath(torch.__path__[0])
    steps = machine.report()["steps"].values()
    found = [step["libtorch"] for step in steps if "libtorch" in step]
    expect(len(found) == 7, f"{len(found)} steps say where LibTorch is")
    for path in found:
        real = os.path.realpath(path)
        expect(real.startswith(wanted + "/"), f"LibTorch is {real}")


def check_traces(machine):
    for name in ("fsdp_trace.json", "profile.json"):
        trace = json.loads((machine.out / name).read_text())
        expect(trace["traceEvents"], f"{name} has no events")


def check_without_gpu(machine):
    done = machine.run(CUDA_VISIBLE_DEVICES="")
    expect(done.returncode == 1, f"code {done.returncode}")
    expect("no GPU; --cpu runs" in done.stderr, done.stderr)


def main():
    suite = Suite("gpu_check")
    machine = Machine(suite.tool, suite.fresh())
    suite.case("packs", machine.unpack)
    suite.case("every step has its verdict", check_verdicts, machine)
    suite.case("the other LibTorch is loaded", check_libraries, machine)
    suite.case("traces are written", check_traces, machine)
    suite.case("without a GPU it says so", check_without_gpu, machine)
    suite.finish()


if __name__ == "__main__":
    main()
