# SPDX-License-Identifier: Apache-2.0
"""The verbs of dcp-convert as functions.

Each runs the program with its separate memory limit, so that no part of a
conversion is in this process.
"""

from __future__ import annotations

import dataclasses
import json
import os
import re
import signal
import subprocess
from typing import Any
from typing import Callable
from typing import Dict
from typing import Iterable
from typing import List
from typing import Mapping
from typing import Optional
from typing import TYPE_CHECKING
from typing import Union

from tessera import _errors
from tessera import _progress
from tessera import _threads
from tessera._library import FOLDER

if TYPE_CHECKING:
    from typing_extensions import Unpack

    # Made with the wheel: make_options.
    from tessera import _options

Path = Union[str, "os.PathLike[str]"]


@dataclasses.dataclass(frozen=True)
class Progress:
    """A call's progress; also the last report when it is done."""

    done_bytes: int
    total_bytes: int
    seconds: float
    bytes_per_second: float
    # None while that is not known.
    eta_seconds: Optional[float]
    # Requests to object stores that failed and are being tried again.
    requests_retried: int


OnProgress = Callable[[Progress], None]
# A function, or True for a bar on the terminal.
Shown = Union[bool, OnProgress, None]

# The exit code for a command line that is wrong.
_USAGE = 2


def program(name: str) -> str:
    """The path of a program in the package."""
    return os.environ.get("TESSERA_" + name.upper().replace("-", "_")) or str(
        FOLDER / "bin" / name
    )


def _words(options: Mapping[str, Any]) -> List[str]:
    """cast="bf16" as --cast bf16, direct=True as --direct, and so on."""
    words = []
    for name, value in options.items():
        # "from" is a keyword in Python: from_="deepspeed".
        flag = "--" + name.rstrip("_").replace("_", "-")
        if value is None:
            continue
        if value is True:
            words.append(flag)
        elif value is False:
            words.append("--no-" + flag[2:])
        elif isinstance(value, (list, tuple)):
            for one in value:
                words += [flag, _word(name, one)]
        elif isinstance(value, Mapping):
            pairs = [f"{key}={_word(name, one)}" for key, one in value.items()]
            for word in [",".join(pairs)] if name == "mesh" else pairs:
                words += [flag, word]
        else:
            words += [flag, _word(name, value)]
    return words


def _word(name: str, value: Any) -> str:
    if isinstance(value, (str, os.PathLike)):
        return os.fspath(value)
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return str(value)
    raise _errors.InvalidArgumentError(
        f"{name}={value!r} is neither a text nor a number", field=name
    )


# An option in a message: "--max-memory", "'--bogus'", but no part of a path.
_FLAG = re.compile(r"(?<![\w/.-])--(no-)?([a-z][a-z-]*[a-z])\b")
_HELP = re.compile(r" \(try dcp-convert (\w+) --help\)$")


def _in_python(text: str) -> str:
    """A message with Python's names for the options."""
    text = _HELP.sub(r" (try help(tessera.\1))", text)

    def keyword(found: re.Match[str]) -> str:
        name = found[2].replace("-", "_")
        name += "_" if name == "from" else ""
        return f"{name}=False" if found[1] else name

    return _FLAG.sub(keyword, text)


def _follow(
    lines: Iterable[str], on_progress: Optional[OnProgress], said: List[str]
) -> None:
    """Reads the program's output until it ends."""
    for line in lines:
        try:
            report = json.loads(line)
        except ValueError:
            said.append(line.rstrip("\n"))
            continue
        if on_progress is not None and report.get("event") == "progress":
            on_progress(
                Progress(
                    *(report[f.name] for f in dataclasses.fields(Progress))
                )
            )


def run(
    verb: str,
    paths: List[Path],
    options: Mapping[str, Any],
    progress: Shown,
) -> Dict[str, Any]:
    """Runs a verb, and returns the JSON object that it prints.

    `progress` is called in this thread. If anything interrupts the call, such
    as Ctrl-C or an error in `progress`, the program stops too and leaves
    nothing half-written.
    """
    if progress is True:
        with _progress.Bar(verb) as bar:
            return run(verb, paths, options, bar.show)
    on_progress = progress or None
    words = [verb, *map(os.fspath, paths), *_words(options), "--json"]
    if on_progress is not None:
        words += ["--progress", "json"]
    process = subprocess.Popen(
        [program("dcp-convert"), *words],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        encoding="utf-8",
        errors="replace",
        # Ctrl-C goes to this process only, which passes it on once.
        start_new_session=True,
    )
    stdout = _threads.Lines(process.stdout)
    stderr = _threads.Lines(process.stderr)
    said: List[str] = []
    try:
        _follow(stderr, on_progress, said)
        printed = "".join(stdout)
        process.wait()
    except BaseException:
        process.send_signal(signal.SIGINT)
        process.wait()
        raise
    return _result(process.returncode, printed, said)


def _result(code: int, printed: str, said: List[str]) -> Dict[str, Any]:
    try:
        result: Dict[str, Any] = json.loads(printed)
    except ValueError:
        # An error in the options themselves is a line only.
        message = "\n".join(said) or f"dcp-convert ended with {code}"
        kind = _errors.InvalidArgumentError if code == _USAGE else _errors.Error
        field = re.match(r"dcp-convert: --([a-z-]+): ", message)
        raise kind(
            _in_python(message.replace("dcp-convert: ", "", 1)),
            field=field[1].replace("-", "_") if field else "",
        ) from None
    error = result.get("error")
    if error is not None:
        raise _errors.class_of_name(error["code"])(_in_python(error["message"]))
    _errors.warn_of_losses(
        result.get("src") or result.get("path") or "diff",
        map(_in_python, result.get("warnings", [])),
    )
    return result


def convert(
    src: Path,
    dst: Path,
    *,
    progress: Shown = None,
    **options: Unpack[_options.ConvertOptions],
) -> Dict[str, Any]:
    """Converts a checkpoint to another format or sharding.

    Args:
      src, dst: paths or s3:// URLs; the suffix of `dst`, or to="dcp",
        "safetensors" or "pt", sets the format.
      progress: called about each second; True shows a bar, with tqdm if it is
        there.
      **options: those of `dcp-convert convert --help`, with underscores:
        cast="bf16", include=["model.*"], mesh={"shard": 8}, overwrite=True,
        max_memory="1GiB", from_="deepspeed". False stands for the option with "no-" in front:
        verify=False.

    Returns:
      The output of `dcp-convert convert --json`.

    Raises:
      tessera.Error: a subclass for each kind of error; nothing is left at the
        destination.
    """
    return run("convert", [src, dst], options, progress)


def reshard(
    src: Path,
    dst: Path,
    *,
    mesh: Any,
    progress: Shown = None,
    **options: Unpack[_options.ReshardOptions],
) -> Dict[str, Any]:
    """Converts to DCP for another mesh, as `dcp-convert reshard` does.

    Args:
      mesh: the axes and their sizes, {"replicate": 2, "shard": 3}.
    """
    return run("reshard", [src, dst], {"mesh": mesh, **options}, progress)


def consolidate(
    src: Path,
    dst: Path,
    *,
    progress: Shown = None,
    **options: Unpack[_options.ConsolidateOptions],
) -> Dict[str, Any]:
    """Writes whole tensors, SHARDED to FULL, as `dcp-convert consolidate`."""
    return run("consolidate", [src, dst], options, progress)


def verify(
    path: Path,
    *,
    progress: Shown = None,
    **options: Unpack[_options.VerifyOptions],
) -> Dict[str, Any]:
    """Checks structure, coverage and checksums, as `dcp-convert verify`.

    Returns:
      The report: result["ok"] says whether the checkpoint is sound, and
      result["content_checked"] whether any content checksum is recorded.
    """
    return run("verify", [path], options, progress)


def diff(
    a: Path,
    b: Path,
    *,
    progress: Shown = None,
    **options: Unpack[_options.DiffOptions],
) -> Dict[str, Any]:
    """Compares two checkpoints, as `dcp-convert diff`.

    Returns:
      The differences: result["equal"] says whether there are none.
    """
    return run("diff", [a, b], options, progress)


def inspect(
    path: Path, **options: Unpack[_options.InspectOptions]
) -> Dict[str, Any]:
    """Lists the contents of a checkpoint, as `dcp-convert inspect --json`."""
    return run("inspect", [path], options, None)
