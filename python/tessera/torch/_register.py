# SPDX-License-Identifier: Apache-2.0
"""Makes Writer and Reader the default in PyTorch."""

from __future__ import annotations

import inspect
import os
from typing import Any
from typing import Callable
from typing import Dict

import torch
from torch.distributed.checkpoint import _storage_utils
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint import FileSystemWriter
from torch.distributed.checkpoint import state_dict_loader
from torch.distributed.checkpoint import state_dict_saver

from tessera import _errors
from tessera import _library
from tessera._checkpoint import DAEMON
from tessera.torch._reader import Reader
from tessera.torch._writer import Writer

try:
    from torch.distributed.checkpoint._async_process_executor import (
        _ProcessBasedAsyncCheckpointExecutor as _ProcessExecutor,
    )
except ImportError:  # before PyTorch 2.7
    _ProcessExecutor = None

# With these, PyTorch's writer and reader use another format.
_FORMAT_OPTIONS = ("_extensions", "serialization_format", "_extension_registry")

# The modules with the function that makes storage from a path.
_MODULES = (_storage_utils, state_dict_loader, state_dict_saver)
_torch_setup = getattr(_storage_utils, "_storage_setup", None)
_torch_execute_save = _ProcessExecutor and _ProcessExecutor.execute_save


def _is_ours(path: Any) -> bool:
    """Whether the core serves it; other URLs are left to PyTorch, which opens
    them with fsspec."""
    if not isinstance(path, (str, os.PathLike)):
        return False
    place = os.fspath(path)
    if "://" not in place or place.startswith(DAEMON):
        return True
    try:
        _library.call("tessera_check_served", os.fsencode(place))
    except _errors.UnimplementedError:
        return False
    return True


def _storage_setup(
    storage: Any, checkpoint_id: Any, reader: bool = False
) -> Any:
    if storage is None and checkpoint_id and _is_ours(checkpoint_id):
        return (Reader if reader else Writer)(checkpoint_id)
    return _torch_setup(storage, checkpoint_id, reader)


def _execute_save(
    executor: Any,
    staged: Any,
    *,
    checkpoint_id: Any = None,
    storage_writer: Any = None,
    **options: Any,
) -> Any:
    """Sends the writer to the process that saves; nothing is registered there."""
    if storage_writer is None and checkpoint_id and _is_ours(checkpoint_id):
        storage_writer = Writer(checkpoint_id)
    return _torch_execute_save(
        executor,
        staged,
        checkpoint_id=checkpoint_id,
        storage_writer=storage_writer,
        **options,
    )


def _replace(theirs: type, make: Callable[[Dict[str, Any]], Any]) -> None:
    """Makes calls of the class `theirs` return the result of `make`.

    The class itself stays: a name that was imported earlier works too, and
    derived classes, which rely on how PyTorch writes and reads, do not change.

    Args:
      make: called with the arguments that the caller gave, by name.
    """
    signature = inspect.signature(theirs.__init__)
    defaults = {
        name: signature.parameters[name].default
        for name in _FORMAT_OPTIONS
        if name in signature.parameters
    }

    def new(cls: type, *args: Any, **kwargs: Any) -> Any:
        # Without arguments: pickle and copy, which need an empty one.
        if cls is theirs and (args or kwargs):
            given = signature.bind(None, *args, **kwargs).arguments
            plain = all(
                given.get(name, default) == default
                for name, default in defaults.items()
            )
            if plain and _is_ours(given["path"]):
                return make(given)
        return super(theirs, cls).__new__(cls)

    theirs.__new__ = staticmethod(new)


def _check_pytorch() -> None:
    """Raises UnimplementedError if PyTorch lacks a part that register()
    replaces."""
    missing = [
        f"{module.__name__}._storage_setup"
        for module in _MODULES
        if not hasattr(module, "_storage_setup")
    ]
    # Whether there are saves by other processes.
    if _ProcessExecutor is None and hasattr(
        state_dict_saver, "AsyncCheckpointerType"
    ):
        missing.append("the executor of saves in another process")
    if missing:
        raise _errors.UnimplementedError(
            f"PyTorch {torch.__version__} lacks what register() replaces: "
            f"{', '.join(missing)}; pass a storage_writer or storage_reader"
        )


def register(*, file_system: bool = False) -> None:
    """From now on, dcp.save, dcp.async_save and dcp.load in this process use
    Writer and Reader when they get only a path.

    A URL that Tessera cannot serve, such as gs:// without the plugin for it, is
    left to PyTorch and fsspec.

    Raises UnimplementedError if this PyTorch makes storage in another way.

    Args:
      file_system: FileSystemWriter and FileSystemReader of
        torch.distributed.checkpoint make a Writer and a Reader too, when they
        are called; accelerate, transformers and others call them. Only their
        option `overwrite` has an effect then. They still make PyTorch's own
        objects if an option chooses another format, and for derived classes.
    """
    _check_pytorch()
    for module in _MODULES:
        module._storage_setup = _storage_setup
    if _ProcessExecutor is not None:
        _ProcessExecutor.execute_save = _execute_save
    if file_system:
        _replace(
            FileSystemWriter,
            lambda given: Writer(
                given["path"], overwrite=given.get("overwrite", True)
            ),
        )
        _replace(FileSystemReader, lambda given: Reader(given["path"]))
        FileSystemWriter.register(Writer)
        FileSystemReader.register(Reader)
