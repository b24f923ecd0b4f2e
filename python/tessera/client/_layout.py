# SPDX-License-Identifier: Apache-2.0
"""The data in a ReadTensors stream, and the memory that it goes to.

Each message from the server is checked against earlier ones and not trusted:
nothing is written outside the caller's memory.
"""

from __future__ import annotations

import ctypes
from typing import Any
from typing import List
from typing import NamedTuple
from typing import Optional
from typing import Sequence
from typing import Tuple

import numpy

from tessera import _arrays
from tessera import _errors
from tessera import _library
from tessera.client import _messages

# Tags in the wire format, (field number << 3) | wire type, for
# ReadTensorsResponse.chunk and the fields in it.
_CHUNK = 0x12
_PART = 0x08
_OFFSET = 0x10
_DATA = 0x1A
_CRC = 0x25


class Chunk(NamedTuple):
    """The fields in ReadTensorsResponse.Chunk."""

    part: int
    offset: int
    data: Any  # a byte array
    crc32c: int


def _varint(data: bytes, at: int) -> Tuple[int, int]:
    """The number, and the position after it."""
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise IndexError


def parse_chunk(reply: bytes) -> Optional[Chunk]:
    """The chunk in a message. The data stays where it is, whereas protobuf
    would copy it. None for other messages, and for encodings that only protobuf
    understands."""
    try:
        if reply[0] != _CHUNK:
            return None
        length, at = _varint(reply, 1)
        if at + length != len(reply):
            return None
        part = offset = crc = 0
        data = None
        while at < len(reply):
            tag = reply[at]
            at += 1
            if tag == _PART:
                part, at = _varint(reply, at)
            elif tag == _OFFSET:
                offset, at = _varint(reply, at)
            elif tag == _CRC:
                crc = int.from_bytes(reply[at : at + 4], "little")
                at += 4
            elif tag == _DATA and data is None:
                length, at = _varint(reply, at)
                if length > len(reply) - at:
                    return None
                data = numpy.frombuffer(reply, numpy.uint8, length, at)
                at += length
            else:
                return None
    except IndexError:  # the message ends too early
        return None
    if data is None or at != len(reply):
        return None
    return Chunk(part, offset, data, crc)


def _memory(region: _arrays.Region) -> Any:
    """The region's memory as a byte array."""
    size = _arrays.num_bytes(region.dtype, region.sizes)
    if size == 0:
        return numpy.empty(0, numpy.uint8)
    held = (ctypes.c_uint8 * size).from_address(region.address)
    return numpy.frombuffer(held, numpy.uint8)


class Layout:
    """The bytes for all regions in order, and the header that announces them.

    Ranges that do not overlap may be filled by different threads.

    Attributes:
      num_bytes: the sum over all regions.
    """

    def __init__(self, regions: Sequence[_arrays.Region]):
        self._regions = regions
        self._memories = [_memory(region) for region in regions]
        self._begins = [0]
        for memory in self._memories:
            self._begins.append(self._begins[-1] + len(memory))
        self.num_bytes = self._begins[-1]

    def check(self, header: Sequence[Any]) -> None:
        """DataLossError if a header's parts are not the regions."""
        if len(header) != len(self._regions):
            raise _errors.DataLossError(
                f"ReadTensors: {len(header)} of {len(self._regions)} parts"
            )
        for i, (part, region) in enumerate(zip(header, self._regions)):
            size = len(self._memories[i])
            if (part.name, part.dtype) != (region.name, region.dtype):
                raise _errors.DataLossError(
                    f"ReadTensors: part {i} is {part.name!r} in {part.dtype}, "
                    "which is not what was asked for"
                )
            if part.num_bytes != size:
                raise _errors.DataLossError(
                    f"ReadTensors: {part.name}: the memory has {size} bytes, "
                    f"the part {part.num_bytes}",
                    tensor=region.name,
                )

    def place(self, chunk: Chunk, position: int, end: int) -> int:
        """Copies the chunk that must come at `position` as far as `end`.

        Returns:
          The position after it.
        """
        if chunk.part >= len(self._regions):
            raise _errors.DataLossError(
                f"ReadTensors: part {chunk.part} of {len(self._regions)}"
            )
        name = self._regions[chunk.part].name
        memory = self._memories[chunk.part]
        size = len(chunk.data)

        def malformed(what: str) -> _errors.Error:
            return _errors.DataLossError(
                f"ReadTensors: {name}, at byte {chunk.offset}: {what}",
                tensor=name,
            )

        if size == 0:
            raise malformed("a message has no bytes")
        if chunk.offset + size > len(memory):
            raise malformed(
                f"a message of {size} bytes exceeds the part's {len(memory)}"
            )
        if self._begins[chunk.part] + chunk.offset != position:
            raise malformed("a message is out of order")
        crc32c = _library.library().tessera_crc32c(chunk.data.ctypes.data, size)
        if crc32c != chunk.crc32c:
            raise malformed(f"the checksum of {size} bytes is wrong")
        taken = min(size, end - position)
        memory[chunk.offset : chunk.offset + taken] = chunk.data[:taken]
        return position + taken


class Header:
    """A stream's header, which may come in several messages.

    Attributes:
      parts: the parts in the messages so far.
      is_complete: whether the last message has come.
    """

    def __init__(self) -> None:
        self.parts: List[Any] = []
        self.is_complete = False
        self.etag = ""
        self.num_bytes = 0

    def add(self, message: Any, max_parts: int) -> None:
        if self.is_complete:
            raise _errors.DataLossError(
                "ReadTensors: there is a header after the last one"
            )
        if self.parts and (
            (message.etag, message.num_bytes) != (self.etag, self.num_bytes)
        ):
            raise _errors.DataLossError(
                "ReadTensors: the headers are of different checkpoints"
            )
        self.etag, self.num_bytes = message.etag, message.num_bytes
        self.parts += message.parts
        if len(self.parts) > max_parts:
            raise _errors.DataLossError(
                f"ReadTensors: the header has more than {max_parts} parts"
            )
        if message.more and not message.parts:
            raise _errors.DataLossError("ReadTensors: a header has no parts")
        self.is_complete = not message.more


def parse_reply(reply: bytes) -> Any:
    """A Chunk, or a header's message; DataLossError for anything else."""
    chunk = parse_chunk(reply)
    if chunk is not None:
        return chunk
    message = _messages.parse(
        _messages.message("ReadTensorsResponse"), reply, "ReadTensors"
    )
    if message.HasField("header"):
        return message.header
    if not message.HasField("chunk"):
        raise _errors.DataLossError(
            "ReadTensors: a message has neither header nor payload"
        )
    chunk = message.chunk
    data = numpy.frombuffer(chunk.data, numpy.uint8)
    return Chunk(chunk.part, chunk.offset, data, chunk.crc32c)
