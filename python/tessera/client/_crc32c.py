"""CRC-32C, Castagnoli's, with NumPy.

The register of a CRC is linear over XOR: a message of words, in rows of `width`
of them, has the same CRC as the one row that is left when each row is advanced
by the length of a row and added to the next. Rows become narrower, down to one
that a loop over its bytes can take:

    a b c d
    e f g h   ->   a' + e, b' + f, c' + g, d' + h   ->  ...
"""

from __future__ import annotations

import functools
from typing import Any
from typing import List
from typing import Tuple

import numpy

_POLYNOMIAL = 0x82F63B78  # reflected
_ONES = 0xFFFFFFFF
# Words of a row, from one pass to the next.
_WIDTHS = (8192, 512, 32)


def _byte_table() -> List[int]:
    table = []
    for byte in range(256):
        for _ in range(8):
            byte = byte >> 1 ^ (_POLYNOMIAL if byte & 1 else 0)
        table.append(byte)
    return table


_TABLE = _byte_table()


def _apply(columns: List[int], register: int) -> int:
    """A linear map, given by what it makes of each bit."""
    result = 0
    for bit, column in enumerate(columns):
        if register >> bit & 1:
            result ^= column
    return result


@functools.lru_cache(maxsize=64)
def _advance(num_bytes: int) -> List[int]:
    """The linear map that advances a register by so many bytes of zero."""
    result = [1 << bit for bit in range(32)]
    step = [register >> 8 ^ _TABLE[register & 0xFF] for register in result]
    while num_bytes:
        if num_bytes & 1:
            result = [_apply(step, register) for register in result]
        step = [_apply(step, register) for register in step]
        num_bytes >>= 1
    return result


@functools.lru_cache(maxsize=None)
def _tables(width: int) -> Tuple[Any, Any]:
    """Advance the lower and the upper half of a register by a row."""
    columns = numpy.array(_advance(4 * width), numpy.uint32)
    tables = []
    for half in (columns[:16], columns[16:]):
        table = numpy.zeros(1, numpy.uint32)
        for column in half:
            table = numpy.concatenate([table, table ^ column])
        tables.append(table)
    return tables[0], tables[1]


def _fold(data: Any, width: int) -> Any:
    """Bytes of one row with the CRC of all of `data`."""
    lower, upper = _tables(width)
    row_bytes = 4 * width
    first = (len(data) - 1) % row_bytes + 1
    # Zeros in front of a message do not change its register.
    sum_ = numpy.zeros(width, "<u4")
    sum_.view(numpy.uint8)[row_bytes - first :] = data[:first]
    halves = sum_.view("<u2")
    row, a, b = (numpy.empty(width, "<u4") for _ in range(3))
    for begin in range(first, len(data), row_bytes):
        row.view(numpy.uint8)[:] = data[begin : begin + row_bytes]
        numpy.take(lower, halves[0::2], out=a, mode="clip")
        numpy.take(upper, halves[1::2], out=b, mode="clip")
        numpy.bitwise_xor(a, b, out=a)
        numpy.bitwise_xor(a, row, out=sum_)
    return sum_.view(numpy.uint8)


def crc32c(data: Any) -> int:
    """The checksum of an array of bytes, of one dimension."""
    size = len(data)
    for width in _WIDTHS:
        if len(data) > 4 * width:
            data = _fold(data, width)
    register = 0
    for byte in data.tobytes():
        register = register >> 8 ^ _TABLE[(register ^ byte) & 0xFF]
    return register ^ _apply(_advance(size), _ONES) ^ _ONES
