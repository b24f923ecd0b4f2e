# SPDX-License-Identifier: Apache-2.0
"""Indices as NumPy has them, and the boxes that they need."""

from __future__ import annotations

from typing import Any
from typing import List
from typing import Sequence
from typing import Tuple


def select(
    shape: Sequence[int], index: Any
) -> Tuple[List[int], List[int], Tuple[Any, ...]]:
    """The box that an index needs: offsets, sizes, and the index within it."""
    items = index if isinstance(index, tuple) else (index,)
    # Not `in`, which compares: an array has no single truth.
    ellipses = [at for at, item in enumerate(items) if item is Ellipsis]
    if len(ellipses) > 1:
        raise IndexError("an index can have only one ellipsis")
    if not ellipses:
        ellipses = [len(items)]
        items = (*items, Ellipsis)
    if len(items) - 1 > len(shape):
        raise IndexError(
            f"{len(items) - 1} indices for a tensor of {len(shape)} dimensions"
        )
    (at,) = ellipses
    fill = (slice(None),) * (len(shape) - len(items) + 1)
    items = items[:at] + fill + items[at + 1 :]
    offsets, sizes, rest = [], [], []
    for dim, (size, item) in enumerate(zip(shape, items)):
        if isinstance(item, slice):
            steps = range(*item.indices(size))
            first = min(steps[0], steps[-1]) if steps else 0
            last = max(steps[0], steps[-1]) + 1 if steps else 0
            step = steps.step if steps else 1
            if step < 0:
                raise IndexError(f"dimension {dim}: a negative step")
            rest.append(slice(None, None, step))
        else:
            first = _position(dim, item)
            if not -size <= first < size:
                raise IndexError(
                    f"index {first} is out of range for dimension {dim} of "
                    f"size {size}"
                )
            first %= size
            last = first + 1
            rest.append(0)
        offsets.append(first)
        sizes.append(last - first)
    return offsets, sizes, tuple(rest)


def _position(dim: int, item: Any) -> int:
    # A bool is an int for Python, and a mask for NumPy and PyTorch.
    if type(item).__name__ not in ("bool", "bool_"):
        try:
            return int(item.__index__())
        except (AttributeError, TypeError):
            pass
    raise IndexError(
        f"dimension {dim}: an index is an int, a slice or an ellipsis, not "
        f"{type(item).__name__}; read the tensor first, and index the result"
    )
