"""Makes Writer and Reader what PyTorch uses for a plain path."""

from __future__ import annotations

from typing import Any

from torch.distributed.checkpoint import _storage_utils
from torch.distributed.checkpoint import state_dict_loader
from torch.distributed.checkpoint import state_dict_saver

from tessera.torch._reader import Reader
from tessera.torch._writer import Writer

_torch_setup = _storage_utils._storage_setup


def _storage_setup(
    storage: Any, checkpoint_id: Any, reader: bool = False
) -> Any:
    if storage is None and Writer.validate_checkpoint_id(checkpoint_id):
        return (Reader if reader else Writer)(checkpoint_id)
    return _torch_setup(storage, checkpoint_id, reader)


def register() -> None:
    """From now on, dcp.save, dcp.async_save and dcp.load of this process use
    Writer and Reader where they are given a path only."""
    for module in (_storage_utils, state_dict_loader, state_dict_saver):
        module._storage_setup = _storage_setup
