# SPDX-License-Identifier: Apache-2.0
"""The data file that one rank writes for a save."""

from __future__ import annotations

import ctypes
import dataclasses
import os
import warnings
from typing import Any
from typing import Dict
from typing import List

from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.planner import SavePlanner
from torch.distributed.checkpoint.planner import WriteItem
from torch.distributed.checkpoint.planner import WriteItemType
from torch.distributed.checkpoint.storage import WriteResult

from tessera import _arrays
from tessera import _dense
from tessera import _errors
from tessera import _library
from tessera.torch import _pickled
from tessera.torch._source import Source

# A warning names no more objects.
_MAX_NAMED = 8


@dataclasses.dataclass(frozen=True)
class FirstResult(WriteResult):
    """The result for a rank's first item, with the digests for the rank's
    file."""

    digests: str = ""


class DataFile:
    """Lays out items one after the other, and writes them.

    Args:
      path: the checkpoint.
      planner: resolves each item when the bytes are written.
    """

    def __init__(self, path: str, planner: SavePlanner):
        self._planner = planner
        self._file = _library.Handle("tessera_file_free")
        _library.call("tessera_file_new", os.fsencode(path), self._file.out)
        self._items: List[WriteItem] = []
        self._ranges: List[_library.Range] = []
        self._sources: List[Source] = []
        self._keep: List[Any] = []  # the file refers to them
        self._problems: Dict[str, str] = {}  # for objects

    def add(self, item: WriteItem) -> None:
        """Raises UnimplementedError, with the name, if it cannot be saved."""
        if item.type == WriteItemType.BYTE_IO:
            self._add_object(item)
        else:
            # Only a check: the item is resolved again when it is written, which
            # planners allow, so that copies of all tensors never exist at once.
            tensor = self._planner.resolve_data(item)
            _pickled.check_tensor(item.index.fqn, tensor)
            if _dense.is_dense(tensor):
                self._add_dense(item)
            else:
                self._add_pickled(item, tensor)
        self._items.append(item)

    def _add_object(self, item: WriteItem) -> None:
        name = item.index.fqn
        data = self._planner.resolve_data(item).getvalue()
        problem = _pickled.problem_of_object(name, data)
        if problem is not None:
            self._problems[name] = problem
        self._keep.append(data)
        self._call_add("object", len(data), data, _library.FILL(), None)

    def _add_pickled(self, item: WriteItem, tensor: Any) -> None:
        name = item.index.fqn
        size = _pickled.archive_size(name, tensor)
        fill = self._fill_from(
            Source(
                name,
                size,
                lambda: _pickled.archive(
                    name, self._planner.resolve_data(item)
                ),
            )
        )
        self._call_add("object", size, None, fill, None)

    def _add_dense(self, item: WriteItem) -> None:
        dtype = _arrays.dtype_name(item.tensor_data.properties.dtype)
        sizes = _library.dims(item.tensor_data.chunk.sizes)
        fill = self._fill_from(
            Source(
                item.index.fqn,
                _arrays.num_bytes(dtype, sizes),
                lambda: _dense.row_major_bytes(
                    self._planner.resolve_data(item)
                ),
            )
        )
        self._call_add(
            "tensor", dtype.encode(), len(sizes), sizes, None, fill, None
        )

    def _fill_from(self, source: Source) -> Any:
        fill = _library.FILL(source.fill)
        self._sources.append(source)
        self._keep.append(fill)
        return fill

    def _call_add(self, kind: str, *arguments: Any) -> None:
        range_ = _library.Range()
        _library.call(
            "tessera_file_add_" + kind,
            *(self._file.value, *arguments, ctypes.byref(range_)),
        )
        self._ranges.append(range_)

    def write(
        self, name: str, options: _library.WriteOptions
    ) -> List[WriteResult]:
        """Writes the file, which has this name in the checkpoint; once."""
        self._warn()
        digests = ctypes.c_void_p()
        try:
            _library.interruptible(
                lambda stop: _library.call(
                    "tessera_file_write",
                    *(self._file.value, name.encode()),
                    *(ctypes.byref(options), stop, ctypes.byref(digests)),
                )
            )
        except _errors.Error:
            for source in self._sources:
                if source.failure is not None:
                    raise source.failure
            raise
        finally:
            self._file.close()
        return self._results(name, _library.take_bytes(digests).decode())

    def _warn(self) -> None:
        if not self._problems:
            return
        named = [
            f"{name} ({problem})"
            for name, problem in list(self._problems.items())[:_MAX_NAMED]
        ]
        if len(self._problems) > len(named):
            named.append(f"{len(self._problems) - len(named)} more")
        warnings.warn(
            "tessera saves these objects as PyTorch does, but its Reader will "
            "refuse them unless the program that loads them names their classes "
            "with torch.serialization.add_safe_globals: " + "; ".join(named),
            stacklevel=2,
        )

    def _results(self, name: str, digests: str) -> List[WriteResult]:
        results: List[WriteResult] = []
        for item, range_ in zip(self._items, self._ranges):
            told = {
                "index": item.index,
                "size_in_bytes": range_.length,
                "storage_data": _StorageInfo(
                    name, range_.offset, range_.length
                ),
            }
            results.append(
                WriteResult(**told)
                if results
                else FirstResult(**told, digests=digests)
            )
        return results
