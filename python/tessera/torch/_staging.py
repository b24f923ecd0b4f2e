# SPDX-License-Identifier: Apache-2.0
"""The CPU memory to which asynchronous saves copy their state."""

from __future__ import annotations

import collections.abc
import contextlib
import copy
import weakref
from concurrent.futures import Future
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from typing import Dict
from typing import Optional
from typing import Union

import torch
import torch.distributed.checkpoint.state_dict_saver as state_dict_saver
from torch.distributed._state_dict_utils import _copy_state_dict
from torch.distributed._state_dict_utils import _create_cpu_state_dict

from tessera import _dense
from tessera import _errors

try:
    from torch.distributed.checkpoint._state_dict_stager import StateDictStager
    from torch.distributed.tensor import DTensor
except ImportError:  # before PyTorch 2.8
    StateDictStager = None


def _copy_others(value: Any, copies: Dict[int, Any]) -> None:
    """Copies the tensors in `value` that StateDictStager would change.

    It copies storages, and makes tensors with the same sizes and strides from
    the copies. Everything else is lost: whether elements are to be negated or
    conjugated, and how a subclass computes them.

    Args:
      copies: gets them by the id() of the tensor, as StateDictStager's memo.
    """
    if isinstance(value, DTensor):
        _copy_others(value._local_tensor, copies)
    elif isinstance(value, torch.Tensor):
        if id(value) in copies:
            return
        tensor = value.detach()
        if not _dense.is_dense(tensor):
            copies[id(value)] = copy.deepcopy(tensor)
        elif tensor.is_conj() or tensor.is_neg():
            copies[id(value)] = tensor.resolve_conj().resolve_neg().cpu()
    elif isinstance(value, collections.abc.Mapping):
        for item in value.values():
            _copy_others(item, copies)
    elif isinstance(value, (list, tuple)):
        for item in value:
            _copy_others(item, copies)


class _Staged(Dict[str, Any]):
    """A staged state; unlike a dict, it can be referred to weakly."""


class Stager:
    """Copies states with PyTorch's own functions, and keeps the memory.

    Args:
      background: stage() returns a future, and another thread copies.
    """

    def __init__(self, background: bool = False):
        if background and not hasattr(state_dict_saver, "AsyncSaveResponse"):
            raise _errors.UnimplementedError(
                "async_staging requires PyTorch 2.9 or newer, and this is "
                + torch.__version__
            )
        self._pin = torch.cuda.is_available()
        self._executor: Optional[ThreadPoolExecutor] = None
        self._stream: Optional[torch.Stream] = None
        if background:
            self._executor = ThreadPoolExecutor(1, "tessera-staging")
            if torch.accelerator.is_available():
                self._stream = torch.Stream()
        # Keeps the memory: a PyTorch object, or before 2.8 the last copy.
        self._kept: Any = None
        self._last: Optional[weakref.ref] = None

    def stage(
        self, state_dict: Dict[str, Any]
    ) -> Union[Dict[str, Any], "Future[Dict[str, Any]]"]:
        """A copy of the state.

        The memory is used again by the first copy that is made when nobody
        refers to this one any more; a save does so until it ends.
        """
        if self._executor is None:
            return self._stage(state_dict)
        if self._stream is not None:
            self._stream.wait_stream(torch.accelerator.current_stream())
        return self._executor.submit(self._stage, state_dict)

    def _stage(self, state_dict: Dict[str, Any]) -> Dict[str, Any]:
        if self._last is not None and self._last() is not None:
            self._kept = None  # a save still reads it
        staged = _Staged(self._copy(state_dict))
        self._last = weakref.ref(staged)
        return staged

    def _copy(self, state_dict: Dict[str, Any]) -> Dict[str, Any]:
        if StateDictStager is None:
            return self._copy_as_before(state_dict)
        if self._kept is None:
            self._kept = StateDictStager(pin_memory=self._pin)
        with self._stream or contextlib.nullcontext():
            copies: Dict[int, Any] = {}
            _copy_others(state_dict, copies)
            staged = self._kept.deepcopy_with_tensor_offload(
                state_dict, copies, non_blocking=self._stream is not None
            )
        if self._stream is not None:
            self._stream.synchronize()
        return staged

    def _copy_as_before(self, state_dict: Dict[str, Any]) -> Dict[str, Any]:
        """For PyTorch before 2.8."""
        if self._kept is not None:
            try:
                return _copy_state_dict(
                    state_dict, self._kept, type_check=False
                )
            except Exception:  # PyTorch's own; the name changed
                pass  # the state has another structure now
        self._kept = _create_cpu_state_dict(state_dict, pin_memory=self._pin)
        return _copy_state_dict(state_dict, self._kept, type_check=False)

    def close(self) -> None:
        """Frees the memory, after a copy that is being made."""
        if self._executor is not None:
            self._executor.shutdown()
        self._kept = None
