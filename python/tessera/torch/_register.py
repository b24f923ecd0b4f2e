"""Makes Writer and Reader what PyTorch uses by default."""

from __future__ import annotations

import os
from typing import Any
from typing import Union

import torch.distributed.checkpoint
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


class _FileSystemWriter(Writer):
    """In place of PyTorch's, whose other options say how it writes."""

    def __init__(
        self,
        path: Union[str, "os.PathLike[str]"],
        *args: Any,
        overwrite: bool = True,
        **kwargs: Any,
    ):
        super().__init__(path, overwrite=overwrite)


class _FileSystemReader(Reader):
    """In place of PyTorch's."""

    def __init__(
        self, path: Union[str, "os.PathLike[str]"], *args: Any, **kwargs: Any
    ):
        super().__init__(path)


def register(*, file_system: bool = False) -> None:
    """From now on, dcp.save, dcp.async_save and dcp.load of this process use
    Writer and Reader where they are given a path only.

    Args:
      file_system: replaces torch.distributed.checkpoint.FileSystemWriter and
        FileSystemReader too, for libraries that name them, such as accelerate.
        Their options other than `overwrite` are then ignored. Call this before
        such a library is imported.
    """
    for module in (_storage_utils, state_dict_loader, state_dict_saver):
        module._storage_setup = _storage_setup
    if file_system:
        torch.distributed.checkpoint.FileSystemWriter = _FileSystemWriter
        torch.distributed.checkpoint.FileSystemReader = _FileSystemReader
