# SPDX-License-Identifier: Apache-2.0
"""Deterministic tensors, digests of tensors, and a canonical JSON form of
plain Python values. Works with every PyTorch from 2.2 on."""

import collections
import hashlib
import json

import torch

try:
    from torch.distributed.tensor import DTensor
except ImportError:  # before PyTorch 2.5
    from torch.distributed._tensor import DTensor

# Multiplier and shift of each round of a 64-bit mixing function. The shift is
# made logical by masking, because torch shifts int64 arithmetically.
_MIX_ROUNDS = (
    (-7046029254386353131, 29),
    (-4658895280553007687, 32),
    (-7723592293110705685, 31),
)


def _mixed(count, seed):
    x = torch.arange(count, dtype=torch.int64) + seed * 1000003 + 1
    for multiplier, shift in _MIX_ROUNDS:
        x = x ^ ((x >> shift) & ((1 << (64 - shift)) - 1))
        x = x * multiplier
    return x ^ ((x >> 32) & 0xFFFFFFFF)


def det(shape, dtype=torch.float32, seed=0):
    """A tensor whose elements depend on their index and on `seed` only."""
    count = 1
    for extent in shape:
        count *= extent
    x = _mixed(count, seed)
    if dtype == torch.bool:
        t = (x & 1).bool()
    elif dtype.is_complex:
        part = {
            torch.complex32: torch.float16,
            torch.complex64: torch.float32,
            torch.complex128: torch.float64,
        }[dtype]
        real = ((x & 0xFFFF) - 32768).to(torch.float64) / 4096
        imag = (((x >> 16) & 0xFFFF) - 32768).to(torch.float64) / 4096
        pair = torch.stack([real.to(part), imag.to(part)], -1)
        t = torch.view_as_complex(pair.contiguous())
    elif dtype.is_floating_point:
        t = (((x & 0xFFFFF) - 524288).to(torch.float64) / 65536).to(dtype)
    else:
        bits = torch.empty(0, dtype=dtype).element_size() * 8
        low = x & ((1 << bits) - 1) if bits < 64 else x
        if bits == 64:
            t = x if dtype == torch.int64 else x.view(dtype)
        elif dtype.is_signed:
            t = (low - (1 << (bits - 1))).to(dtype)
        else:
            t = low.to(dtype)
    return t.reshape(shape)


def raw_bytes(t):
    """The row-major bytes of the full tensor, on a little-endian machine."""
    t = t.detach()
    if isinstance(t, DTensor):
        t = t.full_tensor()
    t = t.cpu().resolve_conj().resolve_neg().contiguous()
    if t.numel() == 0:
        return b""
    return t.reshape(-1).view(torch.uint8).numpy().tobytes()


def digest(t):
    return {
        "dtype": str(t.dtype).replace("torch.", ""),
        "shape": list(t.shape),
        "sha256": hashlib.sha256(raw_bytes(t)).hexdigest(),
    }


def canon(o):
    """The JSON form of a plain Python object; keeps every type apart."""
    if o is None:
        return ["none"]
    if isinstance(o, bool):
        return ["bool", o]
    if isinstance(o, int):
        return ["int", str(o)]
    if isinstance(o, float):
        return ["float", o.hex()]
    if isinstance(o, complex):
        return ["complex", o.real.hex(), o.imag.hex()]
    if isinstance(o, str):
        return ["str", o]
    if isinstance(o, (bytes, bytearray)):
        return [type(o).__name__, bytes(o).hex()]
    if isinstance(o, torch.Size):
        return ["size", list(o)]
    if isinstance(o, torch.dtype):
        return ["dtype", str(o).replace("torch.", "")]
    if isinstance(o, torch.device):
        return ["device", str(o)]
    if isinstance(o, torch.Tensor):
        d = digest(o)
        return ["tensor", d["dtype"], d["shape"], d["sha256"]]
    if isinstance(o, (list, tuple)):
        return [type(o).__name__, [canon(x) for x in o]]
    if isinstance(o, (set, frozenset)):
        return ["set", sorted((canon(x) for x in o), key=json.dumps)]
    if isinstance(o, dict):
        ordered = isinstance(o, collections.OrderedDict)
        pairs = [[canon(k), canon(v)] for k, v in o.items()]
        return ["odict" if ordered else "dict", pairs]
    kind = type(o)
    return ["other", kind.__module__ + "." + kind.__qualname__]


def describe_flat(flat):
    """Splits a flattened state dict into digests and canonical objects."""
    tensors, objects = {}, {}
    for k, v in flat.items():
        if isinstance(v, torch.Tensor):
            tensors[k] = digest(v)
        else:
            objects[k] = canon(v)
    return tensors, objects


def compact(expected):
    """JSON with one line per tensor, object, chunk list or storage entry."""
    sections = []
    for key in sorted(expected):
        value = expected[key]
        head = " " + json.dumps(key) + ": "
        if isinstance(value, dict) and value:
            lines = [
                "  %s: %s" % (json.dumps(k), json.dumps(v, sort_keys=True))
                for k, v in value.items()
            ]
            sections.append(head + "{\n" + ",\n".join(lines) + "\n }")
        elif isinstance(value, list) and value:
            lines = ["  " + json.dumps(v, sort_keys=True) for v in value]
            sections.append(head + "[\n" + ",\n".join(lines) + "\n ]")
        else:
            sections.append(head + json.dumps(value, sort_keys=True))
    return "{\n" + ",\n".join(sections) + "\n}\n"
