# SPDX-License-Identifier: Apache-2.0
"""A TCP port of 127.0.0.1 for a server that cannot choose one itself.

    held_port.py [NUMBER]

prints NUMBER ports (1) in a line, and holds them until its output is closed:

    exec {held}< <(held_port.py); read -r port <&"$held"

A held port is bound, and nothing listens on it. So the kernel gives it neither
to a connection nor to a program that asks for any port, and a server with
SO_REUSEADDR can listen on it, as TCPStore does. A port that is only looked up
may be gone before the server starts.
"""

import select
import socket
import sys

_sockets = []


def held_port():
    """A port that this process holds until it ends."""
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    holder.bind(("127.0.0.1", 0))
    _sockets.append(holder)
    return holder.getsockname()[1]


def main():
    number = int(sys.argv[1]) if len(sys.argv) > 1 else 1
    print(*(held_port() for _ in range(number)), flush=True)
    closed = select.poll()
    closed.register(sys.stdout, 0)  # an error alone: nobody reads
    closed.poll()


if __name__ == "__main__":
    main()
