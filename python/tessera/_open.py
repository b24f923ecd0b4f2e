# SPDX-License-Identifier: Apache-2.0
"""Opens a checkpoint on a disk, in an object store or on a daemon."""

from __future__ import annotations

import os
from typing import Any
from typing import Union

from tessera import _errors
from tessera._checkpoint import Checkpoint
from tessera._checkpoint import DAEMON
from tessera._files import FileSource


def open(
    path: Union[str, "os.PathLike[str]"], daemon: Any = None
) -> Checkpoint:
    """Opens a checkpoint in any format, and reads only the index.

    Args:
      path: a path, an s3:// URL, or a checkpoint on a daemon,
        tessera://host:7420/srv/run7/step-1000.
      daemon: how to reach the daemon, a tessera.client.ClientOptions; by
        default without TLS, and with the token from the variable TESSERA_TOKEN.

    Raises:
      tessera.NotFoundError: nothing is there.
      tessera.DataLossError: the index is damaged.
      tessera.PermissionDeniedError: a pickle needs more than data.
      tessera.UnavailableError: the daemon cannot be reached.
    """
    if isinstance(path, str) and path.startswith(DAEMON):
        # This alone needs grpcio.
        from tessera import client

        return client.open_url(path, daemon)
    if daemon is not None:
        raise _errors.InvalidArgumentError(
            f"{os.fspath(path)!r} is not on a daemon: its path does not begin "
            f"with {DAEMON}"
        )
    return Checkpoint(FileSource(path))
