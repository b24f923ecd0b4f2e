# SPDX-License-Identifier: Apache-2.0
"""Writes float_table.json: what torch makes of floats of every type.

    python make_float_table.py float_table.json

For each pair of types it holds the CRC-32 of all results as little-endian
bytes. Types of at most 16 bits are covered by all their values. float32 by
all upper halves, each with every lower half of LOWER, float64 by the same
values (lower halves of LOWER64) and both their neighbours. The inputs are
strided, so that torch takes its scalar loops: the vectorised ones make other
NaNs.
"""

import json
import sys
import zlib

import torch

TYPES = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.float8_e4m3fn,
    torch.float8_e5m2,
    torch.float8_e4m3fnuz,
    torch.float8_e5m2fnuz,
]
LOWER = [
    0x0000,
    0x0001,
    0x0FFF,
    0x1000,
    0x1001,
    0x2FFF,
    0x3000,
    0x3001,
    0x7FFF,
    0x8000,
    0x8001,
    0xFFFF,
]
LOWER64 = [0x0FFF, 0x1000, 0x7FFF, 0x8000]
AS_INT = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def bits(tensor):
    return tensor.contiguous().view(AS_INT[tensor.element_size()])


def floats(lower):
    upper = torch.arange(65536, dtype=torch.int32) << 16
    lower = torch.tensor(lower, dtype=torch.int32)
    return (upper[:, None] | lower).flatten().view(torch.float32)


def inputs(dtype):
    if dtype == torch.float64:
        wide = bits(floats(LOWER64).double())[:, None]
        return (wide + torch.tensor([-1, 0, 1])).flatten().view(dtype)
    if dtype == torch.float32:
        return floats(LOWER)
    if dtype.itemsize == 1:
        return torch.arange(256, dtype=torch.uint8).view(dtype)
    return torch.arange(65536, dtype=torch.int32).to(torch.int16).view(dtype)


def convert(src, dtype):
    strided = bits(src).repeat_interleave(2).view(src.dtype)[::2]
    return strided.to(dtype)


def main():
    table = {}
    for src in TYPES:
        values = inputs(src)
        row = table[str(src).removeprefix("torch.")] = {}
        for dst in TYPES:
            if dst == src:
                continue
            data = bits(convert(values, dst)).numpy().tobytes()
            row[str(dst).removeprefix("torch.")] = zlib.crc32(data)
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        json.dump(
            {"torch": torch.__version__.split("+")[0], "crc32": table},
            file,
            indent=1,
        )
        file.write("\n")


if __name__ == "__main__":
    main()
