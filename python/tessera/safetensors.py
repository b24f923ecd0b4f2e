# SPDX-License-Identifier: Apache-2.0
"""The calls of safetensors.torch and safetensors.safe_open, on the core.

Arguments, results and errors are those of safetensors 0.8. The differences:

- A file that is written appears whole or not at all, and has a digest for each
  tensor in the header, which safetensors ignores and `tessera.verify` checks.
- Everything that tessera.open can open can be loaded, directories with an index
  and URLs among them.
- Frameworks are PyTorch and NumPy. Tensors are read when they are asked for, and
  not mapped, so that `backend` has no effect.
"""

from __future__ import annotations

import contextlib
import json
import os
import pathlib
import tempfile
from typing import Any
from typing import Dict
from typing import Iterator
from typing import List
from typing import Optional
from typing import Tuple
from typing import Type
from typing import TYPE_CHECKING
from typing import Union

from tessera import _arrays
from tessera import _errors
from tessera import _library
from tessera import _open
from tessera import _slices
from tessera._checkpoint import Tensor

if TYPE_CHECKING:
    import torch

    class SafetensorError(Exception):
        """Raised for a file or an argument that is wrong."""

else:
    try:
        # For programs that catch that package's error.
        from safetensors import SafetensorError
    except ImportError:

        class SafetensorError(Exception):
            """Raised for a file or an argument that is wrong."""


__all__ = [
    "SafetensorError",
    "load",
    "load_file",
    "load_model",
    "safe_open",
    "save",
    "save_file",
    "save_model",
]

Path = Union[str, "os.PathLike[str]"]

# The dtype names in headers, in the reverse of the order that safetensors gives
# to dtypes: save() returns tensors in this order.
_CODES = {
    **{"uint64": "U64", "int64": "I64", "float64": "F64", "complex64": "C64"},
    **{"float32": "F32", "uint32": "U32", "int32": "I32", "bfloat16": "BF16"},
    **{"float16": "F16", "uint16": "U16", "int16": "I16"},
    **{"float8_e5m2fnuz": "F8_E5M2FNUZ", "float8_e4m3fnuz": "F8_E4M3FNUZ"},
    **{"float8_e8m0fnu": "F8_E8M0", "float8_e4m3fn": "F8_E4M3"},
    **{"float8_e5m2": "F8_E5M2", "int8": "I8", "uint8": "U8"},
    **{"float4_e2m1fn_x2": "F4", "bool": "BOOL"},
}
_ORDER = {name: number for number, name in enumerate(_CODES)}


def _both(kind: Type[_errors.Error]) -> Type[_errors.Error]:
    """The class for errors that are both a `kind` and a SafetensorError."""
    made = type(f"_{kind.__name__}", (kind, SafetensorError), {})
    made.__module__ = __name__
    globals()[made.__name__] = made  # pickle looks for it there
    return made


_BOTH = {
    kind: _both(kind) for kind in (_errors.Error, *_errors.CLASSES.values())
}


@contextlib.contextmanager
def _safetensor_errors(doing: str) -> Iterator[None]:
    try:
        yield
    except _errors.Error as failure:
        kind = _BOTH.get(type(failure))
        if kind is None:
            raise
        message = str(failure)
        if not isinstance(failure, FileNotFoundError):
            message = f"Error while {doing}: {message}"
        raise kind(
            message,
            path=failure.path,
            file=failure.file,
            tensor=failure.tensor,
            offset=failure.offset,
        ) from failure


def load_file(
    filename: Path, device: Union[str, int] = "cpu", *, backend: str = "mmap"
) -> Dict[str, torch.Tensor]:
    """All tensors in a file, by name, on `device`."""
    with safe_open(filename, "pt", device, backend=backend) as file:
        return file.get_tensors()


def load(data: bytes) -> Dict[str, torch.Tensor]:
    """All tensors in a file's content."""
    with tempfile.TemporaryDirectory(prefix="tessera-") as folder:
        path = pathlib.Path(folder, "model.safetensors")
        path.write_bytes(data)
        return load_file(path)


def save_file(
    tensors: Dict[str, torch.Tensor],
    filename: Path,
    metadata: Optional[Dict[str, str]] = None,
) -> None:
    """Writes tensors to a file with any name; replaces an existing one.

    Args:
      tensors: contiguous, dense, on any device; no two share memory.
      metadata: texts for the header.

    Raises:
      ValueError: a tensor is sparse or not contiguous, or is not a tensor.
      RuntimeError: tensors share memory, or have none.
    """
    kept = _on_cpu(tensors)
    regions = (_library.Region * len(kept))()
    sizes = []  # the regions point to them
    for region, (name, (tensor, address)) in zip(regions, kept.items()):
        sizes.append(_library.dims(tensor.shape))
        region.name = name.encode()
        region.dtype = _dtype_name(name, tensor).encode()
        region.num_dims = len(sizes[-1])
        region.sizes = sizes[-1]
        region.data = address
        region.num_bytes = tensor.numel() * tensor.element_size()
    pairs = [(k.encode(), v.encode()) for k, v in _texts(metadata).items()]
    array = (_library.Pair * len(pairs))(*pairs)
    with _safetensor_errors("serializing"):
        _library.interruptible(
            lambda stop: _library.call(
                "tessera_write_file",
                *(os.fsencode(filename), b"safetensors"),
                *(regions, len(regions)),
                *(array, len(pairs), 1, None, stop),
            )
        )


def save(
    tensors: Dict[str, torch.Tensor], metadata: Optional[Dict[str, str]] = None
) -> bytes:
    """A file's content with these tensors, without digests; see save_file."""
    kept = {name: tensor for name, (tensor, _) in _on_cpu(tensors).items()}
    header: Dict[str, Any] = {}
    if metadata is not None:
        header["__metadata__"] = _texts(metadata)
    contents: List[bytes] = []
    end = 0
    for name in sorted(
        kept, key=lambda name: (_ORDER[_dtype_name(name, kept[name])], name)
    ):
        tensor = kept[name]
        dtype = _dtype_name(name, tensor)
        contents.append(_content(tensor))
        begin, end = end, end + len(contents[-1])
        header[name] = {
            "dtype": _CODES[dtype],
            "shape": _stored_shape(dtype, tensor.shape),
            "data_offsets": [begin, end],
        }
    text = json.dumps(
        header, separators=(",", ":"), ensure_ascii=False
    ).encode()
    text += b" " * (-len(text) % 8)
    return b"".join([len(text).to_bytes(8, "little"), text, *contents])


def save_model(
    model: torch.nn.Module,
    filename: Path,
    metadata: Optional[Dict[str, str]] = None,
    force_contiguous: bool = True,
) -> None:
    """Writes a module's state dict. It writes one of the tensors that share
    memory; the metadata maps each other name to that one."""
    from tessera import _shared_tensors  # which imports torch

    state = model.state_dict()
    left_out = _shared_tensors.copies(state)
    for name in left_out:
        del state[name]
    if left_out:
        metadata = {**left_out, **(metadata or {})}
    if force_contiguous:
        state = {name: tensor.contiguous() for name, tensor in state.items()}
    try:
        save_file(state, filename, metadata)
    except ValueError as failure:
        raise ValueError(
            f"{failure} Or use save_model(..., force_contiguous=True), which "
            "changes the layout of the tensors in the file."
        ) from failure


def load_model(
    model: torch.nn.Module,
    filename: Path,
    strict: bool = True,
    device: Union[str, int] = "cpu",
    *,
    backend: str = "mmap",
) -> Tuple[List[str], List[str]]:
    """Loads a file from save_model into a module.

    Returns:
      The names that the file lacks, and those that the module lacks.

    Raises:
      RuntimeError: there are such names, and `strict` is set.
    """
    from tessera import _shared_tensors  # which imports torch

    found = load_file(filename, device, backend=backend)
    left_out = _shared_tensors.copies(model.state_dict(), preferred=found)
    missing, unexpected = model.load_state_dict(found, strict=False)
    # The module has a name for each tensor that is shared, the file has one.
    unexpected += [name for name in left_out if name not in missing]
    missing = [name for name in missing if name not in left_out]
    if strict and (missing or unexpected):
        lines = [f"Error(s) in loading state_dict for {type(model).__name__}:"]
        for what, names in (("Missing", missing), ("Unexpected", unexpected)):
            if names:
                quoted = ", ".join(f'"{name}"' for name in sorted(names))
                lines.append(f"    {what} key(s) in state_dict: {quoted}")
        raise RuntimeError("\n".join(lines))
    return missing, unexpected


def _on_cpu(
    tensors: Dict[str, torch.Tensor],
) -> Dict[str, Tuple[torch.Tensor, int]]:
    """The tensors on the CPU, each with its address, by name; raises the errors
    that save_file lists."""
    import torch

    from tessera import _dense
    from tessera import _shared_tensors

    if not isinstance(tensors, dict):
        raise ValueError(
            "Expected a dict of [str, torch.Tensor] but received "
            f"{type(tensors)}"
        )
    sparse = []
    for name, tensor in tensors.items():
        if not isinstance(tensor, torch.Tensor):
            raise ValueError(
                f"Key `{name}` is invalid, expected torch.Tensor but received "
                f"{type(tensor)}"
            )
        if not isinstance(name, str):
            raise TypeError(f"the name {name!r} of a tensor is not a text")
        if tensor.layout != torch.strided:
            sparse.append(name)
    if sparse:
        raise ValueError(
            f"You are trying to save a sparse tensors: `{sparse}` which this "
            "library does not support. You can make it a dense tensor before "
            "saving with `.to_dense()` but be aware this might make a much "
            "larger file than needed."
        )
    groups = [sorted(group) for group in _shared_tensors.shared(tensors)]
    if groups:
        raise RuntimeError(
            f"Some tensors share memory: {groups}. A file would have each of "
            "them, and they would not share memory again: save the module with "
            "save_model, or give each its own memory with .clone()."
        )
    kept = {}
    for name, tensor in tensors.items():
        if not tensor.is_contiguous():
            raise ValueError(
                f"You are trying to save a non contiguous tensor: `{name}` which "
                "is not allowed: call `.contiguous()` on it before saving."
            )
        tensor = tensor.detach()
        if tensor.device.type == "meta" or _dense.is_dense(tensor):
            tensor = tensor.cpu().resolve_conj().resolve_neg()
        if not _dense.is_dense(tensor):
            raise _errors.UnimplementedError(
                f"{name}: {type(tensor).__name__} has no elements of its own; "
                "save a plain tensor instead, such as the full_tensor() of a "
                "DTensor or a dequantized one",
                tensor=name,
            )
        kept[name] = tensor, _dense.address(tensor, name)
    return kept


def _dtype_name(name: str, tensor: torch.Tensor) -> str:
    dtype = str(tensor.dtype)[len("torch.") :]
    if dtype not in _CODES:
        raise SafetensorError(
            f"{name}: Unknown dtype {dtype}. Supported dtypes: "
            f"{', '.join(_CODES)}"
        )
    return dtype


def _stored_shape(dtype: str, shape: Any) -> List[int]:
    """In elements; PyTorch counts two 4-bit elements as one."""
    sizes = list(shape)
    if _CODES.get(dtype) == "F4" and sizes:
        sizes[-1] *= 2
    return sizes


def _texts(metadata: Optional[Dict[str, str]]) -> Dict[str, str]:
    for key, value in (metadata or {}).items():
        if not isinstance(key, str) or not isinstance(value, str):
            raise TypeError(
                f"metadata {key!r}: {value!r} is not a text with a text as key"
            )
    return dict(metadata or {})


def _content(tensor: torch.Tensor) -> bytes:
    from tessera import _dense

    return bytes(_dense.row_major_bytes(tensor).numpy())


class safe_open:
    """Reads some tensors in a file; see safetensors.safe_open.

    Args:
      framework: "pt" for torch.Tensors, "np" for NumPy arrays.
      device: where torch.Tensors go.
    """

    def __init__(
        self,
        filename: Path,
        framework: str = "pt",
        device: Union[str, int, None] = "cpu",
        *,
        backend: str = "mmap",
    ):
        self._checkpoint: Any = None
        self._torch = _is_torch(framework)
        self._device = _device(device, self._torch)
        if backend not in ("mmap", "pread"):
            raise SafetensorError(
                f'backend "{backend}" is invalid (expected one of: "mmap", '
                '"pread")'
            )
        name = os.fspath(filename)
        if "://" not in name and not os.path.exists(name):
            raise _errors.NotFoundError(
                f"No such file or directory: {name}", path=name
            )
        with _safetensor_errors("deserializing header"):
            self._checkpoint = _open.open(filename)

    def _opened(self) -> Any:
        if self._checkpoint is None:
            raise SafetensorError("File is closed")
        return self._checkpoint

    def __enter__(self) -> safe_open:
        return self

    def __exit__(self, *unused: Any) -> None:
        self._opened().close()
        self._checkpoint = None

    def keys(self) -> List[str]:
        return sorted(self._opened())

    def offset_keys(self) -> List[str]:
        """The names in the tensors' order in the file."""
        return [tensor.name for tensor in self._opened().in_file_order()]

    def metadata(self) -> Optional[Dict[str, str]]:
        return self._opened().metadata or None

    def get_tensors(self) -> Dict[str, Any]:
        """All tensors, by name."""
        opened = self._opened()
        if self._torch:
            found: Dict[str, Any] = opened.to_torch(self._device)
            return found
        size = sum(tensor.nbytes for tensor in opened.values())
        return dict(opened.items(memory=size))

    def get_tensor(self, name: str) -> Any:
        return self.get_slice(name).read()

    def get_slice(self, name: str) -> TensorSlice:
        opened = self._opened()
        if name not in opened:
            raise SafetensorError(f"File does not contain tensor {name}")
        return TensorSlice(opened[name], self._torch, self._device)


def _is_torch(framework: str) -> bool:
    if framework in ("pt", "torch", "pytorch"):
        return True
    if framework in ("np", "numpy"):
        return False
    raise SafetensorError(
        f"framework {framework} is invalid: tessera knows pt and np"
    )


def _device(device: Union[str, int, None], is_torch: bool) -> Any:
    """None for the CPU, or an argument for Tensor.to."""
    if device in ("cpu", None):
        return None
    if not is_torch:
        raise SafetensorError(
            f"Device {device} is not supported for framework numpy"
        )
    if isinstance(device, str):
        import torch

        try:
            torch.device(device)
        except RuntimeError:
            raise SafetensorError(f"device {device} is invalid") from None
    elif not isinstance(device, int) or isinstance(device, bool):
        raise SafetensorError(f"device {device!r} is invalid")
    return device


class TensorSlice:
    """A tensor; an index reads a part of it. See safetensors.PySafeSlice."""

    def __init__(self, tensor: Tensor, as_torch: bool, device: Any):
        self._tensor = tensor
        self._torch = as_torch
        self._device = device

    def get_shape(self) -> List[int]:
        return _stored_shape(self._tensor.dtype, self._tensor.shape)

    def get_dtype(self) -> str:
        return _CODES.get(self._tensor.dtype, self._tensor.dtype)

    def read(self, index: Any = Ellipsis) -> Any:
        if self._torch:
            return self._tensor.torch(index, device=self._device)
        # An array, also for one number.
        return self._tensor.numpy(index).__array__()

    def __getitem__(self, index: Any) -> Any:
        if not self._torch:
            try:
                index = _slices.checked(index, self._tensor.shape)
            except _slices.SliceError as failure:
                raise SafetensorError(str(failure)) from None
            return self.read(index)
        try:
            return self.read(index)
        except IndexError:
            # A list or a mask, or an error from PyTorch.
            return self.read()[index]
