# SPDX-License-Identifier: Apache-2.0
"""A connection to a daemon, and the calls that are made through it."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import threading
import time
from typing import Any
from typing import Iterator
from typing import List
from typing import Optional
from typing import Tuple
from typing import Union

import grpc

from tessera import _errors
from tessera.client import _messages
from tessera.client import _status
from tessera.client._backoff import Backoff
from tessera.client._stop import Stop
from tessera.client._url import has_port
from tessera.client._url import UNIX

Path = Union[str, "os.PathLike[str]"]

_OPTIONS = (
    # A server that vanished is noticed after the sum of these two. Servers
    # reject pings that are more frequent.
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.keepalive_timeout_ms", 20_000),
    # How soon a broken connection is made again; other retries are up to
    # Backoff.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 2_000),
    ("grpc.max_reconnect_backoff_ms", 2_000),
    # Which calls are harmless to repeat is known here only.
    ("grpc.enable_retries", 0),
    # A page of a list can exceed gRPC's default of 4 MiB; a daemon never answers
    # with more than this.
    ("grpc.max_receive_message_length", 256 << 20),
)


@dataclasses.dataclass(frozen=True)
class ClientOptions:
    """How a daemon is reached.

    Attributes:
      tls: uses TLS; the system's authorities check the server's certificate.
      ca_file: uses TLS, and this authority checks it. PEM, as are the next two.
      cert_file, key_file: this client's certificate and key, if the server
        requires one; both or neither.
      token_file: the file with the token.
      token_variable: the environment variable with the token, if there is no
        file.
      timeout: seconds for each call with all retries, unless the call sets
        another; None: as long as the daemon answers.
      max_retries: how often in a row a call is made again after the daemon
        could not be reached. The default lasts about a minute, which is long
        enough for a daemon to restart.
      num_streams: how many streams a large read uses at most.
    """

    tls: bool = False
    ca_file: Optional[Path] = None
    cert_file: Optional[Path] = None
    key_file: Optional[Path] = None
    token_file: Optional[Path] = None
    token_variable: str = "TESSERA_TOKEN"
    timeout: Optional[float] = None
    max_retries: int = 10
    num_streams: int = 4


def _check(options: ClientOptions) -> None:
    if options.timeout is not None and not options.timeout > 0:
        raise _errors.InvalidArgumentError(
            f"timeout is {options.timeout}: it must be above 0, or None"
        )
    if options.max_retries < 0:
        raise _errors.InvalidArgumentError(
            f"max_retries is {options.max_retries}: it must not be negative"
        )
    if options.num_streams < 1:
        raise _errors.InvalidArgumentError(
            f"num_streams is {options.num_streams}: it must be 1 or more"
        )


def _read(path: Path) -> bytes:
    try:
        with open(path, "rb") as file:
            content = file.read()
    except OSError as failure:
        raise _errors.InvalidArgumentError(
            f"{os.fspath(path)}: {failure.strerror}"
        ) from None
    if not content:
        raise _errors.InvalidArgumentError(f"{os.fspath(path)}: is empty")
    return content


def _credentials(options: ClientOptions) -> Optional[grpc.ChannelCredentials]:
    """None: without TLS."""
    if (options.cert_file is None) != (options.key_file is None):
        raise _errors.InvalidArgumentError(
            "cert_file and key_file must be given together: a client's "
            "certificate and its key"
        )
    if not options.tls and options.ca_file is None:
        if options.cert_file is None:
            return None
        raise _errors.InvalidArgumentError("cert_file requires tls or ca_file")
    files = (options.ca_file, options.key_file, options.cert_file)
    return grpc.ssl_channel_credentials(
        *(None if file is None else _read(file) for file in files)
    )


def _token(options: ClientOptions) -> str:
    if options.token_file is not None:
        token = _read(options.token_file).decode("latin1")
    else:
        token = os.environ.get(options.token_variable, "")
    token = token.strip()
    if not all("!" <= letter <= "~" for letter in token):
        raise _errors.InvalidArgumentError(
            "the token must be one word of printable characters"
        )
    return token


class Channel:
    """Connects on first use and again whenever the connection is lost. Any
    thread in the process that made it.

    Args:
      address: "host:7420", "[::1]:7420" or "unix:/run/dcp-server.sock".
    """

    def __init__(self, address: str, options: ClientOptions):
        if not address.startswith(UNIX) and not has_port(address):
            raise _errors.InvalidArgumentError(
                f"the server's address is {address!r}; expected one such as "
                "host:7420 or unix:/run/dcp-server.sock"
            )
        _check(options)
        self.address = address
        self.options = options
        token = _token(options)
        self._metadata: List[Tuple[str, str]] = (
            [("authorization", f"Bearer {token}")] if token else []
        )
        credentials = _credentials(options)
        self._process = os.getpid()
        self._answered = False  # whether the daemon ever did
        self._lock = threading.Lock()
        self._channel: Optional[grpc.Channel] = (
            grpc.insecure_channel(address, _OPTIONS)
            if credentials is None
            else grpc.secure_channel(address, credentials, _OPTIONS)
        )

    def close(self) -> None:
        """Ends the calls that are being made; further ones are an error."""
        with self._lock:
            channel, self._channel = self._channel, None
        if channel is not None and self._process == os.getpid():
            channel.close()

    def deadline(self, timeout: Optional[float]) -> Optional[float]:
        """When a call that begins now must have ended, by time.monotonic().

        Args:
          timeout: in seconds; None: from the options.
        """
        seconds = self.options.timeout if timeout is None else timeout
        return None if seconds is None else time.monotonic() + seconds

    def backoff(self, deadline: Optional[float], stop: Stop) -> Backoff:
        return Backoff(self.options.max_retries, self._answered, deadline, stop)

    def _open(self) -> grpc.Channel:
        if self._process != os.getpid():
            raise _errors.FailedPreconditionError(
                f"the connection to {self.address} belongs to process "
                f"{self._process}, of which this one is a fork: connect in the "
                "child, or start it with the method 'spawn'"
            )
        channel = self._channel
        if channel is None:
            raise ValueError(f"the connection to {self.address} is closed")
        return channel

    def replies(
        self,
        method: _messages.Method,
        request: Any,
        deadline: Optional[float],
        stop: Stop,
    ) -> Iterator[bytes]:
        """One attempt at a call: the messages, as they arrived. The call ends
        with the generator, which is to be closed."""
        make = self._open().unary_stream(method.path)
        call = make(
            request.SerializeToString(),
            timeout=None
            if deadline is None
            else max(deadline - time.monotonic(), 0.0),
            metadata=self._metadata,
        )
        stop.add(call)
        try:
            for reply in call:
                self._answered = True
                yield reply
            self._answered = True
        except grpc.RpcError as failure:
            if stop.is_requested():
                raise _errors.CancelledError(
                    f"{method.name}: stopped"
                ) from None
            if failure.code() is not grpc.StatusCode.UNAVAILABLE:
                self._answered = True
            raise _status.error_of_rpc(failure, method.name) from None
        finally:
            stop.remove(call)
            call.cancel()

    def call(
        self,
        method: _messages.Method,
        request: Any,
        timeout: Optional[float] = None,
    ) -> Any:
        """The answer from a method that has one. Repeats the call until it
        succeeds or Backoff gives up, so that it must be harmless to make
        twice."""
        answers = self.collect(method, request, timeout)
        if len(answers) != 1:
            raise _errors.DataLossError(
                f"{method.name}: the server sent {len(answers)} answers "
                "instead of one"
            )
        return answers[0]

    def collect(
        self,
        method: _messages.Method,
        request: Any,
        timeout: Optional[float] = None,
        max_bytes: int = 256 << 20,
    ) -> List[Any]:
        """All messages from a method; otherwise the same. DataLossError if they
        have more than `max_bytes`."""
        deadline = self.deadline(timeout)
        stop = Stop()
        backoff = self.backoff(deadline, stop)
        while True:
            messages, size = [], 0
            try:
                with contextlib.closing(
                    self.replies(method, request, deadline, stop)
                ) as replies:
                    for reply in replies:
                        size += len(reply)
                        if size > max_bytes:
                            raise _errors.DataLossError(
                                f"{method.name}: the server sent more than "
                                f"{max_bytes} bytes"
                            )
                        messages.append(
                            _messages.parse(method.reply, reply, method.name)
                        )
                return messages
            except _errors.Error as failure:
                backoff.wait(failure)
