# SPDX-License-Identifier: Apache-2.0
"""Errors: one class for each canonical status code."""

from __future__ import annotations

import errno
import sys
import types
from typing import Any
from typing import Dict
from typing import Iterable
from typing import Optional
from typing import Type
import warnings


class Error(Exception):
    """An error from the core or the daemon.

    Attributes:
      path: the checkpoint, or "" if it is not known, as for the others.
      file: the file in the checkpoint.
      tensor: the tensor's or object's name.
      offset: where in the file, as text.
      reason: why, in a word from the daemon's API (proto/README.md); "" for
        errors from elsewhere.
      field: the request field or the option that caused the error.
      retry_after: the seconds after which the same call may succeed, if the
        daemon says so.
    """

    def __init__(
        self,
        message: str,
        *,
        path: str = "",
        file: str = "",
        tensor: str = "",
        offset: str = "",
        reason: str = "",
        field: str = "",
        retry_after: Optional[float] = None,
    ):
        super().__init__(message)
        self.path = path
        self.file = file
        self.tensor = tensor
        self.offset = offset
        self.reason = reason
        self.field = field
        self.retry_after = retry_after

    def __str__(self) -> str:
        return str(self.args[0])


class _SystemError(Error):
    """An error that also has one of Python's own classes, with the attributes
    of that class."""

    _errno = 0

    def __init__(self, message: str, **place: Any):
        super().__init__(message, **place)
        # Programs that handle an OSError read these.
        self.errno = self._errno
        self.filename = self.path or None


class CancelledError(Error):
    """The call was stopped."""


class InvalidArgumentError(Error, ValueError):
    """An argument does not fit, such as a shape or an option."""


class DeadlineExceededError(Error, TimeoutError):
    """The call did not end within its timeout."""


class NotFoundError(_SystemError, FileNotFoundError, LookupError):
    """The checkpoint, tensor or object does not exist."""

    _errno = errno.ENOENT


class AlreadyExistsError(_SystemError, FileExistsError):
    """Something is at the destination and `overwrite` is off."""

    _errno = errno.EEXIST


class PermissionDeniedError(_SystemError, PermissionError):
    """A pickle needs more than data, or the system denies access."""

    _errno = errno.EACCES


class UnauthenticatedError(Error):
    """The daemon requires a token, or does not know the one that it got."""


class ResourceExhaustedError(Error):
    """The memory or the disk does not suffice."""


class FailedPreconditionError(Error):
    """Another writer is at work, or something else stands in the way."""


class UnimplementedError(Error, NotImplementedError):
    """The input is valid, and not supported."""


class UnavailableError(Error):
    """A later attempt may succeed."""


class DataLossError(Error):
    """The checkpoint is damaged."""


class LossWarning(UserWarning):
    """A checkpoint lacks a part of the saved state, such as the optimizer, or
    cannot restore it, such as the shapes of flat weights."""


def warn_of_losses(path: str, texts: Iterable[str]) -> None:
    """A LossWarning for each text, in the line that calls this package."""
    level = 1
    frame = sys._getframe(level)
    while frame.f_back is not None and _is_ours(frame):
        level += 1
        frame = frame.f_back
    for text in texts:
        warnings.warn(f"{path}: {text}", LossWarning, stacklevel=level + 1)


def _is_ours(frame: types.FrameType) -> bool:
    return frame.f_globals.get("__name__", "").split(".")[0] == "tessera"


# The classes by the name and the number of their code.
CLASSES: Dict[str, Type[Error]] = {
    "CANCELLED": CancelledError,
    "INVALID_ARGUMENT": InvalidArgumentError,
    "DEADLINE_EXCEEDED": DeadlineExceededError,
    "NOT_FOUND": NotFoundError,
    "ALREADY_EXISTS": AlreadyExistsError,
    "PERMISSION_DENIED": PermissionDeniedError,
    "RESOURCE_EXHAUSTED": ResourceExhaustedError,
    "FAILED_PRECONDITION": FailedPreconditionError,
    "UNIMPLEMENTED": UnimplementedError,
    "UNAVAILABLE": UnavailableError,
    "DATA_LOSS": DataLossError,
    "UNAUTHENTICATED": UnauthenticatedError,
}
_NUMBERS = {
    **{1: "CANCELLED", 3: "INVALID_ARGUMENT", 4: "DEADLINE_EXCEEDED"},
    **{5: "NOT_FOUND", 6: "ALREADY_EXISTS", 7: "PERMISSION_DENIED"},
    **{8: "RESOURCE_EXHAUSTED", 9: "FAILED_PRECONDITION", 12: "UNIMPLEMENTED"},
    **{14: "UNAVAILABLE", 15: "DATA_LOSS", 16: "UNAUTHENTICATED"},
}


def class_of_number(code: int) -> Type[Error]:
    return class_of_name(_NUMBERS.get(code, ""))


def class_of_name(name: str) -> Type[Error]:
    return CLASSES.get(name, Error)
