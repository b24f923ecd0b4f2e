# SPDX-License-Identifier: Apache-2.0
"""The package's programs as commands in the environment."""

from __future__ import annotations

import os
import sys

from tessera._library import FOLDER


def _run(name: str) -> None:
    """Replaces this process."""
    program = FOLDER / "bin" / name
    os.execv(program, [os.fspath(program), *sys.argv[1:]])


def dcp_convert() -> None:
    _run("dcp-convert")


def dcp_server() -> None:
    _run("dcp-server")


def fsdp_config() -> None:
    _run("fsdp-config")
