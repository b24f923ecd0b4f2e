# SPDX-License-Identifier: Apache-2.0
"""tessera.save, tessera.load, and CheckpointManager: by the rules that
checkpoint_manager_test.cc has for fsdp::CheckpointManager."""

import gc
import os
import pathlib
import signal

import pytest
import torch
import torch.distributed.checkpoint as dcp

import tessera
import tessera.torch
from conftest import assert_same
from conftest import blank
from conftest import run_ranks
from tessera.torch import CheckpointManager

both_ways = pytest.mark.parametrize("asynchronous", [True, False])


def state_at(step):
    return {"w": torch.full((64, 8), float(step)), "step": step}


def steps_in(directory):
    return sorted(int(p.name[len("step-") :]) for p in directory.glob("step-*"))


def test_a_state_is_saved_and_loaded(state, tmp_path):
    tessera.save(state, tmp_path / "run" / "c")
    found = blank(state)
    tessera.load(found, tmp_path / "run" / "c", verify=True)
    assert_same(found, state)
    # PyTorch reads it, too.
    found = blank(state)
    dcp.load(found, checkpoint_id=tmp_path / "run" / "c", no_dist=True)
    assert_same(found, state)


def test_errors_are_the_packages_own(state, tmp_path):
    with pytest.raises(FileNotFoundError) as raised:
        tessera.load(blank(state), tmp_path / "nothing")
    assert isinstance(raised.value, tessera.NotFoundError)
    tessera.save({"a": torch.ones(2)}, tmp_path / "c")
    with pytest.raises(FileExistsError, match="Checkpoint already exists"):
        tessera.save({"a": torch.ones(2)}, tmp_path / "c", overwrite=False)
    with pytest.raises(RuntimeError, match="Missing key.*: b"):
        tessera.load({"b": torch.ones(2)}, tmp_path / "c")
    for name in ("m.safetensors", "m.pt"):
        with pytest.raises(tessera.InvalidArgumentError, match="save_file"):
            tessera.save(state, tmp_path / name)


def test_ranks_save_and_load(tmp_path):
    script = pathlib.Path(__file__).with_name("manager_ranks.py")
    run_ranks(2, script, "save", tmp_path)
    # One process resumes, and other ranks.
    found = state_at(0)
    with CheckpointManager(tmp_path / "run") as manager:
        assert manager.resume(found) == 6
    assert_same(found, state_at(6))
    run_ranks(3, script, "resume", tmp_path)


@both_ways
def test_steps_are_saved_kept_and_resumed(tmp_path, asynchronous):
    lines = []
    with CheckpointManager(
        tmp_path / "new" / "run",
        save_every=2,
        keep_last=2,
        keep_every=6,
        asynchronous=asynchronous,
        log=lines.append,
    ) as manager:
        assert manager.resume(state_at(0)) is None
        state = state_at(0)
        for step in range(1, 13):
            manager.before_optimizer_step()
            state["w"].fill_(step)
            state["step"] = step
            assert manager.should_save(step) == (step % 2 == 0)
            if manager.should_save(step):
                manager.save(step, state)
        manager.finish()
        assert steps_in(tmp_path / "new" / "run") == [6, 10, 12]
        assert sum("removed" in line for line in lines) == 3
        found = state_at(0)
        assert manager.resume(found) == 12
        assert_same(found, state_at(12))
        for step in (6, 10, 12):
            tessera.load(found, manager.path_of(step), verify=True)
            assert_same(found, state_at(step))


def test_a_state_that_changes_after_its_copy_is_saved_as_it_was(tmp_path):
    state = {"w": torch.zeros(1 << 20)}
    manager = CheckpointManager(tmp_path / "run")
    for step in range(1, 4):
        manager.before_optimizer_step()
        state["w"].fill_(step)
        manager.save(step, state)
    manager.before_optimizer_step()
    state["w"].fill_(-1)
    manager.finish()
    for step in range(1, 4):
        assert (tessera.open(manager.path_of(step))["w"][:] == step).all()
    manager.close()


def test_incomplete_steps_are_skipped_and_later_removed(tmp_path):
    lines = []
    run = tmp_path / "run"
    with CheckpointManager(
        run, keep_last=1, asynchronous=False, log=lines.append
    ) as manager:
        for step in (1, 2, 3):
            manager.save(step, state_at(step))
        assert steps_in(run) == [3]
        # A save that did not finish, and files that are cut off.
        (run / "step-4").mkdir()
        tessera.save(state_at(5), run / "step-5")
        (file,) = (run / "step-5").glob("*.distcp")
        os.truncate(file, 100)
        assert manager.latest() == 3
        assert any("step-4: it has no .metadata" in line for line in lines)
        assert any("step-5" in line for line in lines)
        manager.save(6, state_at(6))
        assert steps_in(run) == [6]


def test_the_error_of_a_save_is_raised_once_and_nothing_is_removed(tmp_path):
    run = tmp_path / "run"
    manager = CheckpointManager(run, keep_last=1)
    manager.save(1, state_at(1))
    manager.finish()
    manager.save(
        2, {"w": torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)}
    )
    with pytest.raises(tessera.UnimplementedError, match="w: "):
        manager.save(3, state_at(3))
    assert manager.latest() == 1
    manager.save(3, state_at(3))
    manager.finish()
    assert manager.latest() == 3
    manager.close()


def test_sigterm_asks_for_a_last_save(tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    with CheckpointManager(tmp_path / "run", save_every=100) as manager:
        assert not manager.should_save(1) and not manager.should_exit()
        os.kill(os.getpid(), signal.SIGTERM)
        assert manager.should_save(2) and manager.should_exit()
        manager.save(2, state_at(2))
    assert steps_in(tmp_path / "run") == [2]
    assert signal.getsignal(signal.SIGTERM) is before


def test_a_manager_that_nobody_closes_leaves_sigterm_as_it_was(tmp_path):
    before = signal.getsignal(signal.SIGTERM)
    manager = CheckpointManager(tmp_path / "run")
    assert signal.getsignal(signal.SIGTERM) is not before
    del manager
    gc.collect()
    assert signal.getsignal(signal.SIGTERM) is before


@pytest.mark.parametrize(
    "keywords", [{"save_every": -1}, {"keep_last": True}, {"keep_every": "2"}]
)
def test_a_wrong_number_is_an_error_with_its_name(tmp_path, keywords):
    ((name, value),) = keywords.items()
    with pytest.raises(tessera.InvalidArgumentError, match=f"{name}={value!r}"):
        CheckpointManager(tmp_path, **keywords)


def test_a_daemon_takes_no_saves():
    with pytest.raises(
        tessera.UnimplementedError, match="takes no|does not take"
    ):
        CheckpointManager("tessera://trainer-7:7420/run")
