# SPDX-License-Identifier: Apache-2.0
"""Which tensors in a state dict share memory, by safetensors' rule.

Two tensors share memory if they are in one storage and their elements lie in
overlapping ranges.
"""

from __future__ import annotations

from typing import Any
from typing import Dict
from typing import Iterable
from typing import List
from typing import Set
from typing import Tuple

import torch

from tessera import _dense


def _memory_range(tensor: torch.Tensor) -> Tuple[int, int]:
    """The first byte of the elements, and the byte after the last one."""
    begin = tensor.data_ptr()
    if tensor.numel() == 0:
        return begin, begin
    last = sum((n - 1) * step for n, step in zip(tensor.shape, tensor.stride()))
    return begin, begin + (last + 1) * tensor.element_size()


def shared(tensors: Dict[str, torch.Tensor]) -> List[Set[str]]:
    """The names of those that share memory, in groups of two or more."""
    by_storage: Dict[Tuple[Any, int, int], List[str]] = {}
    for name, tensor in tensors.items():
        if not _dense.is_dense(tensor):
            continue
        storage = tensor.untyped_storage()
        if storage.data_ptr() != 0 and storage.nbytes() != 0:
            key = (tensor.device, storage.data_ptr(), storage.nbytes())
            by_storage.setdefault(key, []).append(name)
    groups: List[Set[str]] = []
    for names in by_storage.values():
        end = -1
        for begin, stop, name in sorted(
            (*_memory_range(tensors[name]), name) for name in names
        ):
            if begin < end:
                groups[-1].add(name)
            else:
                groups.append({name})
            end = max(end, stop)
    return [group for group in groups if len(group) > 1]


def _is_whole(tensor: torch.Tensor) -> bool:
    """Whether it has every byte in the storage."""
    storage = tensor.untyped_storage()
    return (
        tensor.data_ptr() == storage.data_ptr()
        and tensor.numel() * tensor.element_size() == storage.nbytes()
    )


def copies(
    tensors: Dict[str, torch.Tensor], preferred: Iterable[str] = ()
) -> Dict[str, str]:
    """The names to leave out, each with the kept one: in a group, one that has
    the whole storage; if there are several, one in `preferred`, the first in
    the alphabet.

    Raises RuntimeError if no tensor in a group has the whole storage.
    """
    left_out: Dict[str, str] = {}
    wanted = set(preferred)
    for group in shared(tensors):
        whole = {name for name in group if _is_whole(tensors[name])}
        if not whole:
            raise RuntimeError(
                f"{sorted(group)} share memory, and none of them has all of it, "
                "so that no name is suitable to keep: copy them with .clone() "
                "before saving"
            )
        kept = min(whole & wanted or whole)
        left_out.update({name: kept for name in sorted(group - {kept})})
    return left_out
