# SPDX-License-Identifier: Apache-2.0
"""Kills, full disks, forks, threads and Ctrl-C."""

import os
import signal
import subprocess
import sys
import time

import pytest
import torch
import torch.distributed.checkpoint as dcp

import tessera
import tessera.torch
from conftest import assert_same
from conftest import assert_threads_read
from conftest import blank

SAVE_FOREVER = """
import sys, torch, tessera.torch
import torch.distributed.checkpoint as dcp
step = 0
while True:
    step += 1
    state = {"w": torch.full((1 << 20,), float(step)), "step": step}
    dcp.save(state, storage_writer=tessera.torch.Writer(sys.argv[1]))
    print(step, flush=True)
"""


def test_a_process_that_is_killed_leaves_a_whole_checkpoint(tmp_path):
    for kill_after in (1, 2, 3):
        process = subprocess.Popen(
            [sys.executable, "-c", SAVE_FOREVER, tmp_path / "c"],
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(kill_after):
            process.stdout.readline()
        process.kill()
        process.wait()
        process.stdout.close()
        found = {"w": torch.zeros(1 << 20), "step": 0}
        dcp.load(
            found,
            storage_reader=tessera.torch.Reader(tmp_path / "c", verify=True),
        )
        assert found["step"] >= kill_after
        assert (found["w"] == found["step"]).all()


def test_a_file_that_cannot_be_written_keeps_the_old_one(state, tmp_path):
    path = tmp_path / "c"
    dcp.save(state, storage_writer=tessera.torch.Writer(path))
    code = """
import resource, signal, sys, torch, tessera, tessera.torch
import torch.distributed.checkpoint as dcp
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
try:
    dcp.save({"w": torch.ones(1 << 20)}, storage_writer=tessera.torch.Writer(sys.argv[1]))
except dcp.api.CheckpointException as raised:
    (failure,) = raised.failures.values()
    assert isinstance(failure[0], tessera.Error), failure
else:
    raise AssertionError("the save succeeded")
"""
    subprocess.run([sys.executable, "-c", code, path], check=True)
    found = blank(state)
    dcp.load(found, storage_reader=tessera.torch.Reader(path, verify=True))
    assert_same(found, state)
    assert len(list(path.glob("*.distcp"))) == 1


def test_memory_that_the_system_does_not_give_is_an_error(tmp_path):
    state = {"w": torch.ones(8 << 20)}
    dcp.save(state, storage_writer=tessera.torch.Writer(tmp_path / "c"))
    code = """
import pathlib, re, resource, sys, torch, tessera, tessera.torch
import torch.distributed.checkpoint as dcp
state = {"w": torch.zeros(8 << 20)}
reader = tessera.torch.Reader(sys.argv[1], memory="64MiB")
reader.read_metadata()
status = pathlib.Path("/proc/self/status").read_text()
used = int(re.search("VmSize:\\s*([0-9]+)", status)[1]) * 1024
# Enough for a thread, not for the blocks that the read takes.
resource.setrlimit(resource.RLIMIT_AS, (used + (32 << 20),) * 2)
try:
    dcp.load(state, storage_reader=reader)
except dcp.api.CheckpointException as raised:
    (failure,) = raised.failures.values()
    assert isinstance(failure[0], tessera.ResourceExhaustedError), failure
    assert "does not provide" in str(failure[0]), failure
else:
    raise AssertionError("the load succeeded")
"""
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, tmp_path / "c"], check=True
    )


def test_threads_read_one_checkpoint(state, tmp_path):
    dcp.save(state, storage_writer=tessera.torch.Writer(tmp_path / "c"))
    checkpoint = tessera.open(tmp_path / "c")
    weight = state["model"]["layers.0.weight"]
    assert_threads_read(checkpoint, "model.layers.0.weight", weight)


def test_a_fork_opens_its_own(state, tmp_path):
    dcp.save(state, storage_writer=tessera.torch.Writer(tmp_path / "c"))
    code = """
import os, sys, tessera
here = tessera.open(sys.argv[1])
here["model.layers.0.weight"].torch()
child = os.fork()
if child == 0:
    own = tessera.open(sys.argv[1])
    ok = own["model.layers.0.weight"].torch().shape == (7, 5)
    del here
    os._exit(0 if ok else 1)
_, status = os.waitpid(child, 0)
assert status == 0
here["model.layers.0.weight"].torch()
"""
    subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, tmp_path / "c"], check=True
    )


def test_ctrl_c_ends_a_save_and_leaves_nothing(tmp_path):
    # A test that was started in the background ignores SIGINT otherwise.
    code = """
import signal, sys, torch, tessera.torch
import torch.distributed.checkpoint as dcp
signal.signal(signal.SIGINT, signal.default_int_handler)
writer = tessera.torch.Writer(sys.argv[1], max_rate="1MB")
print("begins", flush=True)
dcp.save({"w": torch.ones(16 << 20)}, storage_writer=writer)
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code, tmp_path / "c"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    process.stdout.readline()
    deadline = time.monotonic() + 60
    while not list((tmp_path / "c").glob("*.distcp")):
        assert time.monotonic() < deadline
        os.sched_yield()
    process.send_signal(signal.SIGINT)
    _, errors = process.communicate(timeout=60)
    assert process.returncode != 0
    assert "KeyboardInterrupt" in errors
    assert not list((tmp_path / "c").glob("*.distcp"))
    assert not (tmp_path / "c" / ".metadata").exists()


def test_a_torn_checkpoint_is_an_error(state, tmp_path):
    dcp.save(state, storage_writer=tessera.torch.Writer(tmp_path / "c"))
    (file,) = (tmp_path / "c").glob("*.distcp")
    os.truncate(file, file.stat().st_size // 2)
    with pytest.raises(dcp.api.CheckpointException) as raised:
        dcp.load(
            blank(state), storage_reader=tessera.torch.Reader(tmp_path / "c")
        )
    (failure,) = raised.value.failures.values()
    assert isinstance(failure[0], tessera.DataLossError)
    assert failure[0].path == str(tmp_path / "c")
