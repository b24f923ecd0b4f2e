# SPDX-License-Identifier: Apache-2.0
"""tessera.folder: any checkpoint as a transformers folder."""

from __future__ import annotations

import os
import shutil
import tempfile
from typing import Any
from typing import Dict
from typing import Mapping
from typing import Optional
from typing import TYPE_CHECKING

from tessera import _commands
from tessera import _errors
from tessera._commands import Path
from tessera._commands import Shown

if TYPE_CHECKING:
    from typing_extensions import Unpack

    # Made with the wheel: make_options.
    from tessera import _options


# The name that mappings use for transformers' spelling.
_SIDE = "hf"
# A part of the program's error for a source with this spelling.
_IS_ITSELF = f"to turn {_SIDE} into itself"
_OF_MAPPINGS = {
    *("at", "check_padding", "config", "from_side", "map", "map_file", "set"),
    *("to_side", "unmatched"),
}


class Folder(os.PathLike):  # type: ignore[type-arg]
    """A folder's path, for from_pretrained and all other functions that take a
    path.

    A folder that was made for it is removed with it: at the end of a `with`
    statement, or when nothing refers to it any more.
    """

    def __init__(self, path: str, owner: Any = None):
        self._path = path
        self._owner = owner

    def __fspath__(self) -> str:
        return self._path

    def __str__(self) -> str:
        return self._path

    def __repr__(self) -> str:
        return f"Folder({self._path!r})"

    def __enter__(self) -> Folder:
        return self

    def __exit__(self, *unused: Any) -> None:
        self.close()

    def close(self) -> None:
        """Removes the folder, if it was made for this."""
        if self._owner is not None:
            self._owner.cleanup()
            self._owner = None


def folder(
    path: Path,
    *,
    dir: Optional[Path] = None,
    progress: Shown = None,
    **options: Unpack[_options.ConvertOptions],
) -> Folder:
    """A checkpoint as a folder that transformers loads:

        model = AutoModel.from_pretrained(tessera.folder("run7/step-1000",
                                                         config="base"))

    A folder that already is in transformers' format, with config.json and
    weights, is returned unchanged. For any other checkpoint that a mapping
    knows (docs/mappings.md), the model is converted into a temporary folder:
    names and shapes are those of transformers, and the config comes from the
    checkpoint or from `config`. An optimizer and other state next to the model
    are left out.

    Args:
      path: a checkpoint of any format, a path or URL.
      dir: where the temporary folder is made; it takes as much space as the
        model. By default where tempfile makes them.
      progress: as for tessera.convert.
      **options: those of tessera.convert, such as cast="bf16", and config=, a
        config.json or the folder of one.

    Raises:
      tessera.Error: as tessera.convert does, such as for a model that no
        mapping knows.
    """
    name = os.fspath(path)
    if not options and _is_of_transformers(name):
        return Folder(name)
    owner = tempfile.TemporaryDirectory(prefix="tessera-", dir=dir)
    try:
        made = _convert(path, owner.name, options, progress)
    except BaseException:
        owner.cleanup()
        raise
    return Folder(made, owner)


def _convert(
    path: Path, work: str, given: Mapping[str, Any], progress: Shown
) -> str:
    """The folder that it makes below `work`."""
    options = {"to": "safetensors", "to_side": _SIDE, "map": "auto", **given}
    if "map_file" in given:
        del options["map"]
    config = options.get("config")
    if isinstance(config, (str, os.PathLike)) and os.path.isdir(config):
        options["config"] = os.path.join(config, "config.json")
    made = os.path.join(work, "model")
    try:
        _commands.run("convert", [path, made], options, progress)
        return made
    except _errors.Error as failure:
        if "map" in given or "map_file" in given:
            raise
        whole = failure
    rest = _without_mapping(options)
    if _IS_ITSELF in str(whole):
        _commands.run("convert", [path, made], rest, progress)
        return made
    # A mapping must know every tensor. Therefore an optimizer next to the
    # model, and the model's prefix before the names, are removed first.
    part = os.path.join(work, "part")
    try:
        _commands.run(
            "convert", [path, part], {"part": "model", **rest}, progress
        )
    except _errors.Error:
        raise whole from None
    mapping = {
        name: value for name, value in options.items() if name in _OF_MAPPINGS
    }
    try:
        _commands.run(
            "convert", [part, made], {**mapping, "to": options["to"]}, progress
        )
    except _errors.Error as failure:
        if _IS_ITSELF in str(failure):
            return part
        raise
    shutil.rmtree(part)
    return made


def _without_mapping(options: Dict[str, Any]) -> Dict[str, Any]:
    """The options for a conversion that keeps names and shapes."""
    left = {
        name: value
        for name, value in options.items()
        if name not in _OF_MAPPINGS
    }
    if "config" in options and "assets" not in options:
        left["assets"] = os.path.dirname(os.fspath(options["config"]))
    return left


def _is_of_transformers(path: str) -> bool:
    try:
        names = os.listdir(path)
    except OSError:
        return False
    return "config.json" in names and any(
        name.endswith((".safetensors", ".safetensors.index.json"))
        or name.startswith("pytorch_model")
        for name in names
    )
