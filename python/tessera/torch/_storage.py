"""What Writer and Reader have in common: the path of the checkpoint."""

from __future__ import annotations

import os
from typing import Any
from typing import Union

from tessera import _errors
from tessera._checkpoint import DAEMON


class PathStorage:
    """Implements those methods of PyTorch's storage that are about its path."""

    # Whether the path may be on a daemon, which does not take saves.
    takes_daemons = False

    def __init__(self, path: Union[str, "os.PathLike[str]", None]):
        super().__init__()
        self.path = "" if path is None else os.fspath(path)

    @property
    def checkpoint_id(self) -> str:
        return self.path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return isinstance(checkpoint_id, (str, os.PathLike))

    def reset(self, checkpoint_id: Any = None) -> None:
        if checkpoint_id:
            self.path = os.fspath(checkpoint_id)

    def check_path(self) -> None:
        """Raises InvalidArgumentError if there is none yet, and
        UnimplementedError if it is one that cannot be used."""
        if not self.path:
            raise _errors.InvalidArgumentError(
                f"the {type(self).__name__} has no path: give it one, or pass "
                "checkpoint_id"
            )
        if self.path.startswith(DAEMON) and not self.takes_daemons:
            raise _errors.UnimplementedError(
                f"{self.path}: a daemon does not take saves; save to a path, and "
                "let a job of the daemon convert it",
                path=self.path,
            )
