# SPDX-License-Identifier: Apache-2.0
"""A tensor on the way into a file: resolved when the first byte is needed, and
dropped after the last."""

from __future__ import annotations

import ctypes
from typing import Any
from typing import Callable
from typing import Optional

import torch

from tessera import _dense
from tessera import _errors


class Source:
    """Fills the library's memory; see tessera_fill.

    Args:
      name: for messages.
      num_bytes: how many there are, by the plan.
      resolve: returns them: one dimension, uint8, on any device.

    Attributes:
      failure: the error in `fill`, or None.
    """

    def __init__(
        self, name: str, num_bytes: int, resolve: Callable[[], torch.Tensor]
    ):
        self._name = name
        self._num_bytes = num_bytes
        self._resolve = resolve
        self._bytes: Optional[torch.Tensor] = None
        self._address = 0  # address of the bytes, if they are on the CPU
        self.failure: Optional[BaseException] = None

    def _open(self) -> torch.Tensor:
        content = self._resolve()
        if content.numel() != self._num_bytes:
            raise _errors.InvalidArgumentError(
                f"{self._name}: the planner gave {content.numel()} bytes, but "
                f"its plan says {self._num_bytes}",
                tensor=self._name,
            )
        if content.device.type == "cpu":
            self._address = _dense.address(content, self._name)
        return content

    def fill(self, context: Any, offset: int, dst: int, size: int) -> int:
        try:
            if self._bytes is None:
                self._bytes = self._open()
            if self._bytes.device.type == "cpu":
                ctypes.memmove(dst, self._address + offset, size)
            else:
                memory = (ctypes.c_uint8 * size).from_address(dst)
                torch.frombuffer(memory, dtype=torch.uint8).copy_(
                    self._bytes[offset : offset + size]
                )
            if offset + size == self._num_bytes:
                self._bytes = None
            return 0
        except BaseException as failure:  # raised by the writer
            self.failure = failure
            return 1
