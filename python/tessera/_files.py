"""Checkpoints on a disk or in an object store, read by the core."""

from __future__ import annotations

import ctypes
import json
import os
import threading
from typing import Any
from typing import Dict
from typing import Sequence
from typing import Union

from tessera import _arrays
from tessera import _library


class FileSource:
    """What a Checkpoint reads from; any thread.

    Args:
      path: a path or an s3:// URL.
    """

    def __init__(self, path: Union[str, "os.PathLike[str]"]):
        self._path = os.fspath(path)
        self._lock = threading.Lock()
        self._handle = _library.Handle("tessera_checkpoint_free")
        _library.interruptible(
            lambda stop: _library.call(
                "tessera_checkpoint_open",
                os.fsencode(self._path),
                stop,
                self._handle.out,
            )
        )

    def describe(self) -> Dict[str, Any]:
        """What tessera_checkpoint_describe says."""
        out = ctypes.c_void_p()
        _library.call(
            "tessera_checkpoint_describe", self._handle.value, ctypes.byref(out)
        )
        return json.loads(_library.take_bytes(out))

    def close(self) -> None:
        with self._lock:
            self._handle.close()

    def read(
        self, regions: Sequence[_arrays.Region], memory: int, verify: bool
    ) -> None:
        keep = []  # what the structures point to
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

    def _call(self, function: str, *arguments: Any, out: Any = None) -> None:
        """Calls with the handle first and the stop near the end."""

        def work(stop):
            with self._lock:
                if not self._handle.value:
                    raise ValueError(f"{self._path} is closed")
                last = (stop,) if out is None else (stop, out)
                _library.call(function, self._handle.value, *arguments, *last)

        _library.interruptible(work)
