# SPDX-License-Identifier: Apache-2.0
"""The messages and methods in the daemon's API, made from descriptors.

proto/README.md and the .proto files document them. They live in a separate
pool, so that they neither depend on generated code nor clash with code in other
packages, such as googleapis-common-protos.
"""

from __future__ import annotations

import functools
import os
import pathlib
from typing import Any
from typing import NamedTuple
from typing import Optional

from google.protobuf import descriptor_pb2
from google.protobuf import descriptor_pool
from google.protobuf import message_factory
from google.protobuf.message import DecodeError

from tessera import _errors


class Method(NamedTuple):
    """A method in a service."""

    name: str  # "Inspect"
    path: str  # "/tessera.v1.CheckpointService/Inspect"
    reply: Any  # the class of the messages


@functools.lru_cache(maxsize=None)
def _pool() -> Any:
    path = os.environ.get("TESSERA_API") or pathlib.Path(__file__).with_name(
        "api.binpb"
    )
    files = descriptor_pb2.FileDescriptorSet.FromString(
        pathlib.Path(path).read_bytes()
    )
    pool = descriptor_pool.DescriptorPool()
    for file in files.file:  # each comes after its imports
        pool.AddSerializedFile(file.SerializeToString())
    return pool


@functools.lru_cache(maxsize=None)
def message(name: str) -> Any:
    """The class for a message, by the full name or the name within
    tessera.v1."""
    full = name if name.startswith("google.") else f"tessera.v1.{name}"
    return message_factory.GetMessageClass(_pool().FindMessageTypeByName(full))


@functools.lru_cache(maxsize=None)
def method(service: str, name: str) -> Method:
    """A method in "tessera.v1.JobService" or another service, by name."""
    found = _pool().FindServiceByName(service).methods_by_name[name]
    return Method(
        name,
        f"/{service}/{name}",
        message_factory.GetMessageClass(found.output_type),
    )


def enum_word(message_class: Any, field: str, number: int) -> str:
    """The name of an enum value; "" for one that is not known here."""
    values = message_class.DESCRIPTOR.fields_by_name[field].enum_type
    value = values.values_by_number.get(number)
    return "" if value is None else value.name


def parse(message_class: Any, data: bytes, what: str) -> Any:
    """A message that arrived; DataLossError if it is not one."""
    try:
        return message_class.FromString(data)
    except DecodeError:
        raise _errors.DataLossError(
            f"{what}: the server sent something that is not a "
            f"{message_class.DESCRIPTOR.name}"
        ) from None


def unpack(any_: Any, name: str) -> Optional[Any]:
    """The message in a google.protobuf.Any if it has the named class;
    otherwise, and if it is malformed, None."""
    message_class = message(name)
    if any_.type_url.rpartition("/")[2] != message_class.DESCRIPTOR.full_name:
        return None
    try:
        return message_class.FromString(any_.value)
    except DecodeError:
        return None
