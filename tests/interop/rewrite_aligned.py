# SPDX-License-Identifier: Apache-2.0
"""Rewrites a DCP directory so that items and tensor payloads are aligned.

    python rewrite_aligned.py SRC DST [--align 4096] [--zero-crc] [--gap]

Each item becomes a stored zip whose payload record begins, counted from the
start of the file, at a multiple of the alignment. Gaps are filled with zeros.
"""

import argparse
import io
import os
import pickle
import struct
import zipfile
import zlib

# UTF-8 names; no data descriptor, so sizes and CRC are in the local header.
FLAGS = 0x0800


def build_zip(
    records, base, align, zero_crc, zip64=False, names_prefix="archive"
):
    """The zip of (name, bytes) pairs that will begin at `base` in its file."""
    out = io.BytesIO()
    central = []
    for name, data in records:
        fn = (names_prefix + "/" + name).encode()
        crc = 0 if zero_crc else zlib.crc32(data) & 0xFFFFFFFF
        off = out.tell()
        a = align if name.startswith("data/") else 64
        start = base + off + 30 + len(fn) + 4  # 4: the extra field's own header
        pad = (-start) % a
        hdr = b""
        if pad + 4 > 0xFFFF:
            raise ValueError("padding too large for one extra field")
        extra = b"FB" + struct.pack("<H", pad) + b"Z" * pad
        hdr = struct.pack(
            "<IHHHHHIIIHH",
            0x04034B50,
            0,
            FLAGS,
            0,
            0,
            0,
            crc,
            len(data),
            len(data),
            len(fn),
            len(extra),
        )
        out.write(hdr + fn + extra + data)
        central.append((fn, crc, len(data), off))
    cd_off = out.tell()
    for fn, crc, n, off in central:
        out.write(
            struct.pack(
                "<IHHHHHHIIIHHHHHII",
                0x02014B50,
                0,
                0,
                FLAGS,
                0,
                0,
                0,
                crc,
                n,
                n,
                len(fn),
                0,
                0,
                0,
                0,
                0,
                off,
            )
            + fn
        )
    cd_len = out.tell() - cd_off
    if zip64:
        z64 = out.tell()
        out.write(
            struct.pack(
                "<IQHHIIQQQQ",
                0x06064B50,
                44,
                798,
                45,
                0,
                0,
                len(central),
                len(central),
                cd_len,
                cd_off,
            )
        )
        out.write(struct.pack("<IIQI", 0x07064B50, 0, z64, 1))
    out.write(
        struct.pack(
            "<IHHHHIIH",
            0x06054B50,
            0,
            0,
            len(central),
            len(central),
            cd_len,
            cd_off,
            0,
        )
    )
    return out.getvalue()


def zip_records(blob):
    z = zipfile.ZipFile(io.BytesIO(blob))
    recs = []
    for i in z.infolist():
        recs.append((i.filename.split("/", 1)[1], z.read(i)))
    return recs


def rewrite(src, dst, align=4096, zero_crc=True, gap=True, zip64=False):
    os.makedirs(dst, exist_ok=True)
    with open(os.path.join(src, ".metadata"), "rb") as f:
        md = pickle.load(f)
    by_file = {}
    for idx, s in md.storage_data.items():
        by_file.setdefault(s.relative_path, []).append((idx, s))
    for fn, items in by_file.items():
        with open(os.path.join(src, fn), "rb") as f:
            raw = f.read()
        out = io.BytesIO()
        for idx, s in items:
            recs = zip_records(raw[s.offset : s.offset + s.length])
            pos = out.tell()
            start = pos + ((-pos) % align)
            if gap:
                start += align  # a deliberate hole before every item
            out.write(b"\0" * (start - pos))
            blob = build_zip(recs, start, align, zero_crc, zip64)
            out.write(blob)
            s.offset, s.length = start, len(blob)
        with open(os.path.join(dst, fn), "wb") as f:
            f.write(out.getvalue())
    md.storage_meta.checkpoint_id = type(md.storage_meta.checkpoint_id)(
        os.path.basename(dst)
    )
    with open(os.path.join(dst, ".metadata"), "wb") as f:
        pickle.dump(md, f)


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("src")
    ap.add_argument("dst")
    ap.add_argument("--align", type=int, default=4096)
    ap.add_argument("--zero-crc", action="store_true")
    ap.add_argument("--gap", action="store_true")
    ap.add_argument("--zip64", action="store_true")
    a = ap.parse_args()
    rewrite(a.src, a.dst, a.align, a.zero_crc, a.gap, a.zip64)
