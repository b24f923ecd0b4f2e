# SPDX-License-Identifier: Apache-2.0
"""torch.Tensors with elements in memory, and the addresses of that memory.

Nothing else in this package asks a tensor for its address: a subclass may have
none (0), one on another device, or one in freed memory.
"""

from __future__ import annotations

from typing import Sequence

import torch

from tessera import _errors


def is_dense(tensor: torch.Tensor) -> bool:
    """Whether a tensor's elements are the bytes in the tensor's own storage.

    They are not for a wrapper, such as torchao's and DTensor, which answers for
    other tensors; nor for tensors that are sparse, nested, quantized, or without
    memory on purpose (meta, fake). A subclass that only has other methods is
    dense.
    """
    return (
        type(tensor).__torch_dispatch__
        is torch._C._disabled_torch_dispatch_impl
        and tensor.layout == torch.strided
        and not tensor.is_quantized
        and not tensor.is_nested
        and tensor.device.type != "meta"
    )


def is_in_place(tensor: torch.Tensor) -> bool:
    """Whether CPU memory holds the elements, row after row."""
    return (
        is_dense(tensor)
        and tensor.device.type == "cpu"
        and tensor.is_contiguous()
        and not tensor.is_conj()
        and not tensor.is_neg()
    )


def address(tensor: torch.Tensor, name: str = "") -> int:
    """The address of the elements in a tensor that is_in_place.

    Raises FailedPreconditionError if the memory was freed, as FSDP does with
    sharded parameters.
    """
    if not is_in_place(tensor):
        raise _errors.InvalidArgumentError(
            f"{name or 'tensor'}: {type(tensor).__name__} on "
            f"{tensor.device} has no elements in memory of the CPU",
            tensor=name,
        )
    if tensor.numel() == 0:
        return tensor.data_ptr()
    storage = tensor.untyped_storage()
    end = (tensor.storage_offset() + tensor.numel()) * tensor.element_size()
    if storage.data_ptr() == 0 or storage.nbytes() < end:
        raise _errors.FailedPreconditionError(
            f"{name or 'tensor'}: its memory was freed: {end} bytes of its "
            f"storage are used, and {storage.nbytes()} are there",
            tensor=name,
        )
    return tensor.data_ptr()


def row_major_bytes(tensor: torch.Tensor) -> torch.Tensor:
    """A dense tensor's elements, row after row, as bytes."""
    tensor = tensor.detach().resolve_conj().resolve_neg().contiguous()
    if tensor.numel() <= 1:
        # It is contiguous with any strides, but view() takes only 1.
        tensor = tensor.as_strided((tensor.numel(),), (1,))
    return tensor.reshape(-1).view(torch.uint8)


def empty(dtype: torch.dtype, sizes: Sequence[int]) -> torch.Tensor:
    """A dense tensor on the CPU, also if another device is the default."""
    return torch.empty(tuple(sizes), dtype=dtype, device="cpu")
