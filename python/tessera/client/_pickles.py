# SPDX-License-Identifier: Apache-2.0
"""Objects as a daemon sends them: pickles, which are not trusted.

PyTorch's planner gives them to torch.load, which would run the functions that
they name. When the core reads a file it writes each object again; here the
opcodes are checked instead, the same ones that any unpickler executes.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import re
import zipfile

from tessera import _arrays
from tessera import _errors
from tessera import _objects

# Classes with objects that hold data and constructors that have no effects, in
# addition to those that become Python's own types; as in
# dcp/format/pickle/pickle_globals.cc.
_INERT = {
    "_io": "BytesIO",
    "argparse": "Namespace",
    "numpy": "dtype ndarray",
    "numpy._core.multiarray": "_reconstruct scalar",
    "numpy._core.numeric": "_frombuffer",
    "numpy.core.multiarray": "_reconstruct scalar",
    "numpy.core.numeric": "_frombuffer",
    "omegaconf.base": "ContainerMetadata Metadata",
    "omegaconf.dictconfig": "DictConfig",
    "omegaconf.listconfig": "ListConfig",
    "omegaconf.nodes": "AnyNode BooleanNode BytesNode EnumNode FloatNode "
    "IntegerNode PathNode StringNode",
    "torch": "channels_last channels_last_3d contiguous_format device "
    "preserve_format " + " ".join(_arrays.ELEMENT_BYTES),
    "torch.serialization": "_get_layout",
    "torch.torch_version": "TorchVersion",
    "types": "SimpleNamespace",
    "typing": "Any",
    "uuid": "SafeUUID",
}
_ALLOWED = set(_objects.DATA) | {
    (module, name) for module, names in _INERT.items() for name in names.split()
}
# These name a class in another way than by a text in the opcode itself.
_REFUSED = {
    *("INST", "STACK_GLOBAL", "EXT1", "EXT2", "EXT4"),
    *("PERSID", "BINPERSID", "NEXT_BUFFER", "READONLY_BUFFER"),
}


def escape(name: str) -> str:
    """A glob that only this name matches."""
    return re.sub(r"([*?\[\\])", r"\\\1", name)


def archive(name: str, pickled: bytes) -> bytes:
    """The torch.save archive for an object that names nothing but data."""
    try:
        for opcode, argument, _ in pickletools.genops(pickled):
            if opcode.name in _REFUSED:
                raise _errors.PermissionDeniedError(
                    f"{name}: the pickle has {opcode.name}, which a daemon does "
                    "not send",
                    tensor=name,
                )
            if opcode.name != "GLOBAL":
                continue
            if tuple(argument.split(" ", 1)) not in _ALLOWED:
                raise _errors.PermissionDeniedError(
                    f"{name}: the pickle names {argument.replace(' ', '.')}, "
                    "which is not a class of data",
                    tensor=name,
                )
    except (ValueError, IndexError, pickle.UnpicklingError) as failure:
        raise _errors.DataLossError(
            f"{name}: the pickle is damaged: {failure}", tensor=name
        ) from None
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as file:
        file.writestr("archive/data.pkl", pickled)
        file.writestr("archive/byteorder", "little")
        file.writestr("archive/version", "3\n")
    return out.getvalue()
