# SPDX-License-Identifier: Apache-2.0
"""Reader: PyTorch's StorageReader on the core, for checkpoints in any
format."""

from __future__ import annotations

import io
import os
import uuid
from typing import Any
from typing import Dict
from typing import List
from typing import Optional
from typing import Tuple
from typing import Union

import torch
from torch.distributed.checkpoint.metadata import BytesStorageMetadata
from torch.distributed.checkpoint.metadata import ChunkStorageMetadata
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.metadata import MetadataIndex
from torch.distributed.checkpoint.metadata import StorageMeta
from torch.distributed.checkpoint.metadata import TensorProperties
from torch.distributed.checkpoint.metadata import TensorStorageMetadata
from torch.distributed.checkpoint.planner import LoadItemType
from torch.distributed.checkpoint.planner import LoadPlan
from torch.distributed.checkpoint.planner import LoadPlanner
from torch.distributed.checkpoint.planner import ReadItem
from torch.distributed.checkpoint.storage import StorageReader
from torch.futures import Future

from tessera import _arrays
from tessera import _dense
from tessera import _errors
from tessera import _open
from tessera._arrays import Region
from tessera._checkpoint import Checkpoint
from tessera._quantity import parse_bytes
from tessera.torch import _pickled
from tessera.torch._storage import PathStorage

# Memory for parts that cannot be read where they belong, such as those for a
# GPU, unless one part alone is larger.
_BOUNCE_BYTES = 256 << 20


class Reader(PathStorage, StorageReader):
    """Reads checkpoints in any format that Tessera knows, on any mesh.

    For the `storage_reader` of dcp.load. Nothing from the checkpoint is
    unpickled unchecked: objects come from the core, which keeps only data.

    A tensor appears as one chunk, even if many are stored: planning takes no
    time for each chunk, and the core reads all parts that a rank needs in one
    pass.

    Args:
      path: a path, an s3:// URL, or the tessera:// URL of a checkpoint on a
        daemon; may be left out with `checkpoint_id`.
      memory: at most for blocks on their way from the disk, "16MiB".
      verify: compares each item that is read as a whole with the recorded
        checksum; not on a daemon, which has a job for that.
      daemon: how to reach the daemon, a tessera.client.ClientOptions.
    """

    takes_daemons = True

    def __init__(
        self,
        path: Union[str, "os.PathLike[str]", None] = None,
        *,
        memory: Union[int, str] = "16MiB",
        verify: bool = False,
        daemon: Any = None,
    ):
        super().__init__(path)
        self._daemon = daemon
        self._memory = parse_bytes(memory)
        if not isinstance(verify, bool):
            raise _errors.InvalidArgumentError(
                f"verify={verify!r} is neither True nor False", field="verify"
            )
        self._verify = verify
        self._checkpoint: Optional[Checkpoint] = None
        self.load_id = ""
        self.reset()

    def reset(self, checkpoint_id: Any = None) -> None:
        super().reset(checkpoint_id)
        self.load_id = str(uuid.uuid4())
        if self._checkpoint is not None:
            self._checkpoint.close()
            self._checkpoint = None

    def _open(self) -> Checkpoint:
        if self._checkpoint is None:
            self.check_path()
            self._checkpoint = _open.open(self._place, self._daemon)
        return self._checkpoint

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        try:
            return self._metadata(self._open())
        except (_errors.Error, ImportError) as failure:
            return _Unreadable(failure)

    def _metadata(self, checkpoint: Checkpoint) -> Metadata:
        entries: Dict[str, Any] = {}
        paths: Dict[str, Tuple[Any, ...]] = {}
        for name, tensor in checkpoint.items():
            entries[name] = TensorStorageMetadata(
                TensorProperties(_arrays.torch_dtype(tensor.dtype, name)),
                torch.Size(tensor.shape),
                [
                    ChunkStorageMetadata(
                        torch.Size([0] * len(tensor.shape)),
                        torch.Size(tensor.shape),
                    )
                ],
            )
            paths[name] = tensor.keys or (name,)
        for name, keys in checkpoint.objects.keys_of.items():
            entries[name] = BytesStorageMetadata()
            paths[name] = keys or (name,)
        return Metadata(
            entries,
            planner_data=paths,
            storage_data={MetadataIndex(name): None for name in entries},
            storage_meta=StorageMeta(
                checkpoint_id=self._place, load_id=self.load_id
            ),
        )

    def set_up_storage_reader(
        self,
        metadata: Metadata,
        is_coordinator: bool,
        *args: Any,
        **kwargs: Any,
    ) -> None:
        if isinstance(metadata, _Unreadable):
            raise metadata.failure

    def prepare_local_plan(self, plan: LoadPlan) -> LoadPlan:
        return plan

    def prepare_global_plan(self, plans: List[LoadPlan]) -> List[LoadPlan]:
        return plans

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        pending: List[Tuple[ReadItem, torch.Tensor, torch.Tensor]] = []
        bounced = 0
        objects: List[ReadItem] = []
        tensors: List[ReadItem] = []
        for item in plan.items:
            is_object = item.type == LoadItemType.BYTE_IO
            (objects if is_object else tensors).append(item)
        self._read_objects(objects, planner)
        not_dense = set(
            self._open().not_dense(
                sorted({item.storage_index.fqn for item in tensors})
            )
        )
        for item in tensors:
            target = planner.resolve_tensor(item).detach()
            _check_shape(item, target)
            if item.storage_index.fqn in not_dense:
                self._read_pickled(item, target)
                planner.commit_tensor(item, target)
                continue
            memory = target
            if not _dense.is_in_place(target):
                memory = _dense.empty(target.dtype, target.shape)
                size = memory.numel() * memory.element_size()
                if pending and bounced + size > _BOUNCE_BYTES:
                    self._read(pending, planner)
                    pending, bounced = [], 0
                bounced += size
            pending.append((item, target, memory))
        self._read(pending, planner)
        future: Future[None] = Future()
        future.set_result(None)
        return future

    def _read_objects(
        self, items: List[ReadItem], planner: LoadPlanner
    ) -> None:
        names = [item.storage_index.fqn for item in items]
        try:
            archives = self._open().object_archives(names)
        except _pickled.REFUSED:
            archives = {name: self._object_archive(name) for name in names}
        for item in items:
            archive = archives[item.storage_index.fqn]
            planner.load_bytes(item, io.BytesIO(archive))

    def _object_archive(self, name: str) -> bytes:
        """The archive for an object that the core knows as data, or for classes
        that the program has declared safe."""
        try:
            return self._open().object_archives([name])[name]
        except _pickled.REFUSED as failure:
            refused = failure
        try:
            archive = self._open().stored_item(name)
        except _errors.UnimplementedError:
            raise refused from None
        try:
            _pickled.load(name, archive)
        except _errors.PermissionDeniedError as failure:
            raise type(refused)(
                f"{refused}; {failure}", path=self._place, tensor=name
            ) from None
        # The planner unpickles it again, with the same classes.
        return archive

    def _read_pickled(self, item: ReadItem, target: torch.Tensor) -> None:
        """Copies from tensors that only PyTorch can make from the stored
        bytes."""
        name = item.storage_index.fqn
        wanted = list(zip(_offsets(item), item.lengths))
        chunks = self._open()[name].chunks
        for number, (offsets, sizes) in enumerate(chunks):
            common = [
                (max(a, b), min(a + n, b + m))
                for (a, n), b, m in zip(wanted, offsets, sizes)
            ]
            if any(first >= last for first, last in common):
                continue
            stored = _pickled.load(
                name, self._open().stored_item(name, number), self._verify
            )
            if not isinstance(stored, torch.Tensor) or (
                tuple(stored.shape) != sizes
            ):
                raise _errors.DataLossError(
                    f"{name}: an item holds {type(stored).__name__} "
                    f"{list(getattr(stored, 'shape', []))}, but the index says "
                    f"a tensor {list(sizes)}",
                    path=self._place,
                    tensor=name,
                )
            part = target
            for dim, (first, last) in enumerate(common):
                size = last - first
                # As PyTorch does: some classes cannot be narrowed, and need not.
                if size != stored.shape[dim]:
                    stored = stored.narrow(dim, first - offsets[dim], size)
                if size != part.shape[dim]:
                    part = part.narrow(dim, first - wanted[dim][0], size)
            part.copy_(stored)

    def _read(
        self,
        pending: List[Tuple[ReadItem, torch.Tensor, torch.Tensor]],
        planner: LoadPlanner,
    ) -> None:
        regions = []
        for item, target, memory in pending:
            name = item.storage_index.fqn
            regions.append(
                Region(
                    name,
                    _arrays.dtype_name(memory.dtype),
                    _offsets(item),
                    item.lengths,
                    _dense.address(memory, name),
                )
            )
        self._open().read(regions, self._memory, self._verify)
        for item, target, memory in pending:
            if memory is not target:
                target.copy_(memory)
            planner.commit_tensor(item, target)


class _Unreadable(Metadata):
    """Stands for a checkpoint that could not be opened or described.

    If read_metadata raised the error, PyTorch would try to read an index of one
    rank instead and would not report it. It reports errors in the next step,
    set_up_storage_reader. Access to state_dict_metadata raises the error too.
    """

    def __init__(self, failure: Exception):
        self.failure = failure

    @property
    def state_dict_metadata(self) -> Dict[str, Any]:
        raise self.failure


def _offsets(item: ReadItem) -> List[int]:
    """Where, in the whole tensor, an item begins."""
    chunk = item.storage_index.offset or [0] * len(item.lengths)
    return [a + b for a, b in zip(chunk, item.storage_offsets)]


def _check_shape(item: ReadItem, target: torch.Tensor) -> None:
    if target.shape != item.lengths:
        raise _errors.InvalidArgumentError(
            f"{item.storage_index.fqn}: the plan reads {list(item.lengths)} "
            f"into {list(target.shape)}",
            tensor=item.storage_index.fqn,
        )
