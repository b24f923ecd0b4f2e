# SPDX-License-Identifier: Apache-2.0
"""A dcp-server for tests, and proxies between it and a client."""

import concurrent.futures
import os
import shutil
import signal
import socket
import subprocess
import threading
import time

import grpc

import tessera.client
from tessera._commands import program


class Daemon:
    """The process, on a separate socket; `folder` has the root.

    Attributes:
      log: the lines that it has written so far.
    """

    def __init__(self, folder, *options, listen="127.0.0.1:0"):
        self.root = folder / "root"
        self.root.mkdir(exist_ok=True)
        self.log = []
        self.process = subprocess.Popen(
            [
                program("dcp-server"),
                f"--root={self.root}",
                f"--state-dir={folder / 'state'}",
                f"--listen={listen}",
                *options,
            ],
            stdin=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._reader = threading.Thread(target=self._read)
        self._reader.start()
        self.address = self.wait_for("event=start", "address")

    def _read(self):
        for line in self.process.stderr:
            self.log.append(line)
        self.process.stderr.close()

    def wait_for(self, text, field=None):
        """The first log line with `text`, or a field in it."""
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            ended = self.process.poll() is not None
            for line in self.log:
                if text in line:
                    fields = dict(
                        word.split("=", 1)
                        for word in line.split()
                        if "=" in word
                    )
                    return line if field is None else fields[field]
            if ended:
                break
            time.sleep(0.01)
        raise AssertionError(f"no {text} in the log:\n" + "".join(self.log))

    def url(self, name):
        return f"tessera://{self.address}{self.root / name}"

    def client(self, **options):
        return tessera.client.Client(
            self.address, tessera.client.ClientOptions(**options)
        )

    def kill(self):
        self._end(signal.SIGKILL)

    def stop(self):
        self._end(signal.SIGTERM)

    def _end(self, number):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGCONT)
            self.process.send_signal(number)
        self.process.wait()
        self._reader.join()


def make_certificate(folder):
    """A self-signed certificate for 127.0.0.1, and the key."""
    certificate, key = folder / "server.pem", folder / "server.key"
    subprocess.run(
        [
            shutil.which("openssl", path=os.defpath),
            *("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"),
            *("-subj", "/CN=127.0.0.1", "-addext"),
            *("subjectAltName=IP:127.0.0.1", "-keyout", key),
            *("-out", certificate),
        ],
        check=True,
        stderr=subprocess.DEVNULL,
    )
    return certificate, key


class Proxy:
    """Passes connections on to an address.

    Args:
      cuts: after how many bytes from the server each of the first connections
        is cut.
      rate: bytes a second from the server.
    """

    def __init__(self, address, cuts=(), rate=None):
        host, _, port = address.rpartition(":")
        self._to = (host, int(port))
        self._cuts = list(cuts)
        self._rate = rate
        self.num_connections = 0
        self.num_bytes = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = "127.0.0.1:%d" % self._listener.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self):
        while True:
            try:
                client = self._listener.accept()[0]
            except OSError:
                return
            self.num_connections += 1
            server = socket.create_connection(self._to)
            cut = self._cuts.pop(0) if self._cuts else None
            for arguments in ((client, server, None), (server, client, cut)):
                threading.Thread(
                    target=self._pump, args=arguments, daemon=True
                ).start()

    def _pump(self, src, dst, cut):
        passed = 0
        try:
            while cut is None or passed < cut:
                most = 16 << 10 if cut is None else min(cut - passed, 16 << 10)
                data = src.recv(most)
                if not data:
                    break
                if self._rate is not None and len(data) > 1000:
                    time.sleep(len(data) / self._rate)
                dst.sendall(data)
                passed += len(data)
                self.num_bytes += len(data)
        except OSError:
            pass
        for each in (src, dst):
            try:
                each.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass
            each.close()


class Interloper(grpc.GenericRpcHandler):
    """A server that passes calls on, and changes one method's answers.

    Args:
      change: (number of the message in the call, message) -> message.
    """

    def __init__(self, address, method, change):
        self._method = method
        self._change = change
        self._channel = grpc.insecure_channel(address)
        self._server = grpc.server(concurrent.futures.ThreadPoolExecutor(4))
        self._server.add_generic_rpc_handlers([self])
        port = self._server.add_insecure_port("127.0.0.1:0")
        self._server.start()
        self.address = f"127.0.0.1:{port}"

    def service(self, handler_call_details):
        path = handler_call_details.method

        def pass_on(request, context):
            call = self._channel.unary_stream(path)
            try:
                for number, reply in enumerate(call(request)):
                    if path.endswith(self._method):
                        reply = self._change(number, reply)
                    yield reply
            except grpc.RpcError as failure:
                context.abort(failure.code(), failure.details())

        return grpc.unary_stream_rpc_method_handler(pass_on)

    def close(self):
        self._server.stop(None).wait()
        self._channel.close()
