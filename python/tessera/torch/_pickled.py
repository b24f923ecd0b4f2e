# SPDX-License-Identifier: Apache-2.0
"""Pickles for tensors and objects that only PyTorch can write and read.

The core reads pickles as data. Everything else, such as a torchao tensor, is
handled as in PyTorch's own storage: torch.save writes it, and
torch.load(weights_only=True) reads it, which makes objects only of classes that
PyTorch knows or that torch.serialization.add_safe_globals has named.
"""

from __future__ import annotations

import enum
import io
import pickle
import re
import threading
import zipfile
from typing import Any
from typing import Optional

import torch

from tessera import _arrays
from tessera import _dense
from tessera import _errors
from tessera import _library

# The core's errors for bytes that it does not turn into an object.
REFUSED = (_errors.PermissionDeniedError, _errors.UnimplementedError)

# Held while this process allows more than the program does.
_LOCK = threading.Lock()


def check_tensor(name: str, tensor: torch.Tensor) -> None:
    """Raises UnimplementedError for a tensor that no checkpoint can hold."""
    problem = ""
    if tensor.device.type == "meta":
        problem = "it is on the meta device, where tensors have no elements"
    elif tensor.is_quantized or tensor.layout != torch.strided:
        problem = (
            f"{tensor.dtype} and {tensor.layout}: quantized, sparse and nested "
            "tensors cannot be saved"
        )
    else:
        try:
            _arrays.dtype_name(tensor.dtype)
        except _errors.UnimplementedError as failure:
            problem = str(failure)
    if problem:
        raise _errors.UnimplementedError(f"{name}: {problem}", tensor=name)


class _Length(io.RawIOBase):
    """Counts the bytes that are written to it."""

    def __init__(self) -> None:
        self.num_bytes = 0

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        size = memoryview(data).nbytes
        self.num_bytes += size
        return size


def _save(name: str, tensor: torch.Tensor, file: Any) -> None:
    try:
        tensor = tensor.detach().cpu()
        try:
            tensor = tensor.clone()  # without the rest of the storages
        except NotImplementedError:
            pass
        torch.save(tensor, file)
    except Exception as failure:
        raise _errors.UnimplementedError(
            f"{name}: torch.save cannot write {type(tensor).__name__}: "
            f"{failure}",
            tensor=name,
        ) from failure


def archive_size(name: str, tensor: torch.Tensor) -> int:
    """The length of archive(tensor), without memory for it."""
    length = _Length()
    _save(name, tensor, length)
    return length.num_bytes


def archive(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """The bytes that torch.save writes for a tensor."""
    file = io.BytesIO()
    _save(name, tensor, file)
    return torch.frombuffer(file.getbuffer(), dtype=torch.uint8)


def load(name: str, data: bytes, verify: bool = False) -> Any:
    """The object that torch.save wrote, if PyTorch's rules for safe pickles
    allow it.

    Raises PermissionDeniedError, with the class, if they do not.
    """
    if verify:
        with zipfile.ZipFile(io.BytesIO(data)) as records:
            damaged = records.testzip()
        if damaged is not None:
            raise _errors.DataLossError(
                f"{name}: the record {damaged} contradicts its checksum",
                tensor=name,
            )
    try:
        try:
            return _load_weights(data)
        except pickle.UnpicklingError as failure:
            if not re.search(r"GLOBAL (builtins\.)?getattr\b", str(failure)):
                raise
            with (
                _LOCK,
                torch.serialization.safe_globals(
                    [(_member, "builtins.getattr")]
                ),
            ):
                return _load_weights(data)
    except Exception as failure:
        found = re.search(r"Unsupported[^.]*\.?[^ ]*", str(failure))
        raise _errors.PermissionDeniedError(
            f"{name}: if you trust its classes, name them with "
            "torch.serialization.add_safe_globals before the load; "
            f"torch.load(weights_only=True) says: "
            f"{found[0] if found else failure}",
            tensor=name,
        ) from failure


def _load_weights(data: bytes) -> Any:
    return torch.load(io.BytesIO(data), map_location="cpu", weights_only=True)


def _member(kind: Any, name: str) -> Any:
    """getattr as Python 3.11 uses it in the pickle of an enumeration member.
    PyTorch allows no other use of it either."""
    if isinstance(kind, type) and issubclass(kind, enum.Enum):
        return kind[name]
    raise pickle.UnpicklingError(f"getattr of {kind!r}, not of an enum.Enum")


def problem_of_object(name: str, data: bytes) -> Optional[str]:
    """Why a Reader would refuse an object that torch.save wrote, or None."""
    try:
        _library.call("tessera_object_check", data, len(data))
        return None
    except REFUSED as failure:
        reason = str(failure)
    try:
        load(name, data)
        return None
    except _errors.Error:
        return reason
