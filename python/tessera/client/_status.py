# SPDX-License-Identifier: Apache-2.0
"""gRPC's statuses and the daemon's error details, as our exceptions."""

from __future__ import annotations

from typing import Any

import grpc

from google.protobuf.message import DecodeError

from tessera import _errors
from tessera.client import _messages

_DOMAIN = "tessera"
_PLACES = ("path", "file", "tensor", "offset")
# gRPC reports this when a stream was reset; a daemon never answers with it.
_INTERNAL = 13
_UNAVAILABLE = 14
# Nobody waits longer than this, whatever a server says.
_MAX_RETRY_SECONDS = 24 * 3600


def error_of_status(status: Any, call: str) -> _errors.Error:
    """The exception for a google.rpc.Status that is not OK."""
    code = _UNAVAILABLE if status.code == _INTERNAL else status.code
    error = _errors.class_of_number(code)(f"{call}: {status.message}")
    for detail in status.details:
        info = _messages.unpack(detail, "google.rpc.ErrorInfo")
        if info is not None and info.domain == _DOMAIN:
            error.reason = info.reason
            for place in _PLACES:
                setattr(error, place, info.metadata.get(place, ""))
        bad = _messages.unpack(detail, "google.rpc.BadRequest")
        if bad is not None and bad.field_violations:
            error.field = bad.field_violations[0].field
        retry = _messages.unpack(detail, "google.rpc.RetryInfo")
        if retry is not None and retry.retry_delay.seconds >= 0:
            seconds = retry.retry_delay.seconds + retry.retry_delay.nanos / 1e9
            error.retry_after = min(max(seconds, 0.0), _MAX_RETRY_SECONDS)
    return error


def error_of_rpc(failure: grpc.RpcError, call: str) -> _errors.Error:
    """The exception for a call that failed. Details are optional: those that
    cannot be parsed are dropped."""
    status_class = _messages.message("google.rpc.Status")
    status = status_class()
    for key, value in failure.trailing_metadata() or ():
        if key != "grpc-status-details-bin":
            continue
        try:
            status = status_class.FromString(value)
        except DecodeError:
            status = status_class()
    status.code = failure.code().value[0]
    status.message = failure.details() or failure.code().name
    return error_of_status(status, call)
