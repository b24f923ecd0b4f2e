# SPDX-License-Identifier: Apache-2.0
"""Indices for safetensors' slices, stricter than NumPy's: a slice must lie
within the tensor, and a list must be empty."""

from __future__ import annotations

from typing import Any
from typing import List
from typing import Sequence
from typing import Tuple


class SliceError(Exception):
    """The index is not one that safetensors takes."""


def checked(index: Any, shape: Sequence[int]) -> Tuple[Any, ...]:
    """The index as a tuple of ints and slices, one a dimension at most."""
    if isinstance(index, list):
        if index:
            raise SliceError("Non empty lists are not implemented")
        index = slice(0, 0)
    items = list(index) if isinstance(index, tuple) else [index]
    num_ellipses = sum(item is Ellipsis for item in items)
    if num_ellipses > 1:
        raise SliceError("Only one ellipsis (...) is allowed in slice index")
    if num_ellipses == 1:
        at = next(i for i, item in enumerate(items) if item is Ellipsis)
        missing = max(0, len(shape) - len(items) + 1)
        items[at : at + 1] = [slice(None)] * missing
    found = [_item(item, dim, shape) for dim, item in enumerate(items)]
    problem = _problem(found, shape)
    if problem:
        raise SliceError(
            f"Error during slicing [{', '.join(map(_text, found))}] with shape "
            f"{list(shape)}: {problem}"
        )
    return tuple(found)


def _item(item: Any, dim: int, shape: Sequence[int]) -> Any:
    if isinstance(item, slice):
        step = 1 if item.step is None else item.step
        if step <= 0:
            raise SliceError(
                f"Slice step must be a positive integer, got {step}"
            )
        for bound in (item.start, item.stop):
            if bound is not None and bound < 0:
                raise OverflowError("can't convert negative int to unsigned")
        return item
    try:
        number = item.__index__()
    except (AttributeError, TypeError):
        raise SliceError(
            f"Unsupported slice index at position {dim}: expected slice, int, "
            "or ellipsis"
        ) from None
    size = shape[dim] if dim < len(shape) else 0
    if number < -size:
        raise SliceError(
            f"Invalid index {number} for dimension {dim} of size {size}"
        )
    return number + size if number < 0 else number


def _problem(items: List[Any], shape: Sequence[int]) -> str:
    if len(items) > len(shape):
        return "more slicing indexes than dimensions in tensor"
    # safetensors names the last one that is wrong.
    for dim in reversed(range(len(items))):
        item, size = items[dim], shape[dim]
        if isinstance(item, slice):
            first = item.start or 0
            stop = size if item.stop is None else item.stop
        else:
            first, stop = item, item + 1
        if first >= size or stop > size:
            wrong = first if first >= size else stop - 1
            return (
                f"index {wrong} out of bounds for tensor dimension #{dim} of "
                f"size {size}"
            )
    return ""


def _text(item: Any) -> str:
    if not isinstance(item, slice):
        return str(item)
    start = "" if item.start is None else item.start
    stop = "" if item.stop is None else item.stop
    step = "" if item.step in (None, 1) else f":{item.step}"
    return f"{start}:{stop}{step}"
