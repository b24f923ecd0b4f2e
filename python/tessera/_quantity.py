"""Numbers of bytes as texts."""

from __future__ import annotations

from typing import Union

from tessera import _errors

_UNITS = {"": 1, "B": 1}
for _power, _letter in enumerate("KMGT", 1):
    _UNITS[_letter + "B"] = 1000**_power
    _UNITS[_letter + "IB"] = 1024**_power


def parse_bytes(memory: Union[int, str]) -> int:
    """A number of bytes, or a text such as "1GiB"."""
    if isinstance(memory, int):
        return memory
    digits = memory.rstrip("KMGTiBkmgtb ")
    try:
        return int(float(digits) * _UNITS[memory[len(digits):].strip().upper()])
    except (KeyError, ValueError):
        raise _errors.InvalidArgumentError(
            f"{memory!r} is not a size, such as '1GiB' or '500MB'"
        ) from None


def quantity(num_bytes: int) -> str:
    """A size in three digits: 1.23 GB."""
    value, unit = float(num_bytes), "B"
    for larger in ("kB", "MB", "GB", "TB", "PB"):
        if value < 999.5:
            break
        value, unit = value / 1000, larger
    return f"{num_bytes} B" if unit == "B" else f"{value:.3g} {unit}"
