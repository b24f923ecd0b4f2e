"""A tensor on its way into a file: resolved when its first byte is needed, and
dropped after the last."""

from __future__ import annotations

import ctypes
from typing import Any
from typing import Callable
from typing import Optional

import torch

from tessera import _arrays
from tessera import _errors


class Source:
    """Fills the library's memory; see tessera_fill.

    Attributes:
      failure: what went wrong in `fill`, or None.
    """

    def __init__(
        self, name: str, dtype: str, sizes: Any, resolve: Callable[[], Any]
    ):
        self._name = name
        self._num_bytes = _arrays.num_bytes(dtype, sizes)
        self._resolve = resolve
        self._bytes: Optional[torch.Tensor] = None  # one dimension, uint8
        self.failure: Optional[BaseException] = None

    def _open(self) -> torch.Tensor:
        tensor = self._resolve().detach()
        if tensor.is_quantized or tensor.layout != torch.strided:
            raise _errors.UnimplementedError(
                f"{self._name}: quantized and sparse tensors cannot be saved"
            )
        tensor = tensor.resolve_conj().resolve_neg().contiguous()
        content = tensor.reshape(-1).view(torch.uint8)
        if content.numel() != self._num_bytes:
            raise _errors.InvalidArgumentError(
                f"{self._name}: the planner gave {content.numel()} bytes, but "
                f"its plan says {self._num_bytes}"
            )
        return content

    def fill(self, context: Any, offset: int, dst: int, size: int) -> int:
        try:
            if self._bytes is None:
                self._bytes = self._open()
            part = self._bytes[offset : offset + size]
            if part.device.type == "cpu":
                ctypes.memmove(dst, part.data_ptr(), size)
            else:
                memory = (ctypes.c_uint8 * size).from_address(dst)
                torch.frombuffer(memory, dtype=torch.uint8).copy_(part)
            if offset + size == self._num_bytes:
                self._bytes = None
            return 0
        except BaseException as failure:  # raised by the writer
            self.failure = failure
            return 1
