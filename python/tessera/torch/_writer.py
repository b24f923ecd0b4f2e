# SPDX-License-Identifier: Apache-2.0
"""Writer: PyTorch's StorageWriter and AsyncStager on the core."""

from __future__ import annotations

import concurrent.futures
import ctypes
import dataclasses
import os
import pickle
import threading
import uuid
import weakref
from typing import Any
from typing import Dict
from typing import List
from typing import Optional
from typing import Union

from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.metadata import StorageMeta
from torch.distributed.checkpoint.planner import SavePlan
from torch.distributed.checkpoint.planner import SavePlanner
from torch.distributed.checkpoint.staging import AsyncStager
from torch.distributed.checkpoint.storage import StorageWriter
from torch.distributed.checkpoint.storage import WriteResult
from torch.futures import Future

from tessera import _errors
from tessera import _library
from tessera._quantity import parse_bytes
from tessera.torch._data_file import DataFile
from tessera.torch._data_file import FirstResult
from tessera.torch._staging import Stager
from tessera.torch._storage import PathStorage

# PyTorch writes it since 2.6; older versions ignore it.
_VERSION = "1.0.0"

# How a checkpoint's data is written: past the page cache, or through it.
_DIRECT = ((None, 0), (True, 1), (False, 2))


def _flag(name: str, value: Any) -> bool:
    if isinstance(value, bool):
        return value
    raise _errors.InvalidArgumentError(
        f"{name}={value!r} is neither True nor False", field=name
    )


def _direct_mode(direct: Any) -> int:
    for value, mode in _DIRECT:
        if direct is value:
            return mode
    raise _errors.InvalidArgumentError(
        f"direct={direct!r} is neither True, False nor None", field="direct"
    )


@dataclasses.dataclass(frozen=True)
class _FileName:
    """The coordinator's message to a rank with its plan."""

    name: str


class _Save:
    """A save that the coordinator has begun."""

    # The saves in this process that wait for their ranks, by path.
    _waiting: weakref.WeakValueDictionary = weakref.WeakValueDictionary()
    _lock = threading.Lock()

    def __init__(self, path: str, overwrite: bool):
        # A save is not told that another rank failed. Something may still refer
        # to it, such as the error's traceback, and then it would keep the
        # directory's lock; a new save to the same path in this process takes
        # over.
        with self._lock:
            former = self._waiting.pop(path, None)
        if former is not None:
            former.close()
        self._handle = _library.Handle("tessera_save_free")
        _library.call(
            "tessera_save_begin",
            os.fsencode(path),
            int(overwrite),
            self._handle.out,
        )
        self.path = path
        self.names: set = set()
        with self._lock:
            self._waiting[path] = self

    def name_for(self, rank: int) -> str:
        out = ctypes.c_void_p()
        _library.call(
            "tessera_save_file_name",
            self._handle.value,
            rank,
            ctypes.byref(out),
        )
        name = _library.take_bytes(out).decode()
        self.names.add(name)
        return name

    def commit(
        self, save_id: str, metadata: bytes, names: set, digests: List[str]
    ) -> None:
        if not self._handle.value:
            raise _errors.FailedPreconditionError(
                f"{self.path}: another save of this process has taken over"
            )
        for name in names - self.names:
            _library.call(
                "tessera_save_adopt", self._handle.value, name.encode()
            )
        texts = _library.texts(digests)
        _library.call(
            "tessera_save_commit",
            *(self._handle.value, save_id.encode(), metadata, len(metadata)),
            *(texts, len(digests)),
        )

    def close(self) -> None:
        """Removes the written files, unless they were committed."""
        self._handle.close()


class _Current(threading.local):
    """The state of the save that a thread makes.

    PyTorch makes each save in one thread, from reset() to finish(), so that
    overlapping saves with one writer do not mix.
    """

    def __init__(self, path: str):
        self.path = path
        self.save_id = str(uuid.uuid4())
        self.save: Optional[_Save] = None

    def drop(self) -> None:
        save, self.save = self.save, None
        if save is not None:
            save.close()


class Writer(PathStorage, StorageWriter, AsyncStager):
    """Writes DCP checkpoints that appear whole or not at all.

    For the `storage_writer` of dcp.save and dcp.async_save, with any planner.
    It writes PyTorch's own format, with digests next to it, and syncs. Keep one
    Writer for all saves in a run, and name each checkpoint with
    `checkpoint_id`: it then keeps the memory for asynchronous saves.

    Args:
      path: a directory, which is made with all parents, or an s3:// URL; may be
        left out if each save has a `checkpoint_id`.
      overwrite: replaces a checkpoint that is there, once the new one is whole.
      memory: at most for blocks on their way to the disk, "16MiB".
      max_rate: bytes a second that each rank writes, at most; 0 for no limit.
      direct: past the page cache, True or False; None decides by itself.
      async_staging: dcp.async_save returns PyTorch's AsyncSaveResponse before
        the state is copied; call `.staging_completion.result()` before the
        state is changed, such as by the next step of the optimizer. Requires
        PyTorch 2.9.
    """

    _synchronize_after_execute = False
    # Attributes of PyTorch's class, with the values that hold here.
    single_file_per_rank = True
    sync_files = True

    def __init__(
        self,
        path: Union[str, "os.PathLike[str]", None] = None,
        *,
        overwrite: bool = True,
        memory: Union[int, str] = "16MiB",
        max_rate: Union[int, str] = 0,
        direct: Optional[bool] = None,
        async_staging: bool = False,
    ):
        self._current = _Current("" if path is None else os.fspath(path))
        super().__init__(path)
        self.overwrite = _flag("overwrite", overwrite)
        self._memory = parse_bytes(memory)
        self._max_rate = parse_bytes(max_rate, "max_rate")
        self._direct = _direct_mode(direct)
        self._async_staging = _flag("async_staging", async_staging)
        self._stager = Stager(async_staging)

    def __getstate__(self) -> Dict[str, Any]:
        # For async_save in another process, where nothing is staged.
        return {**self.__dict__, "_current": self._place, "_stager": None}

    def __setstate__(self, state: Dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._current = _Current(state["_current"])

    @property
    def _place(self) -> str:
        """The state of the save that this thread makes."""
        return self._current.path

    @_place.setter
    def _place(self, path: str) -> None:
        self._current.path = path

    @property
    def save_id(self) -> str:
        """The id of the save that this thread makes; also in the .metadata."""
        return self._current.save_id

    # StorageWriter

    def reset(self, checkpoint_id: Any = None) -> None:
        super().reset(checkpoint_id)
        self._current.drop()
        self._current.save_id = str(uuid.uuid4())

    def storage_meta(self) -> StorageMeta:
        return StorageMeta(
            checkpoint_id=self._place, save_id=self._current.save_id
        )

    def set_up_storage_writer(
        self, is_coordinator: bool, *args: Any, **kwargs: Any
    ) -> None:
        self.check_path()
        if not kwargs.get("use_collectives", True):
            raise _errors.UnimplementedError(
                "use_collectives=False is not supported: the ranks of a save "
                "commit one index together"
            )
        self._current.drop()
        # PyTorch calls reset() only for a save with a checkpoint_id.
        self._current.save_id = str(uuid.uuid4())

    def prepare_local_plan(self, plan: SavePlan) -> SavePlan:
        return plan

    def prepare_global_plan(self, plans: List[SavePlan]) -> List[SavePlan]:
        if "://" not in self._place:
            # Missing parent directories are made, as PyTorch's writer does.
            parent = os.path.dirname(os.path.abspath(self._place))
            os.makedirs(parent, exist_ok=True)
        try:
            save = self._current.save = _Save(self._place, self.overwrite)
        except _errors.AlreadyExistsError as failure:
            # The words in PyTorch's writer, for which programs look.
            raise _errors.AlreadyExistsError(
                f"Checkpoint already exists and {self.overwrite=}: {failure}",
                path=self._place,
            ) from None
        return [
            dataclasses.replace(
                plan, storage_data=_FileName(save.name_for(rank))
            )
            for rank, plan in enumerate(plans)
        ]

    def write_data(
        self, plan: SavePlan, planner: SavePlanner
    ) -> Future[List[WriteResult]]:
        future: Future[List[WriteResult]] = Future()
        try:
            future.set_result(self._write(plan, planner))
        except BaseException:
            self._current.drop()
            raise
        return future

    def _write(self, plan: SavePlan, planner: SavePlanner) -> List[WriteResult]:
        if not plan.items:
            return []
        file = DataFile(self._place, planner)
        for item in plan.items:
            file.add(item)
        return file.write(
            self._file_name(plan.storage_data.name),
            _library.WriteOptions(self._memory, self._max_rate, self._direct),
        )

    def _file_name(self, name: str) -> str:
        """The name that the coordinator gave, or the next one.

        A planner that caches plans may pass an order from an earlier save. That
        save's file is a part of a checkpoint.
        """
        if "://" in self._place:
            return name
        rank, number = name[len("__") : -len(".distcp")].split("_")
        count = int(number)
        while os.path.lexists(os.path.join(self._place, name)):
            count += 1
            name = f"__{rank}_{count}.distcp"
        return name

    def finish(
        self, metadata: Metadata, results: List[List[WriteResult]]
    ) -> None:
        flat = [result for of_rank in results for result in of_rank]
        metadata.storage_data = {
            result.index: result.storage_data for result in flat
        }
        metadata.storage_meta = self.storage_meta()
        if hasattr(metadata, "version"):
            metadata.version = _VERSION
        save = self._current.save
        try:
            save.commit(
                self._current.save_id,
                pickle.dumps(metadata, protocol=2),
                {result.storage_data.relative_path for result in flat},
                [r.digests for r in flat if isinstance(r, FirstResult)],
            )
        finally:
            self._current.drop()

    # AsyncStager

    @property
    def should_synchronize_after_execute(self) -> bool:
        return self._synchronize_after_execute

    def stage(
        self, state_dict: Dict[str, Any]
    ) -> Union[Dict[str, Any], "concurrent.futures.Future[Dict[str, Any]]"]:
        """Copies the state to CPU memory, which is kept for the next one.

        While a save is not done, another one takes separate memory.
        """
        return self._stager.stage(state_dict)

    def synchronize_staging(self) -> None:
        """Does nothing: stage() returns when everything is copied."""

    def close(self) -> None:
        """Frees the memory for asynchronous saves."""
        self._stager.close()
        self._current.drop()
