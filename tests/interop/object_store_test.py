# SPDX-License-Identifier: Apache-2.0
"""PyTorch and dcp-convert read each other's checkpoints in an object store,
also when the server or the program is killed while it writes."""

import os
import shutil
import subprocess

import torch
import torch.distributed.checkpoint as dcp
from conversions import Checkpoint, check_to_pt, expect_content
from harness import (
    BAD_DESTINATION,
    DONE,
    FOUND,
    HANG_SECONDS,
    HERE,
    Suite,
    expect,
    expectations,
)
from judge import load_dcp_nested
from object_server import ObjectServer
from torch.distributed.checkpoint._fsspec_filesystem import FsspecWriter
from values import describe_flat

# Large enough for a file of several parts.
LARGE_ELEMENTS = 4 << 20


class Trial:
    """The program, the server, and the checkpoints of the cases."""

    def __init__(self, suite):
        self.suite = suite
        self.tool = suite.tool
        self.server = ObjectServer()

    def golden(self):
        """Checkpoints that PyTorch wrote on two ranks, by their names."""
        copy = self.suite.fresh("golden") / "torch-2.11"
        shutil.copytree(HERE.parent / "golden" / "torch-2.11", copy)
        return {
            expected["case"]: Checkpoint(path, expected)
            for path, expected in expectations(copy)
        }

    def large(self, seed):
        """A checkpoint of four tensors of 16 MiB each."""
        torch.manual_seed(seed)
        state = {f"w{i}": torch.rand(4, LARGE_ELEMENTS // 4) for i in range(4)}
        path = self.suite.fresh("large")
        dcp.save(state, checkpoint_id=path, no_dist=True)
        tensors, objects = describe_flat(state)
        return Checkpoint(path, {"tensors": tensors, "objects": objects})

    def put(self, source, url, *options):
        self.tool("convert", source.path, url, "--to", "dcp", *options)

    def start_to_put(self, source, url, *options):
        """A conversion to two files, after one of them has begun."""
        begun = self.server.uploads(url)
        expect(not begun, f"an earlier case began {begun}")
        # One connection is slow enough to be met in the middle.
        environment = dict(os.environ, TESSERA_S3_CONNECTIONS="1")
        arguments = ["reshard", source.path, url, "--mesh", "shard=2"]
        process = subprocess.Popen(
            [self.tool.path, *map(str, arguments), *options],
            env=environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        )
        while not self.server.uploads(url):
            expect(process.poll() is None, "ended before anything was seen")
        return process

    def expect_stored(self, source, url):
        expect_content(url, "dcp", source.tensors, source.objects)
        self.tool("verify", url)


def check_torch_reads(trial, source, url):
    """Also what replaced another checkpoint."""
    trial.put(source, url, "--overwrite")
    trial.expect_stored(source, url)
    trial.tool("diff", source.path, url)


def check_torch_writes(trial, source, url, out, **layout):
    writer = FsspecWriter(url, **layout)
    state = load_dcp_nested(str(source.path))
    dcp.save(state, storage_writer=writer, no_dist=True)
    trial.tool("verify", url)
    trial.tool("diff", source.path, url)
    stored = Checkpoint(url, source.expected)
    check_to_pt(trial.tool, stored, out)


def check_flipped_bit(trial, source, url):
    trial.put(source, url)
    files = trial.server.files
    (name,) = files.glob(f"{url}/*.distcp")
    data = bytearray(files.cat_file(name))
    data[len(data) // 3] ^= 1  # inside a tensor
    files.pipe_file(name, bytes(data))
    trial.tool("verify", url, code=FOUND)


def check_killed_gateway(trial, old, new, url):
    """The conversion survives it, or says that it failed; PyTorch then sees
    one of the two checkpoints, and never a mixture."""
    trial.put(old, url)
    process = trial.start_to_put(new, url, "--overwrite")
    expect(process.poll() is None, "ended before the gateway was killed")
    trial.server.restart_gateway()
    message = process.communicate(timeout=HANG_SECONDS)[1].decode()
    if process.returncode == DONE:
        trial.expect_stored(new, url)
        return
    expect(
        process.returncode == BAD_DESTINATION and url in message,
        f"ended with {process.returncode}: {message}",
    )
    trial.expect_stored(old, url)


def check_killed_program(trial, old, new, url):
    """The old checkpoint stays until the new one is complete."""
    trial.put(old, url)
    process = trial.start_to_put(new, url, "--overwrite")
    process.kill()
    process.communicate()
    expect(process.returncode < 0, "ended before it was killed")
    trial.expect_stored(old, url)
    trial.put(new, url, "--overwrite")
    trial.expect_stored(new, url)


def check_killed_at_first(trial, source, url):
    """There is nothing to load until all of it is there."""
    process = trial.start_to_put(source, url)
    process.kill()
    process.communicate()
    expect(process.returncode < 0, "ended before it was killed")
    there = trial.server.files.exists(f"{url}/.metadata")
    expect(not there, "there is an index of what was not written")


def run_cases(suite, trial):
    url = trial.server.url
    golden = trial.golden()
    sharded, train = golden["sharded"], golden["train"]
    old, new = trial.large(1), trial.large(2)
    out = suite.fresh("out")

    def case(name, function, *arguments, **options):
        suite.case(name, lambda: function(trial, *arguments, **options))

    case("torch reads", check_torch_reads, sharded, url("read"))
    case("torch reads what replaced it", check_torch_reads, train, url("read"))
    case(
        "torch writes",
        check_torch_writes,
        train,
        url("by/torch"),
        out / "a.pt",
    )
    case(
        "torch writes a file per item",
        check_torch_writes,
        sharded,
        url("by/items"),
        out / "b.pt",
        single_file_per_rank=False,
        thread_count=2,
    )
    case("flipped bit", check_flipped_bit, new, url("flipped"))
    case("killed program", check_killed_program, old, new, url("program"))
    case("killed at first", check_killed_at_first, new, url("first"))
    case("killed gateway", check_killed_gateway, old, new, url("gateway"))


def main():
    suite = Suite("object_store")
    trial = Trial(suite)
    try:
        run_cases(suite, trial)
    finally:
        trial.server.stop()
    suite.finish()


if __name__ == "__main__":
    main()
