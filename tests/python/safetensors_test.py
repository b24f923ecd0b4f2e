"""tessera.safetensors next to the package that it stands in for."""

import numpy as np
import pytest
import safetensors
import safetensors.torch
import torch

import tessera.safetensors
from conftest import assert_same

TENSORS = {
    "w": torch.randn(5, 3),
    "b": torch.randn(3).bfloat16(),
    "f8": torch.randn(4).to(torch.float8_e4m3fn),
    "scalar": torch.tensor(3),
    "empty": torch.empty(0, 2),
}


def test_safetensors_loads_what_it_saves(tmp_path):
    path = tmp_path / "m.safetensors"
    tensors = {**TENSORS, "transposed": TENSORS["w"].t()}
    tessera.safetensors.save_file(tensors, path, metadata={"epoch": "7"})
    assert_same(safetensors.torch.load_file(path), tensors)
    with safetensors.safe_open(path, "pt") as file:
        assert file.metadata()["epoch"] == "7"
        assert file.metadata()["format"] == "pt"
    assert tessera.verify(path)["num_items_unchecked"] == 0


def test_it_loads_what_safetensors_saves(tmp_path):
    path = tmp_path / "m.safetensors"
    safetensors.torch.save_file(TENSORS, path, metadata={"format": "pt"})
    assert_same(tessera.safetensors.load_file(path), TENSORS)


def test_saving_again_replaces_the_file(tmp_path):
    path = tmp_path / "m.safetensors"
    tessera.safetensors.save_file(TENSORS, path)
    tessera.safetensors.save_file({"a": torch.ones(2)}, path)
    assert list(tessera.safetensors.load_file(path)) == ["a"]
    assert [p.name for p in tmp_path.iterdir()] == ["m.safetensors"]


@pytest.mark.parametrize("framework", ["pt", "np"])
def test_safe_open_reads_the_same(tmp_path, framework):
    path = tmp_path / "m.safetensors"
    safetensors.torch.save_file({"w": TENSORS["w"]}, path)
    with safetensors.safe_open(path, framework) as theirs:
        with tessera.safetensors.safe_open(path, framework) as ours:
            assert ours.keys() == list(theirs.keys())
            assert type(ours.get_tensor("w")) is type(theirs.get_tensor("w"))
            np.testing.assert_array_equal(
                ours.get_tensor("w"), theirs.get_tensor("w")
            )
            np.testing.assert_array_equal(
                ours.get_slice("w")[1:3, :2], theirs.get_slice("w")[1:3, :2]
            )
            assert ours.get_slice("w").get_shape() == [5, 3]


def test_another_suffix_is_refused(tmp_path):
    with pytest.raises(tessera.InvalidArgumentError, match="does not end in"):
        tessera.safetensors.save_file(TENSORS, tmp_path / "model")
    assert not list(tmp_path.iterdir())
