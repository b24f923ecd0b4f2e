# SPDX-License-Identifier: Apache-2.0
"""The verbs as functions, and the commands in the environment."""

import os
import pathlib
import subprocess
import sys

import pytest
import torch
import torch.distributed.checkpoint as dcp

import tessera
from conftest import assert_same
from conftest import blank

BIN = pathlib.Path(sys.executable).parent


@pytest.fixture
def path(state, tmp_path):
    dcp.save(state, checkpoint_id=tmp_path / "c")
    return tmp_path / "c"


def test_convert_there_and_back(state, path, tmp_path):
    done = tessera.convert(path, tmp_path / "m.pt")
    assert done["done"]
    found = torch.load(tmp_path / "m.pt", weights_only=False)
    assert_same(found["model"], state["model"])
    tessera.reshard(tmp_path / "m.pt", tmp_path / "d", mesh={"shard": 3})
    assert len(list((tmp_path / "d").glob("*.distcp"))) == 3
    loaded = blank(state)
    dcp.load(loaded, checkpoint_id=tmp_path / "d")
    assert_same(loaded, state)
    assert tessera.diff(path, tmp_path / "d")["equal"]


def test_options_are_those_of_the_command(path, tmp_path):
    done = tessera.consolidate(
        path,
        tmp_path / "m.safetensors",
        include=["model.layers.*", "model.bfloat"],
        cast="bf16",
        verify=False,
    )
    assert not done["checked"]
    found = tessera.open(tmp_path / "m.safetensors")
    assert {t.dtype for t in found.values()} == {"bfloat16"}


def test_progress_is_reported(path, tmp_path):
    reports = []
    tessera.convert(path, tmp_path / "m.pt", progress=reports.append)
    assert reports[-1].done_bytes == reports[-1].total_bytes > 0


def test_an_error_of_the_progress_stops_the_program(path, tmp_path):
    (tmp_path / "out").mkdir()

    def fail(report):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tessera.convert(path, tmp_path / "out" / "m.pt", progress=fail)
    assert not list((tmp_path / "out").iterdir())


def test_a_difference_is_a_result(state, path, tmp_path):
    state["step"] = 8
    dcp.save(state, checkpoint_id=tmp_path / "d")
    assert not tessera.diff(path, tmp_path / "d")["equal"]


def test_options_have_the_forms_of_python(path, tmp_path):
    tessera.convert(
        path,
        tmp_path / "m.safetensors",
        include=["model.layers.*"],
        metadata={"author": "me", "run": 7},
        from_="dcp",
        max_memory=64 << 20,
    )
    found = tessera.open(tmp_path / "m.safetensors").metadata
    assert found["author"] == "me" and found["run"] == "7"


def test_a_message_names_the_keyword(path, tmp_path):
    with pytest.raises(tessera.InvalidArgumentError) as raised:
        tessera.convert(path, tmp_path / "m.pt", max_memory="much")
    assert str(raised.value).startswith("max_memory: ")
    assert raised.value.field == "max_memory"
    assert "help(tessera.convert)" in str(raised.value)
    (tmp_path / "m.pt").touch()
    with pytest.raises(tessera.AlreadyExistsError) as raised:
        tessera.convert(path, tmp_path / "m.pt")
    assert "overwrite" in str(raised.value)
    assert "--" not in str(raised.value)
    with pytest.raises(tessera.InvalidArgumentError) as raised:
        tessera.convert(path, tmp_path / "m", include={"model.*"})
    assert raised.value.field == "include"


def test_a_bar_is_shown(path, tmp_path, capsys):
    tessera.convert(path, tmp_path / "m.pt", progress=True)
    assert "convert" in capsys.readouterr().err


def test_the_types_are_those_of_the_options():
    # The wheel has them; they are made from the program's help.
    from tessera import _options

    told = _options.ConvertOptions.__annotations__
    assert told["overwrite"] is bool
    assert {"mesh", "cast", "verify", "from_", "max_memory"} <= set(told)
    assert "mesh" not in _options.ReshardOptions.__annotations__


def test_errors_have_their_class(path, tmp_path):
    with pytest.raises(tessera.NotFoundError, match="nothing"):
        tessera.inspect(tmp_path / "nothing")
    with pytest.raises(tessera.InvalidArgumentError, match="bogus"):
        tessera.convert(path, tmp_path / "m.pt", bogus=True)
    (tmp_path / "m.pt").touch()
    with pytest.raises(tessera.AlreadyExistsError):
        tessera.convert(path, tmp_path / "m.pt")


@pytest.mark.parametrize("name", ["dcp-convert", "dcp-server", "fsdp-config"])
def test_the_commands_are_in_the_environment(name):
    done = subprocess.run(
        [BIN / name, "--help"], stdout=subprocess.PIPE, text=True, check=True
    )
    assert name in done.stdout


def test_the_exit_code_is_that_of_the_program(tmp_path):
    done = subprocess.run(
        [BIN / "dcp-convert", "inspect", tmp_path / "nothing"],
        stderr=subprocess.DEVNULL,
    )
    assert done.returncode == 3


def test_the_versions_agree():
    printed = subprocess.check_output(
        [BIN / "dcp-convert", "--version"], text=True
    )
    assert tessera.__version__ in printed
    from tessera._library import library

    library().tessera_version.restype = __import__("ctypes").c_char_p
    assert library().tessera_version().decode() == tessera.__version__


def test_no_compiler_is_in_the_path():
    assert os.environ["PATH"] == str(BIN)
