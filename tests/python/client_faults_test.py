# SPDX-License-Identifier: Apache-2.0
"""Faults between a client and a daemon: kills, hangs, broken connections,
Ctrl-C, forks, replaced checkpoints and dishonest servers."""

import contextlib
import http.server
import os
import pickle
import signal
import subprocess
import sys
import threading
import time

import pytest
import torch
import torch.distributed.checkpoint as dcp

import tessera
import tessera.client
import tessera.torch
from daemon import Daemon
from daemon import Interloper
from daemon import Proxy
from tessera.client import _messages

WEIGHT = torch.arange(2 << 20).float()
FEW = tessera.client.ClientOptions(max_retries=1)


@pytest.fixture(scope="module")
def daemon(tmp_path_factory):
    process = Daemon(tmp_path_factory.mktemp("daemon"))
    state = {"w": WEIGHT, "step": 7}
    dcp.save(state, checkpoint_id=process.root / "c")
    yield process
    process.stop()


@contextlib.contextmanager
def start_proxy(daemon, **options):
    proxy = Proxy(daemon.address, **options)
    try:
        yield proxy
    finally:
        proxy.close()


def test_a_wrong_address_is_an_error_within_seconds():
    begin = time.monotonic()
    with pytest.raises(tessera.UnavailableError, match="after 5 retries"):
        tessera.open("tessera://127.0.0.1:1/srv/c")
    assert time.monotonic() - begin < 30
    with pytest.raises(tessera.UnavailableError):
        tessera.client.Client("no-such-host.invalid:7420", FEW).jobs(timeout=9)


def test_a_server_of_another_kind_is_an_error(daemon):
    with contextlib.closing(
        Interloper(daemon.address, "Inspect", lambda number, reply: b"\xff")
    ) as other:
        with pytest.raises(tessera.DataLossError, match="Inspect"):
            tessera.open(f"tessera://{other.address}{daemon.root / 'c'}", FEW)
    web = http.server.HTTPServer(
        ("127.0.0.1", 0), http.server.BaseHTTPRequestHandler
    )
    threading.Thread(target=web.serve_forever).start()
    try:
        with pytest.raises(tessera.UnavailableError, match="after 1 retries"):
            tessera.open(f"tessera://127.0.0.1:{web.server_port}/c", FEW)
    finally:
        web.shutdown()
        web.server_close()


def test_a_killed_daemon_is_an_error_until_there_is_another(tmp_path):
    first = Daemon(tmp_path)
    dcp.save({"w": WEIGHT}, checkpoint_id=first.root / "c")
    checkpoint = tessera.open(first.url("c"), FEW)
    patient = tessera.open(first.url("c"))
    assert checkpoint["w"][5] == patient["w"][5] == 5
    first.kill()
    with pytest.raises(tessera.UnavailableError, match="after 1 retries"):
        checkpoint["w"][5]
    second = Daemon(tmp_path, listen=first.address)
    try:
        assert patient["w"][6] == 6
        assert checkpoint["w"][7] == 7
    finally:
        second.stop()


def test_a_stream_that_breaks_resumes(daemon):
    with start_proxy(daemon, cuts=[1 << 20, 2 << 20, 3 << 20]) as proxy:
        url = f"tessera://{proxy.address}{daemon.root / 'c'}"
        assert torch.equal(tessera.open(url)["w"].torch(), WEIGHT)
        assert proxy.num_connections == 4
        # Data that has arrived is not sent again.
        assert proxy.num_bytes < 2 * WEIGHT.nbytes


def test_a_daemon_that_hangs_ends_with_the_timeout(tmp_path):
    daemon = Daemon(tmp_path)
    try:
        options = tessera.client.ClientOptions(timeout=1)
        dcp.save({"w": WEIGHT, "step": 7}, checkpoint_id=daemon.root / "c")
        checkpoint = tessera.open(daemon.url("c"), options)
        client = daemon.client(timeout=1)
        client.jobs()
        daemon.process.send_signal(signal.SIGSTOP)
        for work in (
            lambda: checkpoint["w"][:],
            lambda: checkpoint.objects["step"],
            client.jobs,
            lambda: tessera.open(daemon.url("c"), options),
        ):
            begin = time.monotonic()
            with pytest.raises((TimeoutError, tessera.UnavailableError)):
                work()
            assert time.monotonic() - begin < 10
        daemon.process.send_signal(signal.SIGCONT)
        assert checkpoint["w"][7] == 7
    finally:
        daemon.stop()


def test_a_checkpoint_that_is_replaced_is_an_error(daemon):
    path = daemon.root / "replaced"
    dcp.save({"w": WEIGHT, "step": 1}, checkpoint_id=path)
    checkpoint = tessera.open(daemon.url("replaced"))
    assert checkpoint.objects["step"] == 1
    dcp.save({"w": -WEIGHT, "step": 2}, checkpoint_id=path)
    with pytest.raises(tessera.FailedPreconditionError) as raised:
        checkpoint["w"][:]
    assert raised.value.reason == "CHECKPOINT_REPLACED"
    with pytest.raises(tessera.FailedPreconditionError, match="replaced"):
        checkpoint.objects["step"]
    assert tessera.open(daemon.url("replaced"))["w"][1] == -1


def test_a_closed_checkpoint_is_an_error(daemon):
    checkpoint = tessera.open(daemon.url("c"))
    checkpoint.close()
    for work in (
        lambda: checkpoint["w"][0],
        lambda: checkpoint.objects["step"],
    ):
        with pytest.raises(ValueError, match="closed"):
            work()
    with daemon.client() as client:
        pass
    with pytest.raises(ValueError, match="closed"):
        client.jobs()


INTERRUPTED = """
import sys, tessera, tessera.client, tessera.client._tensor_reader as reader
reader._MIN_RANGE_BYTES = 1 << 20
address, path, work = sys.argv[1:]
client = tessera.client.Client(address)
checkpoint = client.open(path)
job = client.verify(path)
job.wait()
print("begins", flush=True)
if work == "read":
    checkpoint["w"][:]
elif work == "items":
    for name, array in checkpoint.items(memory="1GiB"):
        pass
else:
    client.convert(path, path + ".pt").wait()
"""


@pytest.mark.parametrize("work", ["read", "items", "wait"])
def test_ctrl_c_ends_the_call_here_and_there(daemon, work):
    before = len(daemon.log)
    with start_proxy(daemon, rate=200_000) as proxy:
        process = subprocess.Popen(
            [
                *(sys.executable, "-X", "dev", "-c", INTERRUPTED),
                *(proxy.address, daemon.root / "c", work),
            ],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout.readline() == "begins\n"
        if work == "wait":
            daemon.process.send_signal(signal.SIGSTOP)
        time.sleep(0.5)
        begin = time.monotonic()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=60)
        daemon.process.send_signal(signal.SIGCONT)
        assert time.monotonic() - begin < 20
        assert process.returncode == -signal.SIGINT
        assert errors.rstrip().endswith("KeyboardInterrupt")
        assert "Warning" not in errors
        if work == "wait":
            return
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            log = "".join(daemon.log[before:])
            if "ReadTensors code=CANCELLED" in log:
                return
            time.sleep(0.01)
        raise AssertionError("".join(daemon.log[before:]))


def test_a_fork_does_not_use_the_connection(daemon):
    code = """
import os, sys, tessera, tessera.client
address, path = sys.argv[1:]
client = tessera.client.Client(address)
checkpoint = client.open(path)
child = os.fork()
if child == 0:
    refused = 0
    for work in (client.jobs, lambda: checkpoint["w"][0]):
        try:
            work()
        except tessera.FailedPreconditionError as raised:
            refused += "fork" in str(raised)
    client.close()
    os._exit(0 if refused == 2 else 1)
assert os.waitpid(child, 0)[1] == 0
assert checkpoint["w"][3] == 3
"""
    subprocess.run(
        [
            *(sys.executable, "-W", "ignore", "-c", code),
            *(daemon.address, daemon.root / "c"),
        ],
        check=True,
        timeout=60,
    )


def change_chunk(**fields):
    """Changes the first chunk of a stream."""

    def change(number, reply):
        message = _messages.message("ReadTensorsResponse").FromString(reply)
        if not message.HasField("chunk") or number > 1:
            return reply
        for field, value in fields.items():
            setattr(message.chunk, field, value)
        return message.SerializeToString()

    return change


def change_header(change_message):
    def change(number, reply):
        message = _messages.message("ReadTensorsResponse").FromString(reply)
        if message.HasField("header"):
            change_message(message.header)
        return message.SerializeToString()

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (change_chunk(crc32c=1), "checksum of"),
        (change_chunk(data=b"abcd"), "checksum of 4 bytes"),
        (change_chunk(data=b""), "no bytes"),
        (change_chunk(part=9), "part 9 of 1"),
        (change_chunk(offset=4), "out of order"),
        (change_chunk(offset=1 << 63), "exceeds the part"),
        (change_chunk(data=bytes(9 << 20)), "exceeds the part"),
        (change_header(lambda h: h.parts.add()), "part"),
        (change_header(lambda h: h.ClearField("parts")), "0 of 1 parts"),
        (
            change_header(lambda h: setattr(h, "more", True)),
            "before the header",
        ),
        (
            change_header(
                lambda h: (h.ClearField("parts"), setattr(h, "more", True))
            ),
            "header has no parts",
        ),
        (
            change_header(lambda h: setattr(h.parts[0], "name", "v")),
            "asked for",
        ),
        (
            change_header(lambda h: setattr(h.parts[0], "num_bytes", 1 << 40)),
            "the memory has",
        ),
        (lambda number, reply: b"\xff" * 9, "not a ReadTensorsResponse"),
        (lambda number, reply: b"", "neither header nor payload"),
    ],
)
def test_a_dishonest_stream_is_data_loss(daemon, change, words):
    with contextlib.closing(
        Interloper(daemon.address, "ReadTensors", change)
    ) as server:
        url = f"tessera://{server.address}{daemon.root / 'c'}"
        with tessera.open(url) as checkpoint:
            with pytest.raises(tessera.DataLossError, match=words):
                checkpoint["w"][:]


def test_another_etag_is_another_checkpoint(daemon):
    change = change_header(lambda header: setattr(header, "etag", "another"))
    with contextlib.closing(
        Interloper(daemon.address, "ReadTensors", change)
    ) as server:
        url = f"tessera://{server.address}{daemon.root / 'c'}"
        with tessera.open(url) as checkpoint:
            with pytest.raises(tessera.FailedPreconditionError):
                checkpoint["w"][:]


class Attack:
    def __reduce__(self):
        return os.system, ("touch attacked",)


@pytest.mark.parametrize("protocol", [0, 2, 4])
def test_objects_that_would_run_code_are_refused(
    daemon, tmp_path, monkeypatch, protocol
):
    monkeypatch.chdir(tmp_path)

    def change(number, reply):
        message = _messages.message("ReadObjectsResponse").FromString(reply)
        message.pickle = pickle.dumps(Attack(), protocol)
        return message.SerializeToString()

    with contextlib.closing(
        Interloper(daemon.address, "ReadObjects", change)
    ) as server:
        url = f"tessera://{server.address}{daemon.root / 'c'}"
        with pytest.raises(tessera.PermissionDeniedError):
            tessera.open(url).objects["step"]
        with pytest.raises(
            dcp.api.CheckpointException, match="PermissionDenied"
        ):
            dcp.load({"step": 0}, storage_reader=tessera.torch.Reader(url))
    assert not (tmp_path / "attacked").exists()


@pytest.mark.parametrize("content", [b"", b"nothing", pickle.dumps(Attack())])
def test_a_damaged_index_is_refused(daemon, content, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def change(number, reply):
        message = _messages.message("GetMetadataResponse").FromString(reply)
        message.data = content
        return message.SerializeToString()

    with contextlib.closing(
        Interloper(daemon.address, "GetMetadata", change)
    ) as server:
        url = f"tessera://{server.address}{daemon.root / 'c'}"
        with pytest.raises(
            (tessera.DataLossError, tessera.PermissionDeniedError)
        ) as raised:
            tessera.open(url)
        assert raised.value.path == url
        assert "tessera-" not in str(raised.value)
    assert not (tmp_path / "attacked").exists()
