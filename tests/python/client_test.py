# SPDX-License-Identifier: Apache-2.0
"""tessera.client and tessera:// paths, with a real daemon; NumPy, PyTorch and
tessera.open on the disk are the judges."""

import os
import pathlib
import pickle
import subprocess
import sys
import tempfile

import numpy as np
import pytest
import torch
import torch.distributed.checkpoint as dcp

import tessera
import tessera.client
import tessera.torch
from conftest import assert_same
from conftest import assert_threads_read
from conftest import blank
from conftest import run_ranks
from daemon import Daemon
from daemon import make_certificate
from daemon import Proxy
from tessera.client import _tensor_reader
from tessera.client._url import parse_url
from tessera.client._url import join_url

RANKS = pathlib.Path(__file__).with_name("ranks.py")


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    process = Daemon(tmp_path_factory.mktemp("daemon"))
    yield process
    process.stop()


@pytest.fixture
def name(state, daemon, request):
    """A separate checkpoint for each test."""
    name = request.node.name.replace("[", "-").replace("]", "")
    dcp.save(state, checkpoint_id=daemon.root / name)
    return name


def test_the_package_works_without_grpcio(tmp_path):
    code = """
import sys
sys.modules["grpc"] = None  # as if it were not installed
import torch, tessera, tessera.torch
import torch.distributed.checkpoint as dcp
url = "tessera://127.0.0.1:7420/c"
for work in (
    lambda: tessera.open(url),
    lambda: dcp.load({}, storage_reader=tessera.torch.Reader(url)),
    lambda: __import__("tessera.client"),
):
    try:
        work()
    except (ImportError, dcp.api.CheckpointException) as raised:
        assert "pip install 'tessera[client]'" in str(raised), raised
    else:
        raise AssertionError("it was not refused")
dcp.save({"a": torch.ones(1)}, storage_writer=tessera.torch.Writer(sys.argv[1]))
assert tessera.open(sys.argv[1])["a"][0] == 1
assert "grpc._cython" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code, tmp_path / "c"], check=True)


def test_opening_a_path_does_not_import_grpcio():
    code = "import sys, tessera, tessera.torch; sys.exit('grpc' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


@pytest.mark.parametrize(
    ("url", "address", "path"),
    [
        ("tessera://host:7420/srv/a", "host:7420", "/srv/a"),
        ("tessera://[::1]:7420/srv/a", "[::1]:7420", "/srv/a"),
        ("tessera://unix:/run/s:/srv/a", "unix:/run/s", "/srv/a"),
        ("tessera://h:1/s3://bucket/a", "h:1", "s3://bucket/a"),
        ("tessera://h:1/a%20b", "h:1", "/a%20b"),
        ("tessera://h:1/a-b://c", "h:1", "/a-b://c"),
    ],
)
def test_urls_are_parsed(url, address, path):
    assert parse_url(url) == (address, path)
    assert join_url(address, path) == url


@pytest.mark.parametrize(
    "url",
    [
        *("tessera://", "tessera://host/a", "tessera://host:7420"),
        *("tessera://host:7420/", "tessera:///srv/a", "tessera://:1/a"),
        *("tessera://host:70000/a", "tessera://host:x/a"),
        *("tessera://unix:/a", "tessera://unix:/s:a", "tessera://unix::/a"),
    ],
)
def test_other_urls_are_refused(url):
    with pytest.raises(tessera.InvalidArgumentError, match="expected a URL"):
        tessera.open(url)


def test_it_is_the_mapping_that_a_path_is(daemon, name):
    there = tessera.open(daemon.url(name))
    here = tessera.open(daemon.root / name)
    assert there.format == here.format
    assert list(there) == list(here)
    for key, tensor in there.items():
        assert tensor.shape == here[key].shape
        assert tensor.dtype == here[key].dtype
        assert tensor.keys == here[key].keys
        assert tensor.chunks == here[key].chunks
    assert_same(there.to_torch(), here.to_torch())
    assert dict(there.objects) == dict(here.objects)
    assert there.objects.keys_of == here.objects.keys_of
    assert (
        repr(there).partition(":")[2].partition(":")[2].partition(": ")[2]
        == repr(here).partition(": ")[2]
    )
    assert there._repr_html_().count("<svg") > 3
    with pytest.raises(KeyError):
        there["nothing"]
    with pytest.raises(KeyError):
        there.objects["nothing"]


@pytest.mark.parametrize(
    "index",
    [Ellipsis, 3, slice(2, 7), slice(5, 2), (slice(1, 6, 2), 2), (2, 3)],
)
def test_an_index_reads_what_it_selects(state, daemon, name, index):
    weight = state["model"]["layers.0.weight"].numpy()
    found = tessera.open(daemon.url(name))["model.layers.0.weight"][index]
    np.testing.assert_array_equal(found, weight[index])


def test_numpy_torch_and_dlpack_take_it(state, daemon, name):
    weight = tessera.open(daemon.url(name))["model.layers.0.weight"]
    expected = state["model"]["layers.0.weight"]
    np.testing.assert_array_equal(np.asarray(weight), expected.numpy())
    assert torch.equal(torch.from_dlpack(weight), expected)
    assert torch.equal(weight.torch(2, torch.float64), expected[2].double())


def test_items_come_in_the_order_of_files(state, daemon, name):
    checkpoint = tessera.open(daemon.url(name))
    items = list(checkpoint.items(memory=64, framework="torch"))
    assert_same(
        dict(items), {"model." + n: t for n, t in state["model"].items()}
    )


def test_other_formats_are_read(daemon):
    from safetensors.torch import save_file

    tensors = {"w": torch.randn(4, 3), "b": torch.randn(3).bfloat16()}
    save_file(tensors, daemon.root / "m.safetensors", {"made by": "a test"})
    torch.save({**tensors, "step": 7}, daemon.root / "m.pt")
    for file, format_ in (("m.safetensors", "safetensors"), ("m.pt", "pt")):
        with tessera.open(daemon.url(file)) as checkpoint:
            assert checkpoint.format == format_
            assert_same(checkpoint.to_torch(), tensors)
    with daemon.client() as client:
        checkpoint = client.open(daemon.root / "m.safetensors")
        assert checkpoint.metadata == {"made by": "a test"}
        assert checkpoint.path == daemon.url("m.safetensors")
        assert client.open(daemon.root / "m.pt").objects["step"] == 7


def test_names_with_the_letters_of_globs(daemon):
    state = {
        name: i for i, name in enumerate(["a*", "a?", "a[b]", "a\\", "ab"])
    }
    dcp.save({**state, "w[0]*": torch.ones(2)}, checkpoint_id=daemon.root / "g")
    checkpoint = tessera.open(daemon.url("g"))
    assert dict(checkpoint.objects) == state
    assert checkpoint["w[0]*"][0] == 1


def test_a_unix_socket(state, tmp_path):
    # A socket's path must be short.
    with tempfile.TemporaryDirectory() as folder:
        local = Daemon(tmp_path, listen=f"unix:{folder}/s")
        try:
            dcp.save(state, checkpoint_id=local.root / "c")
            url = f"tessera://unix:{folder}/s:{local.root / 'c'}"
            assert tessera.open(url)["model.scalar"][()] == 3
            with tessera.client.Client(f"unix:{folder}/s") as client:
                assert client.open(local.root / "c").path == url
        finally:
            local.stop()


def test_large_reads_use_several_streams(daemon, monkeypatch):
    monkeypatch.setattr(_tensor_reader, "_MIN_RANGE_BYTES", 1 << 20)
    tensors = {"a": torch.randn(1 << 20), "b": torch.randn((1 << 20) + 7)}
    dcp.save(tensors, checkpoint_id=daemon.root / "streams")
    before = len(daemon.log)
    with daemon.client(num_streams=3) as client:
        found = client.open(daemon.root / "streams").to_torch()
        client.jobs()  # so that the log is there
    assert_same(found, tensors)
    method = "method=CheckpointService.ReadTensors"
    assert sum(method in line for line in daemon.log[before:]) == 3


def test_many_parts_take_several_requests(daemon):
    tensors = {f"{i:05}" + "x" * 500: torch.full((1,), i) for i in range(5000)}
    dcp.save(tensors, checkpoint_id=daemon.root / "many")
    found = tessera.open(daemon.url("many")).to_torch()
    assert list(found) == list(tensors)
    assert all(found[name][0] == i for i, name in enumerate(tensors))


def test_a_read_holds_a_tensor_once(daemon):
    size = 192 << 20
    dcp.save(
        {"w": torch.ones(size, dtype=torch.uint8)},
        checkpoint_id=daemon.root / "large",
    )
    code = f"""
import resource, sys, numpy, tessera
checkpoint = tessera.open(sys.argv[1])
checkpoint["w"][:1000]
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
assert checkpoint["w"][:].all()
more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 - before
# The array that all() makes of bytes is small.
assert more < {size} + (64 << 20), more >> 20
"""
    subprocess.run(
        [sys.executable, "-c", code, daemon.url("large")], check=True
    )


def test_the_reader_loads_from_a_daemon(state, daemon, name):
    found = blank(state)
    dcp.load(found, storage_reader=tessera.torch.Reader(daemon.url(name)))
    assert_same(found, state)
    half = {"model": {"layers.0.weight": torch.zeros(7, 5).bfloat16()}}
    dcp.load(
        half,
        storage_reader=tessera.torch.Reader(daemon.url(name), memory="1MiB"),
    )
    assert torch.equal(
        half["model"]["layers.0.weight"],
        state["model"]["layers.0.weight"].bfloat16(),
    )


def test_ranks_read_what_they_need(daemon):
    weight = torch.arange(1 << 20).reshape(1024, 1024).float()
    dcp.save({"w": weight, "step": 7}, checkpoint_id=daemon.root / "ranks")
    proxy = Proxy(daemon.address)
    url = f"tessera://{proxy.address}{daemon.root / 'ranks'}"
    try:
        run_ranks(2, RANKS, "from_daemon", url)
    finally:
        proxy.close()
    assert proxy.num_connections == 2
    assert 4 << 20 < proxy.num_bytes < 5 << 20


def test_threads_read_one_checkpoint(state, daemon, name):
    checkpoint = tessera.open(daemon.url(name))
    weight = state["model"]["layers.0.weight"]
    assert_threads_read(checkpoint, "model.layers.0.weight", weight)


@pytest.mark.parametrize("by_client", [False, True])
def test_it_reaches_the_daemon_again_when_it_is_unpickled(
    state, daemon, name, by_client
):
    options = tessera.client.ClientOptions(num_streams=2)
    if by_client:
        client = daemon.client(num_streams=2)
        checkpoint = client.open(daemon.root / name)
    else:
        checkpoint = tessera.open(daemon.url(name), options)
    told = pickle.dumps(checkpoint)
    checkpoint.close()
    with pickle.loads(told) as again:
        assert_same(
            again["model.layers.0.weight"].torch(),
            state["model"]["layers.0.weight"],
        )
        # Those after it are reached with the same options.
        assert pickle.dumps(again) == told


def test_a_daemon_does_not_take_saves(state, daemon, name):
    writer = tessera.torch.Writer(daemon.url(name))
    with pytest.raises(dcp.api.CheckpointException, match="not take saves"):
        dcp.save(state, storage_writer=writer)


def test_a_daemon_cannot_verify_while_it_reads(state, daemon, name):
    reader = tessera.torch.Reader(daemon.url(name), verify=True)
    with pytest.raises(dcp.api.CheckpointException, match="Client.verify"):
        dcp.load(blank(state), storage_reader=reader)


def test_tls_and_a_token(state, tmp_path):
    import hashlib

    certificate, key = make_certificate(tmp_path)
    (tmp_path / "token").write_text("let me in\n".replace(" ", "-"))
    digest = hashlib.sha256(b"let-me-in").hexdigest()
    tokens = tmp_path / "tokens"
    tokens.write_text(f"trainer {digest} write={tmp_path / 'root'}\n")
    tokens.chmod(0o600)
    secured = Daemon(
        tmp_path,
        f"--tls-cert={certificate}",
        f"--tls-key={key}",
        f"--tokens-file={tokens}",
    )
    options = tessera.client.ClientOptions(
        ca_file=certificate, token_file=tmp_path / "token"
    )
    try:
        dcp.save(state, checkpoint_id=secured.root / "c")
        checkpoint = tessera.open(secured.url("c"), options)
        assert checkpoint["model.scalar"][()] == 3
        found = blank(state)
        dcp.load(
            found,
            storage_reader=tessera.torch.Reader(
                secured.url("c"), daemon=options
            ),
        )
        assert_same(found, state)
        with pytest.raises(tessera.UnauthenticatedError) as raised:
            secured.client(ca_file=certificate).jobs()
        assert raised.value.reason == "TOKEN_MISSING"
        os.environ["TESSERA_TOKEN"] = "another"
        with pytest.raises(tessera.UnauthenticatedError) as raised:
            secured.client(ca_file=certificate).jobs()
        assert raised.value.reason == "TOKEN_INVALID"
        # Without TLS, and with an authority that has not signed.
        with pytest.raises(tessera.UnavailableError):
            secured.client(max_retries=0).jobs()
        with pytest.raises(tessera.UnavailableError):
            secured.client(tls=True, max_retries=0).jobs()
    finally:
        os.environ.pop("TESSERA_TOKEN", None)
        secured.stop()


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"ca_file": "/nothing"}, "No such file"),
        ({"ca_file": os.devnull}, "is empty"),
        ({"cert_file": os.devnull}, "together"),
        ({"cert_file": os.devnull, "key_file": os.devnull}, "requires tls"),
        ({"token_file": __file__}, "one word"),
        ({"timeout": 0}, "timeout is 0"),
        ({"max_retries": -1}, "max_retries is -1"),
        ({"num_streams": 0}, "num_streams is 0"),
    ],
)
def test_wrong_options_are_named(options, words):
    with pytest.raises(tessera.InvalidArgumentError, match=words):
        tessera.client.Client(
            "127.0.0.1:1", tessera.client.ClientOptions(**options)
        )


@pytest.mark.parametrize("address", ["", "host", "host:", "host:70000", ":1"])
def test_wrong_addresses_are_refused(address):
    with pytest.raises(tessera.InvalidArgumentError, match="expected one such"):
        tessera.client.Client(address)


def test_options_of_a_daemon_need_a_daemon(tmp_path):
    with pytest.raises(tessera.InvalidArgumentError, match="not on a daemon"):
        tessera.open(tmp_path, tessera.client.ClientOptions())
