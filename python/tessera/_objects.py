# SPDX-License-Identifier: Apache-2.0
"""Objects in a checkpoint that are not tensors, without importing anything that
the checkpoint names.

The core has read the object as data and has written it again; here it becomes
Python's own types where it has them, and otherwise an `Opaque`.
"""

from __future__ import annotations

import builtins
import collections
import datetime
import decimal
import fractions
import io
import pathlib
import pickle
import uuid
import zipfile
from typing import Any
from typing import Dict
from typing import Tuple


class Opaque:
    """An object of a class that was not imported, as described in the pickle.

    Attributes:
      module, name: the class.
      args: the arguments of the constructor.
      state: the state that is set afterwards, or None.
    """

    module = ""
    name = ""

    def __init__(self, *args: Any):
        self.args = args
        self.state: Any = None

    def __setstate__(self, state: Any) -> None:
        self.state = state

    def __repr__(self) -> str:
        inside = ", ".join(map(repr, self.args))
        return f"<{self.module}.{self.name}({inside})>"


def _encode(text: str, encoding: str) -> bytes:
    """Bytes, as pickles with protocol 2 encode them."""
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"the encoding {encoding!r}")
    return text.encode("latin1")


DATA: Dict[Tuple[str, str], Any] = {
    ("_codecs", "encode"): _encode,
    ("collections", "Counter"): collections.Counter,
    ("collections", "OrderedDict"): collections.OrderedDict,
    ("collections", "defaultdict"): collections.defaultdict,
    ("collections", "deque"): collections.deque,
    ("datetime", "date"): datetime.date,
    ("datetime", "datetime"): datetime.datetime,
    ("datetime", "time"): datetime.time,
    ("datetime", "timedelta"): datetime.timedelta,
    ("datetime", "timezone"): datetime.timezone,
    ("decimal", "Decimal"): decimal.Decimal,
    ("fractions", "Fraction"): fractions.Fraction,
    ("pathlib", "Path"): pathlib.PurePosixPath,
    ("pathlib", "PosixPath"): pathlib.PurePosixPath,
    ("pathlib", "PurePath"): pathlib.PurePosixPath,
    ("pathlib", "PurePosixPath"): pathlib.PurePosixPath,
    ("pathlib", "PureWindowsPath"): pathlib.PureWindowsPath,
    ("pathlib", "WindowsPath"): pathlib.PureWindowsPath,
    ("torch", "Size"): tuple,
    ("uuid", "UUID"): uuid.UUID,
}
for _name in (
    *("bytearray", "bytes", "complex", "dict", "float", "frozenset", "int"),
    *("list", "range", "set", "slice", "str", "tuple"),
):
    DATA["builtins", _name] = getattr(builtins, _name)
    DATA["__builtin__", _name] = getattr(builtins, _name)


class _Unpickler(pickle.Unpickler):
    """Finds only the classes above; never imports."""

    def find_class(self, module: str, name: str) -> Any:
        known = DATA.get((module, name))
        if known is not None:
            return known
        return type(name, (Opaque,), {"module": module, "name": name})

    def persistent_load(self, pid: Any) -> Any:
        storage = type("Storage", (Opaque,), {"module": "", "name": "storage"})
        return storage(*pid[2:3])


def decode(archive: bytes) -> Any:
    """The value for the result of tessera_checkpoint_object."""
    with zipfile.ZipFile(io.BytesIO(archive)) as file:
        return _Unpickler(io.BytesIO(file.read("archive/data.pkl"))).load()
