# SPDX-License-Identifier: Apache-2.0
"""The common part of Writer and Reader: the checkpoint's path."""

from __future__ import annotations

import os
import pathlib
from typing import Any
from typing import Union

from torch.distributed.checkpoint.filesystem import FileSystem

from tessera import _errors
from tessera._checkpoint import DAEMON


class PathStorage:
    """Implements the methods of PyTorch's storage that concern the path."""

    # Whether the path may be on a daemon, which does not take saves.
    takes_daemons = False
    # The path or URL as a text, "" while there is none.
    _place: str

    def __init__(self, path: Union[str, "os.PathLike[str]", None]):
        super().__init__()
        self._place = "" if path is None else os.fspath(path)

    @property
    def path(self) -> Union[str, "os.PathLike[str]"]:
        """As in PyTorch's classes: a pathlib.Path, or a URL as text."""
        is_local = self._place and "://" not in self._place
        return pathlib.Path(self._place) if is_local else self._place

    @path.setter
    def path(self, path: Union[str, "os.PathLike[str]"]) -> None:
        self._place = os.fspath(path)

    @property
    def fs(self) -> FileSystem:
        """The file system in PyTorch's classes; for paths on this machine."""
        return FileSystem()

    @property
    def checkpoint_id(self) -> Union[str, "os.PathLike[str]"]:
        return self.path

    @classmethod
    def validate_checkpoint_id(cls, checkpoint_id: Any) -> bool:
        return isinstance(checkpoint_id, (str, os.PathLike))

    def reset(self, checkpoint_id: Any = None) -> None:
        if checkpoint_id:
            self._place = os.fspath(checkpoint_id)

    def check_path(self) -> None:
        """Raises InvalidArgumentError if there is none yet, and
        UnimplementedError if it is one that cannot be used."""
        if not self._place:
            raise _errors.InvalidArgumentError(
                f"the {type(self).__name__} has no path: give it one, or pass "
                "checkpoint_id"
            )
        if self._place.startswith(DAEMON) and not self.takes_daemons:
            raise _errors.UnimplementedError(
                f"{self._place}: a daemon does not take saves; save to a path, and "
                "let a job of the daemon convert it",
                path=self._place,
            )
