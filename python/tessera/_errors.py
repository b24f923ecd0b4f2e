"""Errors: one class for each canonical status code."""

from __future__ import annotations

from typing import Dict
from typing import Optional
from typing import Type


class Error(Exception):
    """What the core refused or could not do.

    Attributes:
      path: the checkpoint, or "" if that is not known, as for the others.
      file: the file of the checkpoint.
      tensor: the name of the tensor or object.
      offset: where in the file, as text.
      reason: why, in a word of the daemon's API (proto/README.md); "" for errors
        from elsewhere.
      field: the field of the request that is to blame, or the option.
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


class CancelledError(Error):
    """The call was stopped."""


class InvalidArgumentError(Error, ValueError):
    """An argument does not fit, such as a shape or an option."""


class DeadlineExceededError(Error, TimeoutError):
    """The call did not end within its timeout."""


class NotFoundError(Error, LookupError):
    """The checkpoint, tensor or object does not exist."""


class AlreadyExistsError(Error):
    """Something is at the destination and `overwrite` is off."""


class PermissionDeniedError(Error):
    """A pickle needs more than data, or the system denies access."""


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


# The classes by the number and the name of their code.
_CODES: Dict[int, Type[Error]] = {
    1: CancelledError,
    3: InvalidArgumentError,
    4: DeadlineExceededError,
    5: NotFoundError,
    6: AlreadyExistsError,
    7: PermissionDeniedError,
    8: ResourceExhaustedError,
    9: FailedPreconditionError,
    12: UnimplementedError,
    14: UnavailableError,
    15: DataLossError,
    16: UnauthenticatedError,
}
_NAMES: Dict[str, Type[Error]] = {
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


def class_of_number(code: int) -> Type[Error]:
    return _CODES.get(code, Error)


def class_of_name(name: str) -> Type[Error]:
    return _NAMES.get(name, Error)
