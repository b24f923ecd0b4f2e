# SPDX-License-Identifier: Apache-2.0
"""Saving and loading a whole state, in one process or in many."""

from __future__ import annotations

import contextlib
import inspect
import os
from typing import Any
from typing import Callable
from typing import Dict
from typing import Iterator
from typing import Union

import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint.api import CheckpointException

from tessera import _errors
from tessera.torch._reader import Reader
from tessera.torch._writer import Writer


def has_ranks() -> bool:
    """Whether this process is one of several."""
    return dist.is_available() and dist.is_initialized()


@contextlib.contextmanager
def own_errors() -> Iterator[None]:
    """Raises the error from the first rank that failed, and not PyTorch's list
    of errors, which is not an Exception."""
    try:
        yield
    except CheckpointException as failures:
        found = [failure for failure, _ in failures.failures.values()]
        ours = [each for each in found if isinstance(each, _errors.Error)]
        if not found:
            raise
        raise (ours or found)[0] from failures


def _call(
    function: Callable[..., Any], *arguments: Any, **options: Any
) -> None:
    # One process alone says so, or PyTorch would warn; 2.4 does not know it.
    if not has_ranks() and "no_dist" in inspect.signature(function).parameters:
        options["no_dist"] = True
    with own_errors():
        function(*arguments, **options)


def save(
    state: Dict[str, Any],
    path: Union[str, "os.PathLike[str]"],
    writer: Writer,
) -> None:
    _call(dcp.save, state, checkpoint_id=path, storage_writer=writer)


def load(
    state: Dict[str, Any],
    path: Union[str, "os.PathLike[str]"],
    **options: Any,
) -> None:
    _call(dcp.load, state, storage_reader=Reader(path, **options))
