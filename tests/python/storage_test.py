# SPDX-License-Identifier: Apache-2.0
"""The checks in PyTorch's own tests for file storage, run with ours."""

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.state_dict_loader import (
    _load_state_dict_from_keys,
)
from torch.distributed.checkpoint.stateful import Stateful

import tessera.torch
from conftest import assert_same
from conftest import blank
from conftest import requires_torch


def save(state, path):
    dcp.save(state, storage_writer=tessera.torch.Writer(path))


def raised_error(work):
    """The one error that a save or load raises."""
    with pytest.raises(dcp.api.CheckpointException) as raised:
        work()
    ((failure, _),) = raised.value.failures.values()
    return failure


def test_a_missing_key_is_an_error_unless_partial_loads_are_allowed(tmp_path):
    save({"a": torch.ones(3)}, tmp_path / "c")
    state = {"a": torch.zeros(3), "b": torch.zeros(2)}
    reader = tessera.torch.Reader(tmp_path / "c")
    failure = raised_error(lambda: dcp.load(state, storage_reader=reader))
    assert "Missing key" in str(failure) and "b" in str(failure)
    dcp.load(
        state,
        storage_reader=reader,
        planner=DefaultLoadPlanner(allow_partial_load=True),
    )
    assert_same(state, {"a": torch.ones(3), "b": torch.zeros(2)})


@requires_torch((2, 6), "a load planner that compares sizes")
def test_another_size_is_an_error_that_names_the_tensor(tmp_path):
    save({"weight": torch.ones(3)}, tmp_path / "c")
    state = {"weight": torch.zeros(4)}
    failure = raised_error(
        lambda: dcp.load(
            state, storage_reader=tessera.torch.Reader(tmp_path / "c")
        )
    )
    assert "weight" in str(failure)
    assert_same(state, {"weight": torch.zeros(4)})


def test_a_part_of_the_state_is_loaded_alone(state, tmp_path):
    save(state, tmp_path / "c")
    found = {"model": blank(state["model"])}
    dcp.load(found, storage_reader=tessera.torch.Reader(tmp_path / "c"))
    assert_same(found, {"model": state["model"]})


def test_a_state_is_loaded_by_its_keys_alone(state, tmp_path):
    save(state, tmp_path / "c")
    found = _load_state_dict_from_keys(
        {"model", "step"},
        storage_reader=tessera.torch.Reader(tmp_path / "c"),
    )
    assert_same(found, {"model": state["model"], "step": state["step"]})


def test_pytorch_converts_what_the_writer_writes(state, tmp_path):
    del state["model"]["complex"]  # which is lazily conjugated
    save(state, tmp_path / "c")
    dcp_to_torch_save(tmp_path / "c", tmp_path / "c.pt")
    found = torch.load(tmp_path / "c.pt", weights_only=True)
    assert found["step"] == state["step"]
    for name, tensor in state["model"].items():
        assert_same(found["model"][name], tensor.contiguous(), name)


class Counter(Stateful):
    def __init__(self, count):
        self.count = count
        self.values = torch.full((3,), float(count))

    def state_dict(self):
        return {"count": self.count, "values": self.values}

    def load_state_dict(self, state_dict):
        self.count = state_dict["count"]


def test_stateful_objects_are_saved_and_loaded(tmp_path):
    save({"counter": Counter(5)}, tmp_path / "c")
    counter = Counter(0)
    values = counter.values
    dcp.load(
        {"counter": counter},
        storage_reader=tessera.torch.Reader(tmp_path / "c"),
    )
    assert counter.count == 5
    # This tensor itself is filled.
    assert_same(values, torch.full((3,), 5.0))


def test_a_second_save_replaces_the_first(tmp_path):
    for value in (1.0, 2.0):
        save({"a": torch.full((3,), value)}, tmp_path / "c")
    found = {"a": torch.zeros(3)}
    dcp.load(found, storage_reader=tessera.torch.Reader(tmp_path / "c"))
    assert_same(found, {"a": torch.full((3,), 2.0)})
    assert len(list((tmp_path / "c").glob("*.distcp"))) == 1


def test_missing_parent_directories_are_made(tmp_path):
    path = tmp_path / "run7" / "new" / "step-1"
    save({"a": torch.ones(3)}, path)
    assert tessera.open(path)["a"].shape == (3,)


def test_an_empty_state_is_saved_and_loaded(tmp_path):
    save({}, tmp_path / "c")
    dcp.load({}, storage_reader=tessera.torch.Reader(tmp_path / "c"))
    assert len(tessera.open(tmp_path / "c")) == 0
