"""The memory of the CPU to which asynchronous saves copy their state."""

from __future__ import annotations

from typing import Any
from typing import Dict

import torch
from torch.distributed._state_dict_utils import _copy_state_dict
from torch.distributed._state_dict_utils import _create_cpu_state_dict

try:
    from torch.distributed.checkpoint._state_dict_stager import StateDictStager
except ImportError:  # before PyTorch 2.8
    StateDictStager = None


class Stager:
    """Copies states with PyTorch's own functions, and keeps the memory."""

    def __init__(self):
        pin = torch.cuda.is_available()
        self._pin = pin
        self._torch = StateDictStager(pin_memory=pin) if StateDictStager else None
        self._kept: Dict[str, Any] = {}

    def stage(self, state_dict: Dict[str, Any]) -> Dict[str, Any]:
        """A copy of the state, valid until the next one is made."""
        if self._torch is not None:
            return self._torch.stage(state_dict)
        if self._kept:
            try:
                return _copy_state_dict(state_dict, self._kept)
            except Exception:  # PyTorch's own, whose name changed
                pass  # the state has another structure now
        self._kept = _create_cpu_state_dict(state_dict, pin_memory=self._pin)
        return _copy_state_dict(state_dict, self._kept)
