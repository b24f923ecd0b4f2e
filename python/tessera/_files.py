# SPDX-License-Identifier: Apache-2.0
"""Checkpoints on a disk or in an object store, read by the core."""

from __future__ import annotations

import ctypes
import json
import os
import threading
import weakref
from typing import Any
from typing import Dict
from typing import List
from typing import Sequence
from typing import Tuple
from typing import Union

from tessera import _arrays
from tessera import _errors
from tessera import _library

# The sources in this process.
_SOURCES: weakref.WeakSet[FileSource] = weakref.WeakSet()


class FileSource:
    """The source of a Checkpoint; any thread, and any process after a fork.

    Args:
      path: a path or an s3:// URL.
    """

    def __init__(self, path: Union[str, "os.PathLike[str]"]):
        self._path = os.fspath(path)
        self._lock = threading.Lock()
        self._is_forked = False
        self._stamp = _file_stamp(self._path)
        _library.interruptible(self._open)
        _SOURCES.add(self)

    def __reduce__(self) -> Tuple[Any, ...]:
        path = self._path
        return FileSource, (path if "://" in path else os.path.abspath(path),)

    def forked(self) -> None:
        """In a fork of the process, the handle, and perhaps the lock, belong to
        threads that are not there: opens the checkpoint again when it is used.
        """
        self._lock = threading.Lock()
        self._is_forked = bool(self._handle.value)

    def _open(self, stop: ctypes.c_void_p) -> None:
        handle = _library.Handle("tessera_checkpoint_free")
        _library.call(
            "tessera_checkpoint_open",
            *(os.fsencode(self._path), stop, handle.out),
        )
        self._handle = handle

    def _check_same(self) -> None:
        if _file_stamp(self._path) != self._stamp:
            raise _errors.FailedPreconditionError(
                f"{self._path}: the checkpoint was replaced after it was opened",
                path=self._path,
            )

    def describe(self) -> Dict[str, Any]:
        """The result of tessera_checkpoint_describe."""
        out = ctypes.c_void_p()
        _library.call(
            "tessera_checkpoint_describe", self._handle.value, ctypes.byref(out)
        )
        told: Dict[str, Any] = json.loads(_library.take_bytes(out))
        return told

    def close(self) -> None:
        with self._lock:
            self._is_forked = False
            self._handle.close()

    def read(
        self, regions: Sequence[_arrays.Region], memory: int, verify: bool
    ) -> None:
        keep = []  # targets of pointers in the structures
        array = (_library.Region * len(regions))()
        for each, region in zip(array, regions):
            offsets = _library.dims(region.offsets)
            sizes = _library.dims(region.sizes)
            keep += [offsets, sizes]
            each.name = region.name.encode()
            each.dtype = region.dtype.encode()
            each.num_dims = len(region.sizes)
            each.offsets = offsets
            each.sizes = sizes
            each.data = region.address
            each.num_bytes = _arrays.num_bytes(region.dtype, region.sizes)
        self._call(
            "tessera_checkpoint_read",
            *(array, len(regions), memory, int(verify)),
        )

    def object_archives(self, names: Sequence[str]) -> Dict[str, bytes]:
        archives = {}
        for name in names:
            out = ctypes.c_void_p()
            self._call(
                "tessera_checkpoint_object",
                name.encode(),
                out=ctypes.byref(out),
            )
            archives[name] = _library.take_bytes(out)
        return archives

    def not_dense(self, names: Sequence[str]) -> List[str]:
        """The tensors that are stored as objects of other classes."""
        out = ctypes.c_void_p()
        self._call(
            "tessera_checkpoint_not_dense",
            *(_library.texts(names), len(names)),
            out=ctypes.byref(out),
        )
        found: List[str] = json.loads(_library.take_bytes(out))
        return found

    def item(self, name: str, chunk: int = 0) -> bytes:
        """The stored bytes of a chunk or an object; anybody may have made them."""
        out = ctypes.c_void_p()
        self._call(
            "tessera_checkpoint_item",
            *(name.encode(), chunk),
            out=ctypes.byref(out),
        )
        return _library.take_bytes(out)

    def _call(self, function: str, *arguments: Any, out: Any = None) -> None:
        """Calls with the handle first and the stop near the end."""

        def work(stop: ctypes.c_void_p) -> None:
            with self._lock:
                if self._is_forked:
                    self._check_same()
                    self._open(stop)
                    self._is_forked = False
                if not self._handle.value:
                    raise ValueError(f"{self._path} is closed")
                last = (stop,) if out is None else (stop, out)
                _library.call(function, self._handle.value, *arguments, *last)

        _library.interruptible(work)


def _file_stamp(path: str) -> Tuple[int, ...]:
    """Differs once the checkpoint at a path on this machine was replaced."""
    for place in (os.path.join(path, ".metadata"), path):
        try:
            told = os.stat(place)
        except OSError:
            continue
        return told.st_dev, told.st_ino, told.st_size, told.st_mtime_ns
    return ()


def _fork() -> None:
    for source in list(_SOURCES):
        source.forked()


os.register_at_fork(after_in_child=_fork)
