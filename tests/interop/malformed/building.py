# SPDX-License-Identifier: Apache-2.0
"""Bytes of hostile checkpoints: a zip writer with every field adjustable, an
assembler of pickles, and a sound base checkpoint to spoil.

The base holds `w`, float32 [4, 3] with the values 0 to 11 in two chunks, and
the bytes entry `step`, the integer 9.
"""

import io
import json
import os
import pickle
import struct
import zlib

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    Metadata,
    MetadataIndex,
    StorageMeta,
    TensorProperties,
    TensorStorageMetadata,
)


class Call:
    """Pickles as func(*args), whatever func is."""

    def __init__(self, func, *args):
        self.func, self.args = func, args

    def __reduce__(self):
        return self.func, self.args


def size(*dims):
    """A pickled torch.Size whose dimensions nothing has checked."""
    return Call(torch.Size, tuple(dims))


# ----------------------------------------------------------------------- zip
def rec(name, data, **fields):
    """One record. A name that begins with "!" gets no archive/ prefix."""
    r = dict(
        name=name,
        data=data,
        method=0,
        flags=0x0800,
        crc=None,  # None: the true value, here and below
        usize=None,
        csize=None,
        lname=None,  # name, size and offset as the local header has them
        lusize=None,
        loff=None,
        extra=None,
        cextra=b"",
    )
    r.update(fields)
    return r


def _or(value, default):
    return default if value is None else value


def _encoded(name):
    if isinstance(name, bytes):
        return name
    return name[1:].encode() if name[0] == "!" else b"archive/" + name.encode()


def _local_header(r, offset):
    """The bytes of a record, and what the central directory says of it."""
    data = r["data"]
    if r["method"] == 8:
        deflate = zlib.compressobj(9, zlib.DEFLATED, -15)
        data = deflate.compress(data) + deflate.flush()
    usize = _or(r["usize"], len(r["data"]))
    csize = _or(r["csize"], len(data))
    crc = _or(r["crc"], zlib.crc32(r["data"]))
    name = _encoded(r["name"])
    local_name = name if r["lname"] is None else r["lname"].encode()
    extra = r["extra"]
    if extra is None:
        pad = -(offset + 30 + len(local_name) + 4) % 64
        extra = b"FB" + struct.pack("<H", pad) + b"Z" * pad
    head = struct.pack(
        "<IHHHHHIIIHH",
        *(0x04034B50, 0, r["flags"], r["method"], 0, 0, crc),
        *(csize & 0xFFFFFFFF, _or(r["lusize"], usize) & 0xFFFFFFFF),
        *(len(local_name), len(extra)),
    )
    entry = struct.pack(
        "<IHHHHHHIIIHHHHHII",
        *(0x02014B50, 0, 0, r["flags"], r["method"], 0, 0, crc),
        *(csize & 0xFFFFFFFF, usize & 0xFFFFFFFF),
        *(len(name), len(r["cextra"]), 0, 0, 0, 0),
        _or(r["loff"], offset) & 0xFFFFFFFF,
    )
    return head + local_name + extra + data, entry + name + r["cextra"]


def zipb(
    recs,
    eocd_count=None,
    cd_off=None,
    cd_len=None,
    eocd=True,
    comment=b"",
    z64=None,
    disk=0,
):
    """A zip file. z64 is (count, length, offset, offset of the end record)."""
    out = io.BytesIO()
    central = b""
    for r in recs:
        local, entry = _local_header(r, out.tell())
        out.write(local)
        central += entry
    directory = out.tell()
    out.write(central)
    if z64 is not None:
        count, length, offset, place = z64
        place = _or(place, out.tell())
        out.write(
            struct.pack(
                "<IQHHIIQQQQ",
                *(0x06064B50, 44, 45, 45, 0, 0, count, count, length, offset),
            )
        )
        out.write(struct.pack("<IIQI", 0x07064B50, 0, place, 1))
    if eocd:
        count = _or(eocd_count, len(recs)) & 0xFFFF
        out.write(
            struct.pack(
                "<IHHHHIIH",
                *(0x06054B50, disk, disk, count, count),
                _or(cd_len, len(central)) & 0xFFFFFFFF,
                _or(cd_off, directory) & 0xFFFFFFFF,
                len(comment),
            )
        )
        out.write(comment)
    return out.getvalue()


# ------------------------------------------------------------------- pickles
def g(module, name):
    """GLOBAL"""
    return b"c" + module.encode() + b"\n" + name.encode() + b"\n"


def u(text):
    """BINUNICODE"""
    b = text.encode()
    return b"X" + struct.pack("<I", len(b)) + b


def i(n):
    """BININT1, BININT or LONG1"""
    if 0 <= n < 256:
        return b"K" + bytes([n])
    if -(2**31) <= n < 2**31:
        return b"J" + struct.pack("<i", n)
    b = n.to_bytes((n.bit_length() + 8) // 8, "little", signed=True)
    return b"\x8a" + bytes([len(b)]) + b


def tup(*values):
    """MARK ... TUPLE"""
    return b"(" + b"".join(values) + b"t"


def system_call(name):
    """os.system of a command that would leave a file to be found."""
    return b"\x80\x02" + g("os", "system") + u(touch(name)) + b"\x85R."


def touch(name):
    return "touch PWNED_" + name


def storage_pid(
    storage="FloatStorage",
    key="0",
    location="cpu",
    numel=6,
    tag="storage",
    smod="torch",
    view=b"",
):
    """Persistent id of a storage. A legacy file has `view` as a sixth part."""
    parts = [u(tag), g(smod, storage), u(key), u(location), i(numel)]
    return tup(*parts, *([view] if view else [])) + b"Q"


def tensor_value(
    offset=0,
    shape=(2, 3),
    stride=(3, 1),
    func=("torch._utils", "_rebuild_tensor_v2"),
    **pid,
):
    """A tensor as torch.save pickles it, without PROTO and STOP."""
    arguments = tup(
        storage_pid(**pid),
        i(offset),
        tup(*map(i, shape)),
        tup(*map(i, stride)),
        b"\x89",
        g("collections", "OrderedDict") + b")R",
    )
    return g(*func) + arguments + b"R"


def tensor_pkl(**fields):
    return b"\x80\x02" + tensor_value(**fields) + b"."


# --------------------------------------------------------------------- items
F6 = struct.pack("<6f", *range(6))
F6B = struct.pack("<6f", *range(6, 12))
RECORDS = (
    "data.pkl",
    ".format_version",
    ".storage_alignment",
    "byteorder",
    "data/0",
    "version",
    ".data/serialization_id",
)


def item(data=F6, pkl=None, extra_recs=(), drop=(), mod=None, **zip_fields):
    """A tensor item; `mod` overrides fields of the records it names."""
    contents = (tensor_pkl() if pkl is None else pkl,)
    contents += (b"1", b"64", b"little", data, b"3\n", b"0" * 40)
    recs = [rec(n, c) for n, c in zip(RECORDS, contents) if n not in drop]
    recs += extra_recs
    for r in recs:
        r.update((mod or {}).get(r["name"], {}))
    return zipb(recs, **zip_fields)


def obj_item(pkl):
    recs = (("data.pkl", pkl), ("byteorder", b"little"), ("version", b"3\n"))
    return zipb([rec(*r) for r in recs])


STEP = obj_item(b"\x80\x02K\x09.")


def base():
    return assemble(item(), STEP)


def chunk(offsets, sizes):
    return ChunkStorageMetadata(torch.Size(offsets), torch.Size(sizes))


def assemble(first, step, second=None):
    """Metadata and data files of a checkpoint of three items."""
    second = item(F6B) if second is None else second
    blobs = {"__0_0.distcp": first + step, "__1_0.distcp": second}
    w = TensorStorageMetadata(
        TensorProperties(dtype=torch.float32),
        torch.Size([4, 3]),
        [chunk([0, 0], [2, 3]), chunk([2, 0], [2, 3])],
    )
    here = _StorageInfo("__0_0.distcp", 0, len(first))
    there = _StorageInfo("__1_0.distcp", 0, len(second))
    after = _StorageInfo("__0_0.distcp", len(first), len(step))
    metadata = Metadata(
        state_dict_metadata={"step": BytesStorageMetadata(), "w": w},
        planner_data={"step": ("step",), "w": ("w",)},
        storage_data={
            MetadataIndex("step"): after,
            MetadataIndex("w", [0, 0], 0): here,
            MetadataIndex("w", [2, 0], 1): there,
        },
        storage_meta=StorageMeta(checkpoint_id="base", save_id="0"),
        version="1.0.0",
    )
    return metadata, blobs


# --------------------------------------------------------------------- cases
class Cases:
    """Writes cases into a directory and keeps their list."""

    def __init__(self, out):
        self.out = out
        self.manifest = []

    def path(self, *parts):
        return os.path.join(self.out, *parts)

    def note(self, name, kind, expect, why, **more):
        if any(m["name"] == name for m in self.manifest):
            raise ValueError("two cases are named " + name)
        entry = dict(name=name, path=name, kind=kind, expect=expect, why=why)
        self.manifest.append(dict(entry, **more))

    def file(self, name, kind, expect, why, data, **more):
        with open(self.path(name), "wb") as f:
            f.write(data)
        self.note(name, kind, expect, why, **more)

    def directory(self, name, kind, expect, why, files, **more):
        os.makedirs(self.path(name), exist_ok=True)
        for file_name, data in files.items():
            with open(self.path(name, file_name), "wb") as f:
                f.write(data)
        self.note(name, kind, expect, why, **more)

    def dcp(self, name, expect, why, md=None, blobs=None, raw=None, **more):
        """A DCP directory: the base, except for what is given. `raw` are bytes
        for .metadata; False leaves it out."""
        base_md, base_blobs = base()
        files = dict(base_blobs if blobs is None else blobs)
        if raw is None:
            raw = pickle.dumps(base_md if md is None else md, 4)
        if raw is not False:
            files[".metadata"] = raw
        self.directory(name, "dcp", expect, why, files, **more)

    def metadata(self, name, expect, why, change, **more):
        """The base with `change` done to its Metadata."""
        md, _ = base()
        change(md)
        self.dcp(name, expect, why, md=md, **more)

    def item(self, name, expect, why, data, **more):
        """The base with another first item of `w`."""
        md, blobs = assemble(data, STEP)
        self.dcp(name, expect, why, md=md, blobs=blobs, **more)

    def object(self, name, expect, why, pkl, raw=None, **more):
        """The base with another bytes entry `step`."""
        step = obj_item(pkl) if raw is None else raw
        md, blobs = assemble(item(), step)
        self.dcp(name, expect, why, md=md, blobs=blobs, **more)

    def write_manifest(self):
        with open(self.path("manifest.json"), "w") as f:
            json.dump(self.manifest, f, indent=1)
