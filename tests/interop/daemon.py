# SPDX-License-Identifier: Apache-2.0
"""A dcp-server of a test, and what calls it from Python.

The stubs are made from the .proto files by grpcio-tools, as a user makes them.
"""

import hashlib
import pathlib
import signal
import subprocess
import sys
import threading

import google.rpc
import grpc
import grpc_tools
from google.rpc import error_details_pb2, status_pb2
from harness import HANG_SECONDS, HERE, expect
from grpc_tools import protoc

PROTO = HERE.parent.parent / "proto"
PROTOS = (
    "google/longrunning/operations_proto.proto",
    "tessera/v1/checkpoint.proto",
    "tessera/v1/checkpoint_service.proto",
    "tessera/v1/job_service.proto",
)
TOKENS = {"trainer": "let me in", "eval": "let me look"}


def make_stubs(out):
    """Writes the modules below `out`, and makes them importable: not before
    that can google.longrunning be imported, for it is among them."""
    imports = (
        PROTO,
        pathlib.Path(grpc_tools.__file__).parent / "_proto",
        pathlib.Path(next(iter(google.rpc.__path__))).parent.parent,
    )
    code = protoc.main(
        [
            "protoc",
            *(f"-I{folder}" for folder in imports),
            f"--python_out={out}",
            f"--grpc_python_out={out}",
            *PROTOS,
        ]
    )
    expect(code == 0, f"protoc ended with {code}")
    sys.path.insert(0, str(out))


def crc32c_table():
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (0x82F63B78 if byte & 1 else 0)
        table.append(byte)
    return table


CRC32C_TABLE = crc32c_table()


def crc32c(data):
    """Castagnoli's, bit by bit as the tables of RFC 3720 have it."""
    crc = 0xFFFFFFFF
    for byte in data:
        crc = crc >> 8 ^ CRC32C_TABLE[(crc ^ byte) & 0xFF]
    return crc ^ 0xFFFFFFFF


class Daemon:
    """The process, on a socket of its own, with two clients' tokens: `trainer`
    may write below the root, `eval` may read."""

    def __init__(self, program, folder):
        self.root = folder / "root"
        self.root.mkdir()
        tokens = folder / "tokens"
        rights = {"trainer": "write", "eval": "read"}
        tokens.write_text(
            "".join(
                f"{name} {hashlib.sha256(token.encode()).hexdigest()} "
                f"{rights[name]}={self.root}\n"
                for name, token in TOKENS.items()
            )
        )
        tokens.chmod(0o600)
        self.process = subprocess.Popen(
            [
                program,
                f"--root={self.root}",
                f"--state-dir={folder / 'state'}",
                "--listen=127.0.0.1:0",
                f"--tokens-file={tokens}",
            ],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.address = self._wait_for_start()
        # Otherwise it would stop when the pipe is full.
        self.reader = threading.Thread(
            target=self.process.stderr.read, daemon=True
        )
        self.reader.start()

    def _wait_for_start(self):
        seen = []
        for line in self.process.stderr:
            seen.append(line)
            fields = dict(w.split("=", 1) for w in line.split() if "=" in w)
            if fields.get("event") == "start":
                return fields["address"]
        raise RuntimeError("dcp-server does not start\n" + "".join(seen))

    def channel(self, token=None):
        """A separate connection, whose calls all carry the token."""
        channel = grpc.insecure_channel(
            self.address,
            options=[
                ("grpc.max_receive_message_length", 8 << 20),
                ("grpc.use_local_subchannel_pool", 1),
            ],
        )
        return grpc.intercept_channel(channel, Bearer(token))

    def stop(self):
        """Its exit code, after what it does when it is asked to end."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(timeout=HANG_SECONDS)

    def kill(self):
        self.process.kill()
        self.process.wait()


class Bearer(
    grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor
):
    """Adds the token, and a deadline against a server that hangs."""

    def __init__(self, token):
        self.token = token

    def _details(self, details):
        metadata = list(details.metadata or [])
        if self.token is not None:
            metadata.append(("authorization", f"Bearer {self.token}"))
        return details._replace(metadata=metadata, timeout=HANG_SECONDS)

    def intercept_unary_unary(self, continuation, details, request):
        return continuation(self._details(details), request)

    def intercept_unary_stream(self, continuation, details, request):
        return continuation(self._details(details), request)


def expect_refused(code, call):
    """The answer to a call that the server must refuse: the error, and what
    its ErrorInfo tells of the place."""
    try:
        answer = call()
        # A stream is refused when it is read.
        if hasattr(answer, "__iter__"):
            for _ in answer:
                pass
    except grpc.RpcError as error:
        expect(error.code() == code, f"{error.code()}: {error.details()}")
        return error, place_of(error)
    raise AssertionError(f"done, but {code} was expected")


def place_of(error):
    for key, value in error.trailing_metadata() or ():
        if key != "grpc-status-details-bin":
            continue
        status = status_pb2.Status.FromString(value)
        for detail in status.details:
            info = error_details_pb2.ErrorInfo()
            if detail.Unpack(info):
                expect(info.domain == "tessera", f"domain {info.domain}")
                return dict(info.metadata)
    return {}
