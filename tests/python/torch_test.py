# SPDX-License-Identifier: Apache-2.0
"""Writer and Reader in one process, with PyTorch's own as the judges."""

import json
import os
import pickle
import struct
import threading

import pytest
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner

import tessera
import tessera.torch
from conftest import assert_same
from conftest import blank
from conftest import make_state
from conftest import requires_torch


def load(state, **options):
    found = blank(state)
    dcp.load(found, **options)
    return found


def test_pytorch_reads_what_the_writer_writes(state, tmp_path):
    dcp.save(state, storage_writer=tessera.torch.Writer(tmp_path / "c"))
    assert_same(load(state, checkpoint_id=tmp_path / "c"), state)


def test_the_reader_reads_what_pytorch_writes(state, tmp_path):
    dcp.save(state, checkpoint_id=tmp_path / "c")
    reader = tessera.torch.Reader(tmp_path / "c", verify=True)
    assert_same(load(state, storage_reader=reader), state)


def test_resuming_across_writers_keeps_every_bit(state, tmp_path):
    dcp.save(state, checkpoint_id=tmp_path / "theirs")
    second = load(
        state, storage_reader=tessera.torch.Reader(tmp_path / "theirs")
    )
    dcp.save(second, storage_writer=tessera.torch.Writer(tmp_path / "ours"))
    third = load(second, checkpoint_id=tmp_path / "ours")
    dcp.save(third, checkpoint_id=tmp_path / "theirs-again")
    fourth = load(third, checkpoint_id=tmp_path / "theirs-again")
    assert_same(fourth, state)
    assert tessera.diff(tmp_path / "theirs", tmp_path / "theirs-again")["equal"]


def test_verify_checks_every_item_of_the_writer(state, tmp_path):
    dcp.save(state, storage_writer=tessera.torch.Writer(tmp_path / "c"))
    found = tessera.verify(tmp_path / "c")
    assert found["ok"]
    assert found["num_items_unchecked"] == 0
    assert found["num_digests_checked"] > 0


def test_a_flipped_bit_is_found_by_a_verifying_reader(state, tmp_path):
    dcp.save(state, storage_writer=tessera.torch.Writer(tmp_path / "c"))
    weight = state["model"]["layers.0.weight"].numpy().tobytes()
    (file,) = (tmp_path / "c").glob("*.distcp")
    content = bytearray(file.read_bytes())
    content[content.index(weight) + 5] ^= 1
    file.write_bytes(content)
    with pytest.raises(dcp.api.CheckpointException) as raised:
        load(
            state,
            storage_reader=tessera.torch.Reader(tmp_path / "c", verify=True),
        )
    (failure,) = raised.value.failures.values()
    assert isinstance(failure[0], tessera.DataLossError)


@pytest.mark.parametrize("rows", [0, 1])
def test_at_most_one_element_of_any_strides_is_saved(tmp_path, rows):
    column = {"c": torch.ones(rows, 64, dtype=torch.bfloat16)[:, 1]}
    assert column["c"].stride() == (64,)
    dcp.save(column, storage_writer=tessera.torch.Writer(tmp_path / "c"))
    assert_same(load(column, checkpoint_id=tmp_path / "c"), column)


@requires_torch((2, 7), "a planner that keeps its plans")
def test_the_default_planner_may_keep_its_plans(state, tmp_path):
    for step in range(3):
        state["step"] = step
        state["model"]["scalar"] += 1
        dcp.save(
            state,
            storage_writer=tessera.torch.Writer(tmp_path / "c"),
            planner=DefaultSavePlanner(enable_plan_caching=True),
        )
        assert_same(load(state, checkpoint_id=tmp_path / "c"), state)


def test_a_save_without_flattening_is_read_back(state, tmp_path):
    flat = {"weight": state["model"]["layers.0.weight"], "step": 7}
    dcp.save(
        flat,
        storage_writer=tessera.torch.Writer(tmp_path / "c"),
        planner=DefaultSavePlanner(flatten_state_dict=False),
    )
    found = {"weight": torch.zeros(7, 5), "step": 0}
    dcp.load(found, checkpoint_id=tmp_path / "c")
    assert_same(found, flat)


def test_asynchronous_saves_keep_their_memory(state, tmp_path):
    writer = tessera.torch.Writer()
    places = set()
    stage = writer.stage

    def remember(state_dict):
        staged = stage(state_dict)
        places.add(staged["model"]["layers.0.weight"].data_ptr())
        return staged

    writer.stage = remember
    for step in range(3):
        state["model"]["layers.0.weight"].fill_(step)
        saved = dcp.async_save(
            state, checkpoint_id=tmp_path / str(step), storage_writer=writer
        )
        saved.result()
        # Later changes are not in the checkpoint.
        state["model"]["layers.0.weight"].fill_(-1)
        weight = tessera.open(tmp_path / str(step))["model.layers.0.weight"]
        assert (weight[:] == step).all()
    assert len(places) == 1


def test_saves_that_overlap_do_not_mix(tmp_path):
    # The threads of the three saves, and this one.
    all_write = threading.Barrier(4, timeout=300)

    class Writer(tessera.torch.Writer):
        def write_data(self, plan, planner):
            all_write.wait()
            return super().write_data(plan, planner)

    writer = Writer()
    weight = torch.empty(1 << 20, dtype=torch.uint8)
    saves = []
    for step in range(3):
        weight.fill_(step)
        saves.append(
            dcp.async_save(
                {"w": weight, "step": step},
                checkpoint_id=tmp_path / str(step),
                storage_writer=writer,
            )
        )
    all_write.wait()
    for step, saved in enumerate(saves):
        saved.result()
        with tessera.open(tmp_path / str(step)) as checkpoint:
            assert (checkpoint["w"][:] == step).all()
            assert checkpoint.objects["step"] == step
        assert tessera.verify(tmp_path / str(step))["ok"]


@pytest.mark.skipif(
    not hasattr(dcp.state_dict_saver, "AsyncSaveResponse"),
    reason="PyTorch before 2.9 has no asynchronous staging",
)
def test_the_state_may_be_copied_in_the_background(tmp_path):
    writer = tessera.torch.Writer(async_staging=True)
    weight = torch.zeros(1 << 16)
    for step in range(3):
        weight.fill_(step)
        response = dcp.async_save(
            {"w": weight},
            checkpoint_id=tmp_path / str(step),
            storage_writer=writer,
        )
        response.staging_completion.result()
        weight.fill_(-1)
        response.upload_completion.result()
        assert (tessera.open(tmp_path / str(step))["w"][:] == step).all()
    writer.close()


def test_an_asynchronous_save_of_another_structure_takes_new_memory(tmp_path):
    writer = tessera.torch.Writer()
    for state in ({"a": torch.ones(3)}, {"b": torch.ones(4), "n": 1}):
        path = tmp_path / "-".join(state)
        dcp.async_save(
            state, checkpoint_id=path, storage_writer=writer
        ).result()
        assert_same(load(state, checkpoint_id=path), {**state})


def test_an_asynchronous_save_keeps_objects(tmp_path):
    saved = {"w": torch.ones(2), "device": torch.device("cpu"), "set": {1, 2}}
    dcp.async_save(
        saved, storage_writer=tessera.torch.Writer(tmp_path / "c")
    ).result()
    found = {"w": torch.zeros(2), "device": None, "set": None}
    dcp.load(found, checkpoint_id=tmp_path / "c")
    assert_same(found, saved)


class Halved(torch.Tensor):
    """A wrapper; each element is half of another tensor's element."""

    @staticmethod
    def __new__(cls, whole):
        return torch.Tensor._make_wrapper_subclass(
            cls, whole.shape, dtype=whole.dtype
        )

    def __init__(self, whole):
        self.whole = whole

    def __reduce_ex__(self, protocol):
        return Halved, (self.whole,)

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        if function in (
            torch.ops.aten.detach.default,
            torch.ops.aten.clone.default,
        ):
            return cls(function(args[0].whole))
        halves = [a.whole / 2 if isinstance(a, cls) else a for a in args]
        return function(*halves, **(kwargs or {}))


def test_an_asynchronous_save_keeps_the_meaning_of_tensors(tmp_path):
    complex_ = torch.randn(5, dtype=torch.complex128)
    saved = {
        "conjugated": complex_.conj(),
        "negated": complex_.conj().imag,
        "parameter": torch.nn.Parameter(complex_.conj().imag),
    }
    halved = Halved(torch.full((3,), 4.0))
    writer = tessera.torch.Writer()
    staged = writer.stage({**saved, "halved": halved})
    assert type(staged["halved"]) is Halved
    halved.whole.fill_(-1)
    assert torch.equal(staged["halved"].whole, torch.full((3,), 4.0))
    dcp.async_save(
        saved, checkpoint_id=tmp_path / "c", storage_writer=writer
    ).result()
    assert_same(load(saved, checkpoint_id=tmp_path / "c"), saved)


def test_the_writer_without_overwrite_keeps_what_is_there(state, tmp_path):
    dcp.save({"a": torch.ones(2)}, checkpoint_id=tmp_path / "c")
    before = sorted(os.listdir(tmp_path / "c"))
    with pytest.raises(dcp.api.CheckpointException) as raised:
        dcp.save(
            state,
            storage_writer=tessera.torch.Writer(
                tmp_path / "c", overwrite=False
            ),
        )
    (failure,) = raised.value.failures.values()
    assert isinstance(failure[0], tessera.AlreadyExistsError)
    assert sorted(os.listdir(tmp_path / "c")) == before


class Attack:
    def __reduce__(self):
        return os.system, ("touch attacked",)


def test_objects_that_would_run_code_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dcp.save(
        {"w": torch.ones(1), "evil": Attack()},
        checkpoint_id=tmp_path / "c",
    )
    with pytest.raises(dcp.api.CheckpointException) as raised:
        dcp.load(
            {"w": torch.zeros(1), "evil": None},
            storage_reader=tessera.torch.Reader(tmp_path / "c"),
        )
    (failure,) = raised.value.failures.values()
    assert isinstance(failure[0], tessera.PermissionDeniedError)
    assert not (tmp_path / "attacked").exists()


def test_an_armed_index_is_refused(state, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    dcp.save(state, checkpoint_id=tmp_path / "c")
    (tmp_path / "c" / ".metadata").write_bytes(pickle.dumps(Attack()))
    with pytest.raises(dcp.api.CheckpointException) as raised:
        load(state, storage_reader=tessera.torch.Reader(tmp_path / "c"))
    (failure,) = raised.value.failures.values()
    assert isinstance(failure[0], tessera.PermissionDeniedError)
    assert not (tmp_path / "attacked").exists()


def test_the_reader_reads_other_formats(tmp_path):
    from safetensors.torch import save_file

    tensors = {"w": torch.randn(4, 3), "b": torch.randn(3).bfloat16()}
    save_file(tensors, tmp_path / "m.safetensors")
    found = {name: torch.zeros_like(t) for name, t in tensors.items()}
    dcp.load(
        found,
        storage_reader=tessera.torch.Reader(tmp_path / "m.safetensors"),
    )
    assert_same(found, tensors)


def test_a_load_converts_to_the_dtype_of_the_target(tmp_path):
    saved = {"w": torch.randn(4, 3)}
    dcp.save(saved, storage_writer=tessera.torch.Writer(tmp_path / "c"))
    found = {"w": torch.zeros(4, 3, dtype=torch.bfloat16)}
    dcp.load(found, storage_reader=tessera.torch.Reader(tmp_path / "c"))
    assert torch.equal(found["w"], saved["w"].bfloat16())


def test_a_dtype_that_pytorch_lacks_is_named(tmp_path, monkeypatch):
    header = {"w": {"dtype": "F8_E8M0", "shape": [4], "data_offsets": [0, 4]}}
    text = json.dumps(header).encode()
    path = tmp_path / "m.safetensors"
    path.write_bytes(struct.pack("<Q", len(text)) + text + bytes(4))
    # Older versions lack it.
    monkeypatch.delattr(torch, "float8_e8m0fnu", raising=False)
    with pytest.raises(dcp.api.CheckpointException) as raised:
        dcp.load(
            {"w": torch.zeros(4)}, storage_reader=tessera.torch.Reader(path)
        )
    (failure,) = raised.value.failures.values()
    assert isinstance(failure[0], tessera.UnimplementedError)
    assert failure[0].tensor == "w"
    message = f"PyTorch {torch.__version__} has no dtype float8_e8m0fnu"
    assert message in str(failure[0])
    with pytest.raises(tessera.UnimplementedError, match="float8_e8m0fnu"):
        tessera.open(path)["w"].torch()


def test_a_dtype_that_checkpoints_lack_is_named(tmp_path):
    quantized = torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8)
    with pytest.raises(dcp.api.CheckpointException) as raised:
        dcp.save(
            {"w": quantized},
            storage_writer=tessera.torch.Writer(tmp_path / "c"),
        )
    (failure,) = raised.value.failures.values()
    assert isinstance(failure[0], tessera.UnimplementedError)
    assert "torch.qint8" in str(failure[0])
    assert not list(tmp_path.glob("c/*.distcp"))


def test_without_a_path_both_say_so():
    for work in (
        lambda: dcp.save({}, storage_writer=tessera.torch.Writer()),
        lambda: dcp.load({}, storage_reader=tessera.torch.Reader()),
    ):
        with pytest.raises(dcp.api.CheckpointException) as raised:
            work()
        (failure,) = raised.value.failures.values()
        assert isinstance(failure[0], tessera.InvalidArgumentError)
        assert "has no path" in str(failure[0])


def test_make_state_is_the_same_each_time():
    assert_same(make_state(), make_state())
