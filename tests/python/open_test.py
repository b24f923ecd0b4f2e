# SPDX-License-Identifier: Apache-2.0
"""tessera.open: names, slices, objects, and unreadable parts."""

import collections
import errno
import os
import pickle
import subprocess
import sys

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp

import tessera
import tessera.safetensors
import tessera.torch
from conftest import assert_same
from tessera._quantity import parse_bytes


@pytest.fixture
def path(state, tmp_path):
    dcp.save(state, checkpoint_id=tmp_path / "c")
    return tmp_path / "c"


def test_importing_needs_neither_torch_nor_numpy():
    code = (
        "import sys, tessera; "
        "sys.exit('torch' in sys.modules or 'numpy' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_it_is_a_mapping_of_tensors(state, path):
    with tessera.open(path) as checkpoint:
        assert checkpoint.format == "dcp"
        assert set(checkpoint) == {"model." + name for name in state["model"]}
        weight = checkpoint["model.layers.0.weight"]
        assert weight.shape == (7, 5)
        assert weight.dtype == "float32"
        assert weight.keys == ("model", "layers.0.weight")
        assert len(weight) == 7
        assert "model.nothing" not in checkpoint


@pytest.mark.parametrize(
    "index",
    [
        Ellipsis,
        (),
        3,
        -1,
        slice(2, 7),
        slice(1, 6, 2),
        slice(5, 2),
        slice(None, -3),
        (slice(None), 2),
        (Ellipsis, slice(1, 3)),
        (2, 3),
        (slice(2, 4), slice(None, None, 3)),
        np.int64(4),
    ],
)
def test_an_index_selects_as_in_numpy(state, path, index):
    weight = state["model"]["layers.0.weight"].numpy()
    found = tessera.open(path)["model.layers.0.weight"][index]
    np.testing.assert_array_equal(found, weight[index])


@pytest.mark.parametrize(
    "index",
    [
        *(7, -8, (0, 5), (0, 0, 0), "a", 1.5, slice(None, None, -1)),
        *(True, np.True_, [0, 1], None),
    ],
)
def test_other_indices_are_refused(path, index):
    with pytest.raises(IndexError):
        tessera.open(path)["model.layers.0.weight"][index]


def test_every_dtype_becomes_a_torch_tensor(state, path):
    found = tessera.open(path).to_torch()
    flat = {"model." + name: t for name, t in state["model"].items()}
    assert_same(found, flat)


def test_arrays_in_the_order_of_files_with_little_memory(state, path):
    checkpoint = tessera.open(path)
    items = list(checkpoint.items(memory=64, framework="torch"))
    assert [name for name, _ in items] != sorted(checkpoint)
    assert_same(
        dict(items), {"model." + n: t for n, t in state["model"].items()}
    )


def test_numpy_torch_and_dlpack_take_it(state, path):
    weight = tessera.open(path)["model.layers.0.weight"]
    expected = state["model"]["layers.0.weight"]
    np.testing.assert_array_equal(np.asarray(weight), expected.numpy())
    assert torch.equal(torch.from_dlpack(weight), expected)
    assert torch.equal(weight.torch(2, torch.float64), expected[2].double())
    assert weight.numpy(dtype="bfloat16").dtype.name == "bfloat16"


def test_codes_of_quantized_weights_are_not_converted(tmp_path):
    from safetensors.torch import save_file

    codes = torch.ones(2, 2).to(torch.float8_e4m3fn)
    half = torch.ones(2, dtype=torch.float16)
    scale = torch.full((1, 1), 3.0)
    file = tmp_path / "m.safetensors"
    save_file({"a.weight": codes, "a.weight_scale_inv": scale, "h": half}, file)
    checkpoint = tessera.open(file)
    for convert in (
        lambda: np.asarray(checkpoint["a.weight"], dtype=np.float32),
        lambda: checkpoint["a.weight"].numpy(dtype="float32"),
        lambda: checkpoint["a.weight"].torch(dtype=torch.float32),
    ):
        with pytest.raises(tessera.InvalidArgumentError, match="a.weight"):
            convert()
    assert np.asarray(checkpoint["h"], dtype=np.float32).tolist() == [1, 1]
    assert np.asarray(checkpoint["h"], dtype=np.int32).tolist() == [1, 1]


def test_objects_are_pythons_own(path):
    objects = tessera.open(path).objects
    assert dict(objects) == {
        "optim.lr": 0.125,
        "optim.betas": (0.9, 0.95),
        "optim.names.0": "a",
        "optim.names.1": None,
        "step": 7,
    } or dict(objects)["optim.names"] == ["a", None]
    with pytest.raises(KeyError):
        objects["model.scalar"]


def test_other_classes_are_opaque(tmp_path):
    value = {
        "ordered": collections.OrderedDict(a=1),
        "device": torch.device("cpu"),
        "bytes": b"\x00\xff",
        "set": {1, 2},
        "size": torch.Size([1, 2]),
    }
    torch.save({"w": torch.ones(1), "o": (value,)}, tmp_path / "m.pt")
    objects = tessera.open(tmp_path / "m.pt").objects
    found = {name: objects[name] for name in objects}
    text = repr(found)
    assert "torch.device" in text
    assert "b'\\x00\\xff'" in text
    assert "{1, 2}" in text


def test_it_prints_as_a_table(path):
    checkpoint = tessera.open(path)
    assert "model.layers.0.weight  float32" in repr(checkpoint)
    html = checkpoint._repr_html_()
    assert html.count("<svg") > 3
    assert "<td>model.layers.0.weight</td>" in html


def test_names_are_escaped_in_html(tmp_path):
    torch.save({"<script>": torch.ones(1)}, tmp_path / "m.pt")
    assert "<script>" not in tessera.open(tmp_path / "m.pt")._repr_html_()


def test_a_missing_checkpoint_names_its_path(tmp_path):
    with pytest.raises(tessera.NotFoundError) as raised:
        tessera.open(tmp_path / "nothing")
    assert raised.value.path == str(tmp_path / "nothing")
    assert "nothing" in str(raised.value)


def test_a_damaged_checkpoint_is_data_loss(path):
    content = (path / ".metadata").read_bytes()
    (path / ".metadata").write_bytes(content[: len(content) // 2])
    with pytest.raises(tessera.DataLossError):
        tessera.open(path)


def test_a_closed_checkpoint_is_an_error(path):
    checkpoint = tessera.open(path)
    weight = checkpoint["model.layers.0.weight"]
    checkpoint.close()
    with pytest.raises(ValueError, match="closed"):
        weight[0]


def test_python_has_these_errors_too(path, tmp_path):
    with pytest.raises(FileNotFoundError) as raised:
        tessera.open(tmp_path / "nothing")
    assert raised.value.errno == errno.ENOENT
    assert raised.value.filename == str(tmp_path / "nothing")
    for kind, own in (
        (FileExistsError, tessera.AlreadyExistsError),
        (PermissionError, tessera.PermissionDeniedError),
        (FileNotFoundError, tessera.NotFoundError),
    ):
        failure = pickle.loads(pickle.dumps(own("why", path="p", tensor="t")))
        assert isinstance(failure, kind)
        assert (str(failure), failure.path, failure.tensor) == ("why", "p", "t")


def test_it_opens_itself_again_when_it_is_unpickled(state, path, monkeypatch):
    monkeypatch.chdir(path.parent)
    checkpoint = tessera.open(path.name)
    name = "model.layers.0.weight"
    told = pickle.dumps((checkpoint, checkpoint[name]))
    monkeypatch.chdir("/")
    again, weight = pickle.loads(told)
    expected = state["model"]["layers.0.weight"].numpy()
    np.testing.assert_array_equal(again[name][:], expected)
    np.testing.assert_array_equal(weight[2], expected[2])


class Rows(torch.utils.data.Dataset):
    def __init__(self, path):
        self.weight = tessera.open(path)["model.layers.0.weight"]

    def __len__(self):
        return len(self.weight)

    def __getitem__(self, row):
        return self.weight.torch(row)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_dataset_holds_one_in_all_processes(state, path, method):
    loader = torch.utils.data.DataLoader(
        Rows(path), batch_size=2, num_workers=2, multiprocessing_context=method
    )
    found = torch.cat(list(loader))
    assert torch.equal(found, state["model"]["layers.0.weight"])


def test_a_fork_does_not_read_a_checkpoint_that_was_replaced(path):
    checkpoint = tessera.open(path)
    dcp.save(
        {"model": {"layers.0.weight": torch.zeros(7, 5)}},
        storage_writer=tessera.torch.Writer(path),
    )
    child = os.fork()
    if child == 0:
        try:
            checkpoint["model.layers.0.weight"].numpy()
            os._exit(1)
        except tessera.FailedPreconditionError:
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0


def test_objects_print_their_names(path):
    text = repr(tessera.open(path).objects)
    assert "objects" in text and "step" in text.splitlines()


@pytest.mark.parametrize("missing", ["numpy", "torch"])
def test_a_missing_package_is_named(path, missing, monkeypatch):
    weight = tessera.open(path)["model.layers.0.weight"]
    read = {"numpy": weight.numpy, "torch": weight.torch}[missing]
    monkeypatch.setitem(sys.modules, missing, None)
    with pytest.raises(ImportError, match=f"pip install 'tessera.{missing}.'"):
        read()


@pytest.mark.parametrize(
    "keywords",
    [
        {"memory": "-1"},
        {"memory": -1},
        {"memory": True},
        {"max_rate": "fast"},
        {"direct": "yes"},
        {"direct": 1},
        {"overwrite": "no"},
        {"async_staging": None},
    ],
)
def test_a_wrong_option_is_an_error_with_its_name(keywords):
    ((name, value),) = keywords.items()
    with pytest.raises(tessera.InvalidArgumentError) as raised:
        tessera.torch.Writer("c", **keywords)
    assert raised.value.field == name
    assert f"{name}={value!r}" in str(raised.value)


def test_sizes_are_parsed():
    assert parse_bytes("1GiB") == 1 << 30
    assert parse_bytes("500MB") == 500_000_000
    assert parse_bytes("1.5 kB") == 1500
    assert parse_bytes("7") == 7
    with pytest.raises(tessera.InvalidArgumentError):
        parse_bytes("much")


@pytest.fixture
def numbered(tmp_path):
    """A checkpoint as accelerate saves it, with an optimizer that counts
    parameters with equal shapes."""
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    tessera.safetensors.save_file(
        model.state_dict(), tmp_path / "model.safetensors"
    )
    torch.save(optimizer.state_dict(), tmp_path / "optimizer.bin")
    return tmp_path


def test_a_loss_of_a_checkpoint_is_a_warning(numbered, tmp_path):
    with pytest.warns(
        tessera.LossWarning, match="cannot be told apart"
    ) as told:
        checkpoint = tessera.open(numbered)
    assert told[0].filename == __file__
    assert len(checkpoint.warnings) == 1
    assert "optimizer.state.0.exp_avg" in checkpoint
    with pytest.warns(tessera.LossWarning, match="cannot be told apart"):
        result = tessera.convert(numbered, tmp_path / "dcp")
    assert len(result["warnings"]) == 1
