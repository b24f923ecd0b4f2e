# SPDX-License-Identifier: Apache-2.0
"""The parts that tessera.torch.register replaces, and those that it leaves
alone.

Each test runs in a separate process, because a registration cannot be undone.
adapters_test.py has a save in another process.
"""

import subprocess
import sys

import pytest

BEFORE = """
import os, pathlib
import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import FileSystemReader, FileSystemWriter
from torch.distributed.checkpoint import filesystem
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save
from torch.distributed.checkpoint.format_utils import torch_save_to_dcp
import tessera
import tessera.torch

state = {"model": {"w": torch.arange(6.)}, "step": 7}

def check(**options):
    found = {"model": {"w": torch.zeros(6)}, "step": 0}
    dcp.load(found, **options)
    assert torch.equal(found["model"]["w"], state["model"]["w"])
    assert found["step"] == 7

def is_ours(path):
    return bool(list(pathlib.Path(path).glob(".digests-*")))

class Derived(FileSystemReader):
    def read_data(self, plan, planner):
        for item in plan.items:  # what only PyTorch's reader has
            assert self.storage_data[item.storage_index].relative_path
        return super().read_data(plan, planner)
"""


@pytest.fixture
def run(tmp_path):
    def run(code):
        done = subprocess.run(
            [sys.executable, "-W", "ignore", "-c", BEFORE + code],
            cwd=tmp_path,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert done.returncode == 0, done.stdout[-4000:]

    return run


def test_plain_paths_use_both(run):
    run("""
tessera.torch.register()
dcp.save(state, checkpoint_id="run/step-1")  # the folder run is made
assert is_ours("run/step-1")
check(checkpoint_id="run/step-1")
assert type(FileSystemReader("run/step-1")) is FileSystemReader
check(storage_reader=FileSystemReader("run/step-1"))
dcp.async_save(state, checkpoint_id=pathlib.Path("run/step-2")).result()
assert is_ours("run/step-2")
check(checkpoint_id="run/step-2")
""")


def test_names_that_were_imported_before_are_replaced(run):
    run("""
tessera.torch.register(file_system=True)
writer = FileSystemWriter("a/b", thread_count=4, sync_files=False)
assert isinstance(writer, tessera.torch.Writer)
assert isinstance(writer, FileSystemWriter)
dcp.save(state, storage_writer=writer)
assert is_ours("a/b")
reader = FileSystemReader(path="a/b")
assert isinstance(reader, tessera.torch.Reader)
assert isinstance(reader, FileSystemReader)
assert "model.w" in reader.read_metadata().state_dict_metadata
check(storage_reader=reader)
try:
    dcp.save(state, storage_writer=FileSystemWriter("a/b", overwrite=False))
    raise SystemExit("the checkpoint was replaced")
except dcp.api.CheckpointException as raised:
    (failure,) = raised.failures.values()
    assert isinstance(failure[0], tessera.AlreadyExistsError)
try:
    FileSystemReader("none").read_metadata().state_dict_metadata
    raise SystemExit("a checkpoint that does not exist was described")
except tessera.NotFoundError:
    pass
dcp_to_torch_save("a/b", "whole.pt")
torch_save_to_dcp("whole.pt", "back")
assert is_ours("back")
check(checkpoint_id="back")
""")


def test_what_pytorch_alone_writes_or_reads_is_left_to_it(run):
    run("""
tessera.torch.register(file_system=True)
tessera.torch.register(file_system=True)  # a second time changes nothing
dcp.save(state, checkpoint_id="ours")
check(storage_reader=Derived("ours"))
if hasattr(dcp, "HuggingFaceStorageWriter"):  # since PyTorch 2.8
    format = filesystem.SerializationFormat.SAFETENSORS
    writer = FileSystemWriter("other", serialization_format=format)
    assert type(writer) is FileSystemWriter
    dcp.save({"w": torch.ones(2)}, storage_writer=writer)
    assert not is_ours("other")
    writer = dcp.HuggingFaceStorageWriter("hf", {"w": 1})
    dcp.save({"w": torch.ones(2)}, storage_writer=writer)
    assert list(pathlib.Path("hf").glob("*.safetensors")) and not is_ours("hf")
url = "file://" + os.path.abspath("with-fsspec")
dcp.save(state, checkpoint_id=url)
check(checkpoint_id=url)
assert os.path.exists("with-fsspec") and not is_ours("with-fsspec")
for url in ("s3://bucket/step-1", "tessera://trainer-7:7420/step-1"):
    assert isinstance(FileSystemReader(url), tessera.torch.Reader)
for wrong in (lambda: FileSystemWriter(), lambda: FileSystemReader(1, 2, 3, 4)):
    try:
        wrong()
        raise SystemExit("wrong arguments were taken")
    except TypeError:
        pass
""")


def test_urls_that_no_store_serves_are_left_to_fsspec(run):
    run("""
import fsspec
from fsspec.implementations.memory import MemoryFileSystem

class Elsewhere(MemoryFileSystem):
    protocol = ("gs", "hdfs", "abfs")

for scheme in Elsewhere.protocol:
    fsspec.register_implementation(scheme, Elsewhere, clobber=True)
urls = ["gs://bucket/x", "hdfs://host/x", "abfs://c@a.dfs.core.windows.net/x"]
for url in urls:
    dcp.save(state, checkpoint_id=url)
tessera.torch.register()
for url in urls:
    check(checkpoint_id=url)
    dcp.save(state, checkpoint_id=url + "-2")
    check(checkpoint_id=url + "-2")
    try:
        dcp.save(state, storage_writer=tessera.torch.Writer(url))
        raise SystemExit("it was saved without a plugin")
    except dcp.api.CheckpointException as raised:
        (failure,) = raised.failures.values()
        assert isinstance(failure[0], tessera.UnimplementedError), failure
        assert "plugin" in str(failure[0]), failure
""")


def test_attributes_are_those_of_pytorchs_classes(run):
    run("""
tessera.torch.register(file_system=True)
writer, reader = FileSystemWriter("a"), FileSystemReader("a")
for storage in (writer, reader):
    assert storage.path == storage.checkpoint_id == pathlib.Path("a")
    assert not storage.fs.exists(storage.path / ".metadata")
first = writer.save_id
dcp.save(state, storage_writer=writer)
assert writer.save_id != first and writer.single_file_per_rank
check(storage_reader=reader)
meta = dcp.FileSystemReader("a").read_metadata().storage_meta
assert meta.load_id and meta.checkpoint_id
try:
    dcp.save(state, storage_writer=FileSystemWriter("a", overwrite=False))
    raise SystemExit("the checkpoint was replaced")
except dcp.api.CheckpointException as raised:
    (failure,) = raised.failures.values()
    assert "Checkpoint already exists" in str(failure[0])
    assert isinstance(failure[0], FileExistsError)
""")


def test_a_pytorch_that_lacks_a_part_is_a_clear_error():
    code = """
import torch.distributed.checkpoint.storage as storage
del storage.StorageWriter
try:
    import tessera.torch
except ImportError as error:
    assert "requires PyTorch 2.4 or newer" in str(error), error
    assert "StorageWriter" in str(error), error
else:
    raise AssertionError("it was imported")
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_registering_with_a_pytorch_of_another_kind_is_a_clear_error():
    code = """
import torch.distributed.checkpoint.state_dict_saver as saver
import tessera, tessera.torch
del saver._storage_setup
try:
    tessera.torch.register()
except tessera.UnimplementedError as error:
    assert "state_dict_saver._storage_setup" in str(error), error
else:
    raise AssertionError("it was registered")
"""
    subprocess.run([sys.executable, "-c", code], check=True)
