# SPDX-License-Identifier: Apache-2.0
"""The name of a checkpoint on a daemon, in place of a path."""

from __future__ import annotations

from typing import NamedTuple

from tessera import _errors
from tessera._checkpoint import DAEMON

UNIX = "unix:"
_MAX_PORT = 65535


class CheckpointUrl(NamedTuple):
    """The parts of a URL.

    tessera://host:7420/srv/run/step-12, tessera://[::1]:7420/..,
    tessera://unix:/run/dcp-server.sock:/srv/.. for a daemon on the same machine
    (the socket path must have no colon), and after any of these addresses a
    name in an object store, tessera://host:7420/s3://bucket/run/step-12. The
    path is taken literally, without escapes.
    """

    address: str  # "host:7420" or "unix:/socket"
    path: str  # on the server, "/srv/run/step-12" or "s3://bucket/run"


def has_port(address: str) -> bool:
    """Whether it is "host:7420", or an IPv6 address in brackets with a port."""
    host, colon, port = address.rpartition(":")
    return (
        bool(host and colon)
        and port.isascii()
        and port.isdigit()
        and int(port) <= _MAX_PORT
    )


def _path_on_server(path: str) -> str:
    """The full name of a checkpoint in an object store follows the address."""
    scheme, mark, _ = path[1:].partition("://")
    in_store = mark and scheme.isascii() and scheme.isalnum()
    return path[1:] if in_store else path


def parse_url(text: str) -> CheckpointUrl:
    """InvalidArgumentError names the mistake."""

    def malformed(what: str) -> _errors.Error:
        return _errors.InvalidArgumentError(
            f"{text!r}: {what}; expected a URL such as "
            f"{DAEMON}host:7420/srv/step-12",
            path=text,
        )

    rest = text[len(DAEMON) :]
    if rest.startswith(UNIX):
        socket, colon, path = rest[len(UNIX) :].partition(":")
        if not socket or not colon:
            raise malformed(
                "a colon must separate the socket from the checkpoint's path, "
                f"as in {DAEMON}unix:/run/dcp-server.sock:/srv/step-12"
            )
        if not path.startswith("/"):
            raise malformed(
                "the checkpoint's path on the server must begin with /"
            )
        address = UNIX + socket
    else:
        address, slash, path = rest.partition("/")
        path = slash + path
        if not has_port(address):
            raise malformed("the server's address or its port is missing")
    if path in ("", "/"):
        raise malformed("the checkpoint's path on the server is missing")
    return CheckpointUrl(address, _path_on_server(path))


def join_url(address: str, path: str) -> str:
    """The URL with these parts."""
    path = path if path.startswith("/") else "/" + path
    return DAEMON + address + (":" if address.startswith(UNIX) else "") + path
