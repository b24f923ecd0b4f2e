# SPDX-License-Identifier: Apache-2.0
"""Tensors that have no memory themselves, and objects of a program's classes:
PyTorch writes and reads them, or an error names them."""

import dataclasses
import functools
import io
import warnings

import pytest
import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.device_mesh import init_device_mesh

import tessera
import tessera.safetensors
import tessera.torch
from conftest import requires_torch
from conftest import run_ranks
from wrappers import Codes
from wrappers import to_codes
from wrappers import Rounding
from wrappers import Wrapper

WEIGHT = torch.arange(12.0).reshape(3, 4)
STORAGE = {
    "pytorch": (dcp.FileSystemWriter, dcp.FileSystemReader),
    "tessera": (tessera.torch.Writer, tessera.torch.Reader),
}
both_writers = pytest.mark.parametrize("writer", STORAGE)
both_readers = pytest.mark.parametrize("reader", STORAGE)
# Before this, an enumeration in a tensor is no safe pickle for PyTorch.
safe_pickles = requires_torch((2, 6), "safe_globals")


@pytest.fixture(autouse=True)
def allowed():
    """The classes that the pickles in these tests name."""
    torch.serialization.add_safe_globals([Wrapper, Codes, Rounding])
    yield
    torch.serialization.clear_safe_globals()


def save(state, path, writer="tessera"):
    dcp.save(state, storage_writer=STORAGE[writer][0](path))


def load(state, path, reader="tessera"):
    dcp.load(state, storage_reader=STORAGE[reader][1](path))
    return state


def raised_error(work):
    with pytest.raises(dcp.api.CheckpointException) as raised:
        work()
    ((failure, _),) = raised.value.failures.values()
    return failure


def test_a_plain_tensor_is_loaded_into_a_wrapper(tmp_path):
    save({"w": WEIGHT}, tmp_path / "c")
    target = Wrapper(torch.zeros(3, 4))
    assert target.data_ptr() == 0
    load({"w": target}, tmp_path / "c")
    assert torch.equal(target.inner, WEIGHT)


@both_writers
@both_readers
def test_a_wrapper_is_saved_and_loaded(tmp_path, writer, reader):
    save({"w": Wrapper(WEIGHT.clone())}, tmp_path / "c", writer)
    target = Wrapper(torch.zeros(3, 4))
    load({"w": target}, tmp_path / "c", reader)
    assert torch.equal(target.inner, WEIGHT)


@safe_pickles
@both_writers
def test_codes_and_scales_are_saved_and_loaded(tmp_path, writer):
    state = {"exp_avg": to_codes(WEIGHT), "step": torch.tensor(7)}
    save(state, tmp_path / "c", writer)
    target = to_codes(torch.ones(3, 4))
    load({"exp_avg": target, "step": torch.tensor(0)}, tmp_path / "c")
    assert torch.equal(target.codes, state["exp_avg"].codes)
    assert torch.equal(target.scale, state["exp_avg"].scale)


@safe_pickles
def test_codes_are_loaded_into_a_plain_tensor(tmp_path):
    codes = to_codes(WEIGHT)
    save({"w": codes}, tmp_path / "c")
    found = load({"w": torch.zeros(3, 4)}, tmp_path / "c")
    assert torch.equal(found["w"], codes.dense())


def test_a_wrapper_is_saved_asynchronously(tmp_path):
    writer = tessera.torch.Writer(tmp_path / "c")
    state = {"w": Wrapper(WEIGHT.clone()), "b": torch.ones(2)}
    dcp.async_save(state, storage_writer=writer).result()
    target = Wrapper(torch.zeros(3, 4))
    load({"w": target}, tmp_path / "c")
    assert torch.equal(target.inner, WEIGHT)


def test_a_wrapper_of_a_class_that_is_not_allowed_is_named(tmp_path):
    save({"fine": WEIGHT, "w": Wrapper(WEIGHT)}, tmp_path / "c")
    torch.serialization.clear_safe_globals()
    failure = raised_error(
        lambda: load({"w": Wrapper(torch.zeros(3, 4))}, tmp_path / "c")
    )
    assert isinstance(failure, tessera.PermissionDeniedError)
    assert failure.tensor == "w"
    assert "wrappers.Wrapper" in str(failure)
    assert "add_safe_globals" in str(failure)
    # The others can be read.
    found = load({"fine": torch.zeros(3, 4)}, tmp_path / "c")
    assert torch.equal(found["fine"], WEIGHT)
    with pytest.raises(tessera.UnimplementedError, match="Wrapper"):
        tessera.open(tmp_path / "c")["w"].torch()


@safe_pickles
def test_a_flipped_bit_of_a_wrapper_is_found_when_verifying(tmp_path):
    save({"w": Wrapper(WEIGHT.clone())}, tmp_path / "c")
    (file,) = (tmp_path / "c").glob("*.distcp")
    content = bytearray(file.read_bytes())
    content[content.index(WEIGHT.numpy().tobytes()) + 5] ^= 1
    file.write_bytes(content)
    reader = tessera.torch.Reader(tmp_path / "c", verify=True)
    failure = raised_error(
        lambda: dcp.load(
            {"w": Wrapper(torch.zeros(3, 4))}, storage_reader=reader
        )
    )
    assert isinstance(failure, tessera.DataLossError)
    assert "w" in str(failure)


@pytest.mark.parametrize(
    "tensor",
    [
        torch.empty(3, device="meta"),
        torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8),
        torch.eye(3).to_sparse(),
    ],
    ids=["meta", "quantized", "sparse"],
)
def test_a_tensor_without_elements_is_refused_by_its_name(tmp_path, tensor):
    save({"old": WEIGHT}, tmp_path / "c")
    before = sorted(path.name for path in (tmp_path / "c").iterdir())
    failure = raised_error(
        lambda: save({"fine": WEIGHT, "odd": tensor}, tmp_path / "c")
    )
    assert "odd" in str(failure)
    assert before == sorted(path.name for path in (tmp_path / "c").iterdir())


def test_freed_memory_is_refused_by_name(tmp_path):
    weight = WEIGHT.clone()
    weight.untyped_storage().resize_(0)
    failure = raised_error(lambda: save({"freed": weight}, tmp_path / "c"))
    assert isinstance(failure, tessera.FailedPreconditionError)
    assert failure.tensor == "freed"
    save({"freed": WEIGHT}, tmp_path / "c")
    failure = raised_error(lambda: load({"freed": weight}, tmp_path / "c"))
    assert isinstance(failure, tessera.FailedPreconditionError)


def test_another_default_device_changes_nothing(tmp_path):
    save({"w": WEIGHT}, tmp_path / "c")
    with torch.device("meta"):
        found = tessera.open(tmp_path / "c").to_torch()
        strided = torch.zeros(4, 3, device="cpu").t()
        load({"w": strided}, tmp_path / "c")
    assert torch.equal(found["w"], WEIGHT)
    assert torch.equal(strided, WEIGHT)


def refuse_by_name(tensor, folder):
    with pytest.raises((RuntimeError, ValueError), match="odd"):
        tessera.safetensors.save_file({"odd": tensor}, folder / "m")
    assert not list(folder.iterdir())


def test_safetensors_refuses_a_wrapper_by_its_name(tmp_path):
    rows = [torch.ones(2, 3), torch.ones(4, 3)]
    jagged = torch.nested.nested_tensor(rows, layout=torch.jagged)
    for tensor in (Wrapper(WEIGHT), to_codes(WEIGHT), jagged):
        refuse_by_name(tensor, tmp_path)


@requires_torch((2, 5), "torch.distributed.tensor")
def test_safetensors_refuses_a_dtensor_by_its_name(tmp_path):
    from torch.distributed import tensor

    store = dist.HashStore()
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    try:
        mesh = init_device_mesh("cpu", (1,))
        sharded = tensor.distribute_tensor(WEIGHT, mesh, [tensor.Shard(0)])
        refuse_by_name(sharded, tmp_path)
    finally:
        dist.destroy_process_group()


def test_fully_sharded_wrappers_are_saved_and_loaded(tmp_path):
    script = __file__.replace("subclass_test", "wrapper_ranks")
    run_ranks(2, script, tmp_path)


@dataclasses.dataclass
class Config:
    rate: float = 0.5


def double(number):
    return 2 * number


OBJECTS = {
    "phase": Rounding.NEAREST,
    "config": Config(0.25),
    "call": functools.partial(double, 4),
    "step": 7,
}


def test_a_save_warns_of_objects_that_a_load_would_refuse(tmp_path):
    torch.serialization.clear_safe_globals()
    with pytest.warns(UserWarning, match="add_safe_globals") as told:
        save({"w": WEIGHT, **OBJECTS}, tmp_path / "c")
    (text,) = [str(w.message) for w in told if "tessera" in str(w.message)]
    for name in ("phase", "config", "call"):
        assert name in text
    assert "step" not in text
    # PyTorch's reader makes them; ours names the first one.
    blank = {"w": torch.zeros(3, 4), **dict.fromkeys(OBJECTS)}
    assert load(blank, tmp_path / "c", "pytorch")["config"] == Config(0.25)
    failure = raised_error(
        lambda: load({"config": None}, tmp_path / "c", "tessera")
    )
    assert isinstance(failure, tessera.PermissionDeniedError)
    assert failure.tensor == "config" and "Config" in str(failure)
    found = load({"w": torch.zeros(3, 4), "step": 0}, tmp_path / "c")
    assert found["step"] == 7


@safe_pickles
@both_writers
def test_objects_of_safe_classes_are_saved_and_loaded(tmp_path, writer):
    torch.serialization.add_safe_globals([Config, functools.partial, double])
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message="tessera")
        save(OBJECTS, tmp_path / "c", writer)
    found = load(dict.fromkeys(OBJECTS), tmp_path / "c")
    assert found.pop("call")() == 8
    assert found == {k: v for k, v in OBJECTS.items() if k != "call"}


@safe_pickles
def test_getattr_of_anything_but_an_enumeration_is_refused(tmp_path):
    class Steal:
        def __reduce__(self):
            return getattr, (Config, "__init__")

    torch.serialization.add_safe_globals([Config])
    save({"o": Steal()}, tmp_path / "c", "pytorch")
    failure = raised_error(lambda: load({"o": None}, tmp_path / "c"))
    assert isinstance(failure, tessera.PermissionDeniedError)


def test_a_check_of_an_object_needs_no_checkpoint():
    from tessera.torch._pickled import problem_of_object

    for value, is_fine in ((torch.device("cpu"), True), (Config(), False)):
        file = io.BytesIO()
        torch.save(value, file)
        assert (problem_of_object("o", file.getvalue()) is None) == is_fine
