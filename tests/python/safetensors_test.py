# SPDX-License-Identifier: Apache-2.0
"""tessera.safetensors next to the package that it replaces: the same calls,
with the same results and errors."""

import copy
import os
import random

import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch

import tessera
import tessera.safetensors
from conftest import assert_same
from conftest import TORCH

TENSORS = {
    "w": torch.randn(5, 3),
    "b": torch.randn(3).bfloat16(),
    "f8": torch.randn(4).to(torch.float8_e4m3fn),
    "scalar": torch.tensor(3),
    "empty": torch.empty(0, 2),
    "é": torch.tensor([True, False]),
    "c": torch.complex(torch.ones(2), torch.zeros(2)),
}
LIBRARIES = {"theirs": safetensors.torch, "ours": tessera.safetensors}


class Tied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(4, 4)
        self.b = self.a


class Untied(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.a = torch.nn.Linear(4, 4)
        self.b = torch.nn.Linear(4, 4)


@pytest.mark.parametrize("name", ["m.safetensors", "m.bin", "m.pt", "m", "m.x"])
def test_a_file_of_any_name_is_safetensors(tmp_path, name):
    path = tmp_path / name
    tessera.safetensors.save_file(TENSORS, path, metadata={"epoch": "7"})
    assert_same(safetensors.torch.load_file(path), TENSORS)
    assert_same(tessera.safetensors.load_file(str(path)), TENSORS)
    with tessera.safetensors.safe_open(path, "pt") as file:
        assert file.metadata() == {"epoch": "7"}
    assert tessera.verify(path)["num_items_unchecked"] == 0


def test_it_loads_what_safetensors_saves(tmp_path):
    path = tmp_path / "m.safetensors"
    safetensors.torch.save_file(TENSORS, path, metadata={"format": "pt"})
    assert_same(tessera.safetensors.load_file(path), TENSORS)
    assert_same(tessera.safetensors.load(path.read_bytes()), TENSORS)


@pytest.mark.parametrize("metadata", [None, {}, {"a": "b"}, {"ä": '"\n'}])
def test_the_bytes_are_the_same(metadata):
    ours = tessera.safetensors.save(TENSORS, metadata)
    assert ours == safetensors.torch.save(TENSORS, metadata)


def test_the_bytes_of_random_tensors_are_the_same():
    seed = random.randrange(1 << 32)
    print("seed", seed)
    generator = random.Random(seed)
    dtypes = [
        *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
        *(torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8),
        *(torch.bool, torch.float8_e5m2, torch.complex64, torch.uint16),
    ]
    for _ in range(50):
        tensors = {}
        for _ in range(generator.randrange(6)):
            sizes = [
                generator.randrange(4) for _ in range(generator.randrange(4))
            ]
            name = "".join(generator.choice('ab".é/\\') for _ in range(5))
            dtype = generator.choice(dtypes)
            tensors[name] = (torch.rand(sizes) * 9).to(dtype)
        ours = tessera.safetensors.save(tensors)
        assert ours == safetensors.torch.save(tensors)
        assert_same(tessera.safetensors.load(ours), tensors)


def test_saving_again_replaces_the_file(tmp_path):
    path = tmp_path / "m.safetensors"
    tessera.safetensors.save_file(TENSORS, path)
    tessera.safetensors.save_file({"a": torch.ones(2)}, path)
    assert list(tessera.safetensors.load_file(path)) == ["a"]
    assert [p.name for p in tmp_path.iterdir()] == ["m.safetensors"]


SQUARE = torch.zeros(4, 4)
WRONG = {
    "no dict": "text",
    "no tensor": {"a": 3},
    "sparse": {"a": torch.eye(2).to_sparse()},
    "not contiguous": {"a": SQUARE.t()[1:]},
    "shared": {"a": SQUARE, "b": SQUARE},
    "overlapping": {"a": SQUARE, "b": SQUARE[1:]},
    "meta": {"a": torch.empty(2, device="meta")},
}


@pytest.mark.parametrize("tensors", WRONG.values(), ids=WRONG)
def test_errors_of_tensors_that_cannot_be_saved_have_the_same_class(
    tmp_path, tensors
):
    for call in ("save", "save_file"):
        raised = {}
        for name, library in LIBRARIES.items():
            path = [] if call == "save" else [tmp_path / "m"]
            with pytest.raises(Exception) as caught:
                getattr(library, call)(tensors, *path)
            raised[name] = caught.value
        theirs = next(
            kind
            for kind in type(raised["theirs"]).__mro__
            if kind.__module__ == "builtins"
        )
        assert isinstance(raised["ours"], theirs)
    assert not list(tmp_path.iterdir())


def test_parts_of_one_storage_that_do_not_overlap_are_saved(tmp_path):
    whole = torch.arange(8.0)
    tensors = {"a": whole[:3], "b": whole[3:]}
    tessera.safetensors.save_file(tensors, tmp_path / "m")
    assert_same(safetensors.torch.load_file(tmp_path / "m"), tensors)


def test_errors_are_safetensors_errors_too(tmp_path):
    assert tessera.safetensors.SafetensorError is safetensors.SafetensorError
    (tmp_path / "m").write_bytes(b"\x10\0\0\0\0\0\0\0{}")
    for library in (safetensors, tessera.safetensors):
        with pytest.raises(FileNotFoundError) as raised:
            library.safe_open("nothing", "pt")
        assert str(raised.value) == "No such file or directory: nothing"
        for framework, device in (("xx", "cpu"), ("pt", "xx"), ("np", "cuda")):
            with pytest.raises(safetensors.SafetensorError):
                library.safe_open(tmp_path / "m", framework, device)
        with pytest.raises(safetensors.SafetensorError):
            library.safe_open(tmp_path / "m", "pt")
    with pytest.raises(tessera.Error):
        tessera.safetensors.load_file(tmp_path / "m")
    with pytest.raises(safetensors.SafetensorError):
        tessera.safetensors.load(b"no header")
    with pytest.raises(safetensors.SafetensorError, match="complex128"):
        tessera.safetensors.save({"a": torch.zeros(1, dtype=torch.complex128)})


INDICES = [
    *(Ellipsis, (), 2, -1, slice(1, 3), slice(None, None, 2), (2, 1)),
    *((slice(None), 2), (Ellipsis, slice(1, 3)), [], [0, 2], slice(3, 3)),
    *(slice(5, 5), slice(5), slice(4, 5)),
    *(slice(20), (slice(2, None), 20), (0, 0, 0), slice(9, 9), -6),
    *(slice(-2, None), slice(None, None, -1), np.array([0, 1]), "a", None),
    *(np.array([True, False, True, False, True]), (slice(2, None), -4)),
    *(torch.tensor([4, 0]), torch.tensor([True, False, True, False, True])),
]


@pytest.mark.parametrize("framework", ["pt", "np"])
def test_a_slice_is_indexed_in_the_same_way(tmp_path, framework):
    path = tmp_path / "m.safetensors"
    safetensors.torch.save_file({"w": TENSORS["w"]}, path)

    def read(library, index):
        with library.safe_open(path, framework) as file:
            try:
                return file.get_slice("w")[index]
            except Exception as failure:
                return failure

    for index in INDICES:
        theirs, ours = (
            read(lib, index) for lib in (safetensors, LIBRARIES["ours"])
        )
        if isinstance(theirs, Exception):
            assert isinstance(ours, type(theirs)), (index, theirs, ours)
            if isinstance(theirs, safetensors.SafetensorError):
                assert str(ours) == str(theirs), index
        else:
            assert type(ours) is type(theirs), (index, theirs, ours)
            np.testing.assert_array_equal(np.asarray(ours), np.asarray(theirs))


@pytest.mark.parametrize("framework", ["pt", "np"])
def test_safe_open_says_the_same(tmp_path, framework):
    path = tmp_path / "m.safetensors"
    tensors = {
        name: TENSORS[name] for name in ("w", "scalar", "empty", "é", "c")
    }
    safetensors.torch.save_file(tensors, path, {"a": "b"})
    with safetensors.safe_open(path, framework) as theirs:
        with tessera.safetensors.safe_open(path, framework) as ours:
            assert ours.keys() == list(theirs.keys())
            assert ours.offset_keys() == theirs.offset_keys()
            assert ours.metadata() == theirs.metadata()
            assert ours.get_tensors().keys() == theirs.get_tensors().keys()
            for name in tensors:
                expected = theirs.get_slice(name)
                found = ours.get_slice(name)
                assert found.get_shape() == expected.get_shape()
                assert found.get_dtype() == expected.get_dtype()
                if expected.get_shape() != [0, 2]:
                    assert type(found[...]) is type(expected[...])
                np.testing.assert_array_equal(
                    ours.get_tensor(name), theirs.get_tensor(name)
                )
            for library in (ours, theirs):
                with pytest.raises(safetensors.SafetensorError) as raised:
                    library.get_tensor("nothing")
                assert "does not contain tensor nothing" in str(raised.value)
        with pytest.raises(safetensors.SafetensorError, match="is closed"):
            ours.keys()


def test_four_bit_numbers_keep_their_shape(tmp_path):
    if TORCH < (2, 8):
        return
    packed = torch.zeros(2, 3, dtype=torch.uint8).view(torch.float4_e2m1fn_x2)
    tensors = {"packed": packed}
    tessera.safetensors.save_file(tensors, tmp_path / "m")
    for library in (safetensors, tessera.safetensors):
        with library.safe_open(tmp_path / "m", "pt") as file:
            assert file.get_slice("packed").get_shape() == [2, 6]
            assert file.get_tensor("packed").shape == (2, 3)


@pytest.mark.parametrize("saver", LIBRARIES)
@pytest.mark.parametrize("loader", LIBRARIES)
def test_a_model_with_tied_weights_is_saved_and_loaded(tmp_path, saver, loader):
    path = tmp_path / "m.safetensors"
    model, again = Tied(), Tied()
    LIBRARIES[saver].save_model(model, path)
    with tessera.safetensors.safe_open(path, "pt") as file:
        told = {"b.bias": "a.bias", "b.weight": "a.weight"}
        assert file.metadata() == told
        assert file.keys() == ["a.bias", "a.weight"]
    missing, unexpected = LIBRARIES[loader].load_model(again, str(path))
    assert not missing and not unexpected
    assert_same(again.state_dict(), model.state_dict())


def test_a_model_of_another_kind_is_refused_in_the_same_way(tmp_path):
    tied, untied = tmp_path / "tied", tmp_path / "untied"
    tessera.safetensors.save_model(Tied(), tied)
    tessera.safetensors.save_model(Untied(), untied)
    for model, path in ((Untied(), tied), (Tied(), untied)):
        told = []
        for library in LIBRARIES.values():
            with pytest.raises(RuntimeError) as raised:
                library.load_model(copy.deepcopy(model), path)
            told.append(str(raised.value))
        assert told[0] == told[1]
        for library in LIBRARIES.values():
            lists = library.load_model(copy.deepcopy(model), path, strict=False)
            told.append(tuple(map(sorted, lists)))
        assert told[2] == told[3]


def test_a_model_may_keep_its_layout(tmp_path):
    model = torch.nn.Linear(4, 3, bias=False)
    model.weight = torch.nn.Parameter(torch.randn(4, 3).t())
    for library in LIBRARIES.values():
        with pytest.raises(ValueError, match="force_contiguous=True"):
            library.save_model(model, tmp_path / "m", force_contiguous=False)
        library.save_model(model, tmp_path / "m")
        os.remove(tmp_path / "m")
