# SPDX-License-Identifier: Apache-2.0
"""tessera.open: a checkpoint in any format as a read-only mapping."""

from __future__ import annotations

import operator
from typing import Any
from typing import Callable
from typing import Dict
from typing import ItemsView
from typing import Iterator
from typing import List
from typing import Mapping
from typing import Optional
from typing import overload
from typing import Sequence
from typing import Tuple
from typing import TYPE_CHECKING
from typing import Union

from tessera import _arrays
from tessera import _display
from tessera import _errors
from tessera import _objects
from tessera._arrays import Region
from tessera._index import select
from tessera._quantity import parse_bytes

if TYPE_CHECKING:
    from typing import Literal

    from numpy.typing import NDArray
    import torch

    _OneIndex = Union[int, slice, "ellipsis"]  # the type of `...`
    Index = Union[_OneIndex, Tuple[_OneIndex, ...]]

# Makes an array for a dtype and sizes, and returns the address of the memory.
Empty = Callable[[str, Sequence[int]], Tuple[Any, int]]
_EMPTY: Dict[str, Empty] = {
    "numpy": _arrays.empty_numpy,
    "torch": _arrays.empty_torch,
}

# The bytes that to_torch() reads at once for another device.
BATCH_BYTES = 256 << 20

# The prefix of URLs for checkpoints on a daemon.
DAEMON = "tessera://"


class Tensor:
    """A tensor in a checkpoint; nothing is read yet.

    Indexing it reads the selected part into a NumPy array: t[2:7], t[..., 0],
    or t[:] for all of it. Also numpy.asarray(t).

    Attributes:
      name, dtype (as PyTorch names it), shape.
      chunks: a (offsets, sizes) for each part that is stored.
    """

    def __init__(self, checkpoint: Checkpoint, told: Dict[str, Any]):
        self._checkpoint = checkpoint
        self._place = tuple(told["place"])
        self.name: str = told["name"]
        self.dtype: str = told["dtype"]
        self.shape: Tuple[int, ...] = tuple(told["shape"])
        self.keys: Tuple[Union[str, int], ...] = tuple(told["keys"])
        self.chunks: List[Tuple[Tuple[int, ...], Tuple[int, ...]]] = [
            (tuple(offsets), tuple(sizes)) for offsets, sizes in told["chunks"]
        ]

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        return _arrays.num_bytes(self.dtype, self.shape)

    def __len__(self) -> int:
        if not self.shape:
            raise TypeError("len() of a tensor without dimensions")
        return self.shape[0]

    def __repr__(self) -> str:
        return f"Tensor({self.name!r}, {self.dtype}, {list(self.shape)})"

    def __reduce__(self) -> Tuple[Any, ...]:
        return operator.getitem, (self._checkpoint, self.name)

    def __getitem__(self, index: Index) -> NDArray[Any]:
        return self.numpy(index)

    def __array__(
        self, dtype: Any = None, copy: Optional[bool] = None
    ) -> NDArray[Any]:
        if copy is False:
            raise ValueError("a tensor of a checkpoint cannot be read in place")
        if dtype is None:
            return self.numpy()
        if "float" in self.dtype and "float" in str(dtype):
            # The core converts, and refuses the codes of quantised weights.
            return self.numpy(dtype=str(dtype))
        return self.numpy().astype(dtype, copy=False)

    def __dlpack__(self, **options: Any) -> Any:
        return self.torch().__dlpack__(**options)

    def __dlpack_device__(self) -> Tuple[int, int]:
        return 1, 0  # the CPU

    def numpy(self, index: Index = Ellipsis, dtype: Any = None) -> NDArray[Any]:
        """The part that `index` selects, as a NumPy array, converted to
        `dtype`."""
        return self._read(index, dtype, _arrays.empty_numpy)

    def torch(
        self, index: Index = Ellipsis, dtype: Any = None, device: Any = None
    ) -> torch.Tensor:
        """The part that `index` selects, as a torch.Tensor on `device`."""
        tensor = self._read(index, dtype, _arrays.empty_torch)
        return tensor if device is None else tensor.to(device)

    def _read(self, index: Index, dtype: Any, empty: Empty) -> Any:
        name = self.dtype if dtype is None else _arrays.dtype_name(dtype)
        offsets, sizes, rest = select(self.shape, index)
        array, address = empty(name, sizes)
        self._checkpoint.read(
            [Region(self.name, name, offsets, sizes, address)]
        )
        return array[rest]


class Objects(Mapping[str, Any]):
    """The values that are not tensors, by name; each is read when asked for."""

    def __init__(self, checkpoint: Checkpoint, told: List[Dict[str, Any]]):
        self._checkpoint = checkpoint
        self.keys_of = {each["name"]: tuple(each["keys"]) for each in told}

    def __getitem__(self, name: str) -> Any:
        if name not in self.keys_of:
            raise KeyError(name)
        return _objects.decode(self._checkpoint.object_archives([name])[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self.keys_of)

    def __len__(self) -> int:
        return len(self.keys_of)

    def __repr__(self) -> str:
        return _display.objects_text(self)


class Checkpoint(Mapping[str, Tensor]):
    """An open checkpoint: a mapping from names to tensors. Any thread.

    In another process it opens itself again, at the same path: after a fork, and
    when it is unpickled, as the workers of a DataLoader do.

    Attributes:
      path: a path or URL.
      format: "dcp", "safetensors" or "pt".
      metadata: the texts of a safetensors header.
      warnings: parts that the checkpoint lacks, such as the shapes of flat
        weights; each was a LossWarning when it was opened.
      objects: a mapping with the values that are not tensors.
    """

    def __init__(self, source: Any):
        """Takes over a FileSource, or another source with the same methods. It
        opens itself again when it is unpickled."""
        self._source = source
        told = source.describe()
        self.path: str = told["path"]
        self.format: str = told["format"]
        self.flattened: bool = told["flattened"]
        self.metadata: Dict[str, str] = told["metadata"]
        self.warnings: List[str] = told["warnings"]
        _errors.warn_of_losses(self.path, self.warnings)
        self.tensors: Dict[str, Tensor] = {
            each["name"]: Tensor(self, each) for each in told["tensors"]
        }
        self.objects = Objects(self, told["objects"])

    def close(self) -> None:
        """Closes the files; reading from it is an error afterwards."""
        self._source.close()

    def __enter__(self) -> Checkpoint:
        return self

    def __exit__(self, *unused: Any) -> None:
        self.close()

    def __reduce__(self) -> Tuple[Any, ...]:
        return Checkpoint, (self._source,)

    def __getitem__(self, name: str) -> Tensor:
        return self.tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.tensors)

    def __len__(self) -> int:
        return len(self.tensors)

    def __repr__(self) -> str:
        return _display.text(self)

    def _repr_html_(self) -> str:
        return _display.html(self)

    def read(
        self,
        regions: Sequence[Region],
        memory: Union[int, str] = 0,
        verify: bool = False,
    ) -> None:
        """Fills the memory of all regions in one pass over the files."""
        self._source.read(regions, parse_bytes(memory), verify)

    def object_archives(self, names: Sequence[str]) -> Dict[str, bytes]:
        """Objects by name, as torch.save archives with nothing but data."""
        return self._source.object_archives(names)

    def in_file_order(self) -> List[Tensor]:
        """The tensors, ordered by the position of their first parts in the
        files."""
        return sorted(self.tensors.values(), key=lambda tensor: tensor._place)

    def not_dense(self, names: Sequence[str]) -> List[str]:
        """The tensors that are stored as objects of other classes; read()
        refuses them."""
        return self._source.not_dense(names)

    def stored_item(self, name: str, chunk: int = 0) -> bytes:
        """The torch.save archive of a chunk or object. Anybody may have made
        it: unpickling it may run code."""
        return self._source.item(name, chunk)

    @overload  # type: ignore[override]
    def items(self) -> ItemsView[str, Tensor]: ...

    @overload
    def items(
        self,
        memory: Union[int, str],
        framework: Literal["numpy"] = "numpy",
    ) -> Iterator[Tuple[str, NDArray[Any]]]: ...

    @overload
    def items(
        self, memory: Union[int, str], framework: Literal["torch"]
    ) -> Iterator[Tuple[str, torch.Tensor]]: ...

    def items(
        self,
        memory: Union[int, str, None] = None,
        framework: str = "numpy",
    ) -> Any:
        """The names and tensors; with `memory`, their contents.

        Args:
          memory: reads all tensors in the order of the files, as much at once
            as this, "1GiB"; a larger tensor is read alone. Yields
            (name, array).
          framework: the type of the arrays, "numpy" or "torch".
        """
        if memory is None:
            return super().items()
        empty = _EMPTY.get(framework)
        if empty is None:
            raise _errors.InvalidArgumentError(
                f"framework={framework!r} is neither 'numpy' nor 'torch'",
                field="framework",
            )
        return self._stream(parse_bytes(memory), empty)

    def _stream(self, limit: int, empty: Empty) -> Iterator[Tuple[str, Any]]:
        batch: List[Tensor] = []
        size = 0
        for tensor in self.in_file_order():
            if batch and size + tensor.nbytes > limit:
                yield from self._batch(batch, empty)
                batch, size = [], 0
            batch.append(tensor)
            size += tensor.nbytes
        yield from self._batch(batch, empty)

    def _batch(
        self, tensors: List[Tensor], empty: Empty
    ) -> Iterator[Tuple[str, Any]]:
        arrays, regions = [], []
        for t in tensors:
            array, address = empty(t.dtype, t.shape)
            arrays.append(array)
            offsets = [0] * len(t.shape)
            regions.append(Region(t.name, t.dtype, offsets, t.shape, address))
        self.read(regions)
        while arrays:
            yield tensors[-len(arrays)].name, arrays.pop(0)

    def to_torch(self, device: Any = None) -> Dict[str, torch.Tensor]:
        """All tensors, on `device`, by name; by default on the CPU."""
        if device is None:
            every_byte = sum(tensor.nbytes for tensor in self.tensors.values())
            return dict(self.items(every_byte, "torch"))
        return {
            name: tensor.to(device)
            for name, tensor in self.items(BATCH_BYTES, "torch")
        }
