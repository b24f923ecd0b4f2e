# SPDX-License-Identifier: Apache-2.0
"""Memory for tensors in NumPy's and PyTorch's types."""

from __future__ import annotations

import importlib
import math
import sys
from typing import Any
from typing import NamedTuple
from typing import Sequence
from typing import Tuple

from tessera import _errors

# Bytes per element, by PyTorch's dtype names.
ELEMENT_BYTES = {
    **{"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2},
    **{"float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1},
    **{"float8_e5m2fnuz": 1, "float8_e8m0fnu": 1, "float4_e2m1fn_x2": 1},
    **{"int64": 8, "int32": 4, "int16": 2, "int8": 1},
    **{"uint64": 8, "uint32": 4, "uint16": 2, "uint8": 1, "bool": 1},
    **{"complex32": 4, "complex64": 8, "complex128": 16},
    **{"bits1x8": 1, "bits2x4": 1, "bits4x2": 1, "bits8": 1, "bits16": 2},
}
_OF_NUMPY = {
    *("float64", "float32", "float16", "int64", "int32", "int16", "int8"),
    *("uint64", "uint32", "uint16", "uint8", "bool", "complex64"),
    "complex128",
}


class Region(NamedTuple):
    """A box in a tensor and the memory for it."""

    name: str
    dtype: str
    offsets: Sequence[int]
    sizes: Sequence[int]
    address: int


def module(name: str, instead: str) -> Any:
    """NumPy or PyTorch; an ImportError names the package to install, or a way
    without it."""
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as missing:
        if missing.name != name:
            raise
        raise ImportError(
            f"this needs {name}, which is not installed: pip install "
            f"'tessera[{name}]', {instead}",
            name=name,
        ) from None


def _numpy() -> Any:
    return module("numpy", "or read tensors with .torch()")


def numpy_dtype(name: str) -> Any:
    """NumPy's dtype, or one from ml_dtypes if NumPy lacks it."""
    numpy = _numpy()
    if name in _OF_NUMPY:
        return numpy.dtype(name)
    try:
        import ml_dtypes

        return numpy.dtype(getattr(ml_dtypes, name))
    except (ImportError, AttributeError):
        raise _errors.UnimplementedError(
            f"NumPy has no dtype {name}; install ml_dtypes, ask for another "
            "dtype, or read with .torch()"
        ) from None


def empty_numpy(dtype: str, sizes: Sequence[int]) -> Tuple[Any, int]:
    """An array, and the address of the memory."""
    array = _numpy().empty(tuple(sizes), numpy_dtype(dtype))
    return array, array.ctypes.data


def torch_dtype(name: str, tensor: str = "") -> Any:
    """PyTorch's dtype for this tensor; older versions lack some."""
    torch = module("torch", "or read tensors with .numpy()")
    if not hasattr(torch, name):
        raise _errors.UnimplementedError(
            (f"{tensor}: " if tensor else "")
            + f"PyTorch {torch.__version__} has no dtype {name}; use a newer "
            "PyTorch, or leave it out with dcp-convert convert --exclude",
            tensor=tensor,
        )
    return getattr(torch, name)


def empty_torch(dtype: str, sizes: Sequence[int]) -> Tuple[Any, int]:
    """A tensor on the CPU, and the address of the memory."""
    wanted = torch_dtype(dtype)
    from tessera import _dense  # which imports torch

    tensor = _dense.empty(wanted, sizes)
    return tensor, _dense.address(tensor)


def num_bytes(dtype: str, sizes: Sequence[int]) -> int:
    return math.prod(sizes) * ELEMENT_BYTES[dtype]


def dtype_name(dtype: Any) -> str:
    """The name for a dtype from torch or NumPy, which may be given as a
    name."""
    if isinstance(dtype, str):
        name = dtype
    elif "torch" in sys.modules and isinstance(
        dtype, sys.modules["torch"].dtype
    ):
        name = str(dtype)[len("torch.") :]
    else:
        try:
            name = _numpy().dtype(dtype).name
        except TypeError:
            raise _errors.InvalidArgumentError(
                f"dtype={dtype!r} is not a dtype, such as 'float32'",
                field="dtype",
            ) from None
    if name in ELEMENT_BYTES:
        return name
    if not isinstance(dtype, str):
        raise _errors.UnimplementedError(f"{dtype} is not supported")
    raise _errors.InvalidArgumentError(
        f"{dtype!r} is not a dtype, such as 'float32'"
    )
