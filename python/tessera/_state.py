# SPDX-License-Identifier: Apache-2.0
"""tessera.save and tessera.load: a state dict, in one process or in many."""

from __future__ import annotations

import os
from typing import Any
from typing import Dict
from typing import Union

from tessera import _arrays
from tessera import _errors

Path = Union[str, "os.PathLike[str]"]

# The suffixes of single files.
_FILES = (".bin", ".pt", ".pth", ".safetensors")


def save(
    state: Dict[str, Any],
    path: Path,
    *,
    overwrite: bool = True,
    memory: Union[int, str] = "16MiB",
    max_rate: Union[int, str] = 0,
) -> None:
    """Saves a state dict as a checkpoint that appears whole or not at all.

    If torch.distributed is initialised, all ranks make this call, each with one
    part of the tensors, such as DTensors; otherwise one process saves alone.
    The checkpoint is PyTorch's own (DCP), with digests, and can be loaded onto
    any number of ranks.

    Args:
      state: tensors, objects, and dicts and lists with them; an object with a
        state_dict() is asked for it, as in torch.distributed.checkpoint.save.
      path: a directory, which is made with all parents, or an s3:// URL.
      overwrite, memory, max_rate: as for tessera.torch.Writer.

    Raises:
      tessera.AlreadyExistsError: there is a checkpoint, and `overwrite` is off.
      tessera.UnimplementedError: a tensor cannot be saved; it is named.
    """
    torch = _torch()
    if os.fspath(path).endswith(_FILES):
        raise _errors.InvalidArgumentError(
            f"{os.fspath(path)}: a checkpoint is a directory, and this is the "
            "name of a file; tessera.safetensors.save_file and torch.save write "
            "one",
            field="path",
        )
    writer = torch.Writer(overwrite=overwrite, memory=memory, max_rate=max_rate)
    torch._state.save(state, path, writer)


def load(
    state: Dict[str, Any],
    path: Path,
    *,
    memory: Union[int, str] = "16MiB",
    verify: bool = False,
    daemon: Any = None,
) -> None:
    """Loads a checkpoint in any format into a state dict, in place.

    If torch.distributed is initialised, all ranks make this call, and each
    reads only the parts that it needs; otherwise one process loads alone.

    Args:
      state: tensors, which are filled, and other values, which are replaced. An
        object with a load_state_dict() gets the values under that key, as in
        torch.distributed.checkpoint.load.
      path: a path, an s3:// URL, or the tessera:// URL of a checkpoint on a
        daemon.
      memory, verify, daemon: as for tessera.torch.Reader.

    Raises:
      tessera.NotFoundError: nothing is there.
      RuntimeError: the state has something that the checkpoint lacks.
    """
    _torch()._state.load(
        state, path, memory=memory, verify=verify, daemon=daemon
    )


def _torch() -> Any:
    _arrays.module("torch", "which saves and loads states")
    import tessera.torch

    return tessera.torch
