# SPDX-License-Identifier: Apache-2.0
"""Tessera: fast, durable checkpoints for PyTorch, read and written without
executing pickles.

    ckpt = tessera.open("run7/step-1000")      # any format
    ckpt["layers.0.wq"][2:7]                   # reads only these rows
    tessera.convert("run7/step-1000", "model.safetensors", cast="bf16")
    tessera.save(state, "run7/step-1000")      # in one process or in many
    tessera.load(state, "run7/step-1000")

`tessera.torch` has the writer and the reader for
torch.distributed.checkpoint; it alone imports torch. `tessera.client` has the
jobs and checkpoints of a daemon; it alone imports grpcio.
"""

from tessera._commands import consolidate
from tessera._commands import convert
from tessera._commands import diff
from tessera._commands import inspect
from tessera._commands import Progress
from tessera._commands import reshard
from tessera._commands import verify
from tessera._checkpoint import Checkpoint
from tessera._checkpoint import Tensor
from tessera._errors import AlreadyExistsError
from tessera._errors import CancelledError
from tessera._errors import DataLossError
from tessera._errors import DeadlineExceededError
from tessera._errors import Error
from tessera._errors import FailedPreconditionError
from tessera._errors import InvalidArgumentError
from tessera._errors import LossWarning
from tessera._errors import NotFoundError
from tessera._errors import PermissionDeniedError
from tessera._errors import ResourceExhaustedError
from tessera._errors import UnauthenticatedError
from tessera._errors import UnavailableError
from tessera._errors import UnimplementedError
from tessera._objects import Opaque
from tessera._folder import Folder
from tessera._folder import folder
from tessera._open import open
from tessera._state import load
from tessera._state import save
from tessera._version import __version__

__all__ = [
    "__version__",
    "AlreadyExistsError",
    "CancelledError",
    "Checkpoint",
    "DataLossError",
    "DeadlineExceededError",
    "Error",
    "FailedPreconditionError",
    "Folder",
    "InvalidArgumentError",
    "LossWarning",
    "NotFoundError",
    "Opaque",
    "PermissionDeniedError",
    "Progress",
    "ResourceExhaustedError",
    "Tensor",
    "UnauthenticatedError",
    "UnavailableError",
    "UnimplementedError",
    "consolidate",
    "convert",
    "diff",
    "folder",
    "inspect",
    "load",
    "open",
    "reshard",
    "save",
    "verify",
]
