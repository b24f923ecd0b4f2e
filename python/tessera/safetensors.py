"""load_file, save_file and safe_open, as in safetensors.torch, on the core.

What differs: a file that is written appears whole or not at all, and has a digest
of each tensor in its header, which safetensors ignores and `tessera.verify`
checks; tensors need not be contiguous, and may share memory; everything that
tessera.open can open can be loaded, directories with an index among them.
"""

from __future__ import annotations

import os
from typing import Any
from typing import Dict
from typing import List
from typing import Optional
from typing import Union

from tessera import _arrays
from tessera import _library
from tessera import _open

Path = Union[str, "os.PathLike[str]"]


def load_file(filename: Path, device: Any = "cpu") -> Dict[str, Any]:
    """All tensors of a file, by name, as torch.Tensors on `device`."""
    with _open.open(filename) as checkpoint:
        return checkpoint.to_torch(None if device == "cpu" else device)


def save_file(
    tensors: Dict[str, Any],
    filename: Path,
    metadata: Optional[Dict[str, str]] = None,
) -> None:
    """Writes torch.Tensors to a file, which it replaces.

    Args:
      tensors: on any device, by name.
      filename: ends in .safetensors.
      metadata: texts for the header; "format": "pt" is added.
    """
    kept = [
        tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
        for tensor in tensors.values()
    ]
    regions = (_library.Region * len(kept))()
    for region, name, tensor in zip(regions, tensors, kept):
        sizes = _library.dims(tensor.shape)
        kept.append(sizes)
        region.name = name.encode()
        region.dtype = _arrays.dtype_name(tensor.dtype).encode()
        region.num_dims = len(sizes)
        region.sizes = sizes
        region.data = tensor.data_ptr()
        region.num_bytes = tensor.numel() * tensor.element_size()
    pairs = [(k.encode(), v.encode()) for k, v in (metadata or {}).items()]
    array = (_library.Pair * len(pairs))(*pairs)
    _library.interruptible(
        lambda stop: _library.call(
            "tessera_write_file",
            *(os.fsencode(filename), regions, len(regions)),
            *(array, len(pairs), 1, None, stop),
        )
    )


class safe_open:
    """Reads some tensors of a file; see safetensors.safe_open.

    Args:
      framework: "pt" for torch.Tensors, "np" for NumPy arrays.
      device: where torch.Tensors go.
    """

    def __init__(
        self, filename: Path, framework: str = "pt", device: Any = "cpu"
    ):
        self._checkpoint = _open.open(filename)
        self._torch = framework in ("pt", "torch", "pytorch")
        self._device = None if device == "cpu" else device

    def __enter__(self) -> safe_open:
        return self

    def __exit__(self, *unused: Any) -> None:
        self._checkpoint.close()

    def keys(self) -> List[str]:
        return list(self._checkpoint)

    def metadata(self) -> Optional[Dict[str, str]]:
        return self._checkpoint.metadata or None

    def get_tensor(self, name: str) -> Any:
        return self.get_slice(name)[...]

    def get_slice(self, name: str) -> TensorSlice:
        return TensorSlice(self._checkpoint[name], self._torch, self._device)


class TensorSlice:
    """A tensor of which an index reads a part."""

    def __init__(
        self, tensor: _checkpoint.Tensor, as_torch: bool, device: Any
    ):
        self._tensor = tensor
        self._torch = as_torch
        self._device = device

    def get_shape(self) -> List[int]:
        return list(self._tensor.shape)

    def __getitem__(self, index: Any) -> Any:
        if self._torch:
            return self._tensor.torch(index, device=self._device)
        return self._tensor[index]
