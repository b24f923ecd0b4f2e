# SPDX-License-Identifier: Apache-2.0
"""Byte counts as texts."""

from __future__ import annotations

import re
from typing import Union

from tessera import _errors

_NUMBER = re.compile(r"[0-9]+(\.[0-9]*)?", re.ASCII)
_UNITS = {"": 1, "B": 1}
for _power, _letter in enumerate("KMGT", 1):
    _UNITS[_letter + "B"] = 1000**_power
    _UNITS[_letter + "IB"] = 1024**_power


def parse_bytes(value: Union[int, str], name: str = "memory") -> int:
    """A byte count, or a text such as "1GiB", given for argument `name`."""
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    if isinstance(value, str):
        digits = value.rstrip("KMGTiBkmgtb ")
        unit = _UNITS.get(value[len(digits) :].strip().upper())
        if unit is not None and _NUMBER.fullmatch(digits):
            return int(float(digits) * unit)
    raise _errors.InvalidArgumentError(
        f"{name}={value!r} is not a size, such as '1GiB' or '500MB'", field=name
    )


def quantity(num_bytes: int) -> str:
    """A size in three digits: 1.23 GB."""
    value, unit = float(num_bytes), "B"
    for larger in ("kB", "MB", "GB", "TB", "PB"):
        if value < 999.5:
            break
        value, unit = value / 1000, larger
    return f"{num_bytes} B" if unit == "B" else f"{value:.3g} {unit}"
