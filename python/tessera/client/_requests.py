# SPDX-License-Identifier: Apache-2.0
"""Requests for jobs, made from keywords: the fields in the request and in the
messages in it, which the .proto files document, without their nesting."""

from __future__ import annotations

import os
from typing import Any
from typing import Dict

from tessera import _errors
from tessera._quantity import parse_bytes
from tessera.client import _messages
from tessera.client._results import FORMATS

# The messages in a request that have their fields as separate keywords.
_NESTED = ("source", "destination", "selection", "options")


def parse_mesh(mesh: Any) -> Any:
    """{"replicate": 2, "shard": 3} as a Mesh."""
    if not isinstance(mesh, dict) or "axes" in mesh:
        return mesh
    axes = [{"name": name, "size": size} for name, size in mesh.items()]
    return {"axes": axes}


def _parse_format(word: Any) -> Any:
    if word not in FORMATS:
        raise _errors.InvalidArgumentError(
            f"{word!r} is not a format: it is one of {', '.join(FORMATS)}",
            field="format",
        )
    return FORMATS[word]


# How values that people write become the API's values, by field.
_READERS = {
    "format": _parse_format,
    "mesh": parse_mesh,
}
_SIZES = ("max_shard_bytes", "memory_bytes")
_LISTS = ("include", "exclude", "renames", "casts", "parts")


def _value(field: str, value: Any) -> Any:
    if field in _READERS:
        return _READERS[field](value)
    if field in _SIZES:
        return parse_bytes(value, field)
    if field in _LISTS and isinstance(value, str):
        return [value]
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    return value


def make_request(name: str, keywords: Dict[str, Any]) -> Any:
    """The request for a method.

    Args:
      name: the message, such as "ConvertRequest".
      keywords: those with the value None are left out.

    Raises:
      InvalidArgumentError: `field` names the keyword that is wrong.
    """
    request_class = _messages.message(name)
    request = request_class()
    homes = {}
    fields = request_class.DESCRIPTOR.fields_by_name
    for outer in _NESTED:
        if outer in fields:
            for inner in fields[outer].message_type.fields_by_name:
                homes[inner] = outer
    # "path" alone would be ambiguous.
    homes.pop("path", None)
    for field in fields:
        homes[field] = ""
    for keyword, value in keywords.items():
        if value is None:
            continue
        if keyword not in homes:
            raise _errors.InvalidArgumentError(
                f"{keyword} is not a field of {name}, which has "
                f"{', '.join(sorted(homes))}",
                field=keyword,
            )
        value = _value(keyword, value)
        home = homes[keyword]
        if keyword in ("source", "destination") and isinstance(value, str):
            value = {"path": value}
        try:
            part = {home: {keyword: value}} if home else {keyword: value}
            request.MergeFrom(request_class(**part))
        except (TypeError, ValueError) as failure:
            raise _errors.InvalidArgumentError(
                f"{keyword}={value!r}: {failure}", field=keyword
            ) from None
    return request
