# SPDX-License-Identifier: Apache-2.0
"""Cases of data files: the zip container."""

import struct

from building import (
    F6,
    F6B,
    item,
    rec,
    tensor_pkl,
    zipb,
)


def add(c):
    c.item(
        "ok_zip_zero_crc",
        "accept",
        "CRC fields are zero",
        item(
            mod={
                n: {"crc": 0}
                for n in (
                    "data.pkl",
                    "data/0",
                    "version",
                    "byteorder",
                    ".format_version",
                    ".storage_alignment",
                    ".data/serialization_id",
                )
            }
        ),
    )
    c.item(
        "ok_zip_minimal",
        "accept",
        "only data.pkl, data/0, version",
        item(
            drop=(
                ".format_version",
                ".storage_alignment",
                "byteorder",
                ".data/serialization_id",
            )
        ),
    )
    c.item(
        "ok_zip_comment",
        "accept",
        "zip comment after the end record",
        item(comment=b"hello"),
    )
    c.item(
        "ok_zip_order",
        "accept",
        "records in another order",
        zipb(
            [
                rec("version", b"3\n"),
                rec("data/0", F6),
                rec("data.pkl", tensor_pkl()),
            ]
        ),
    )
    c.item(
        "zip_not_zip",
        "reject",
        "item bytes are not a zip",
        b"PK\x03\x04" + b"\0" * 500,
    )
    c.item(
        "zip_no_eocd", "reject", "no end-of-central-directory", item(eocd=False)
    )
    c.item(
        "zip_count",
        "reject",
        "end record counts 60000 entries",
        item(eocd_count=60000),
    )
    c.item(
        "zip_cd_offset",
        "reject",
        "central directory offset past the end",
        item(cd_off=0x7FFFFFFF),
    )
    c.item(
        "zip_cd_len",
        "reject",
        "central directory length past the end",
        item(cd_len=0x7FFFFFFF),
    )
    c.item(
        "zip_z64_bogus",
        "reject",
        "zip64 end record with huge counts",
        item(
            eocd_count=0xFFFF,
            cd_len=0xFFFFFFFF,
            cd_off=0xFFFFFFFF,
            z64=(2**62, 2**62, 2**62, None),
        ),
    )
    c.item(
        "zip_z64_locator",
        "reject",
        "zip64 locator points outside",
        item(
            eocd_count=0xFFFF,
            cd_len=0xFFFFFFFF,
            cd_off=0xFFFFFFFF,
            z64=(7, 500, 900, 2**60),
        ),
    )
    c.item(
        "zip_local_offset",
        "reject",
        "local header offset outside",
        item(mod={"data/0": {"loff": 0x7FFFFFF0}}),
    )
    c.item(
        "zip_local_name",
        "reject",
        "local and central names differ",
        item(mod={"data/0": {"lname": "archive/data/9"}}),
    )
    c.item(
        "zip_local_size",
        "reject",
        "local and central sizes differ (the central directory rules)",
        item(mod={"data/0": {"lusize": 4}}),
    )
    c.item(
        "zip_size_past_end",
        "reject",
        "record size reaches past the item",
        item(mod={"data/0": {"usize": 10**9, "csize": 10**9}}),
    )
    c.item(
        "zip_deflate",
        "reject",
        "a deflated record (Python reads it; a zero-copy reader may refuse)",
        item(mod={"data/0": {"method": 8}}),
    )
    c.item(
        "zip_bomb",
        "reject",
        "a 64 MiB record deflated to 64 KiB for a 24-byte storage",
        item(b"\0" * (64 << 20), mod={"data/0": {"method": 8}}),
    )
    c.item(
        "zip_method99",
        "reject",
        "unknown compression method",
        item(mod={"data/0": {"method": 99}}),
    )
    c.item(
        "zip_encrypted",
        "reject",
        "encrypted flag",
        item(mod={"data/0": {"flags": 0x0801}}),
    )
    c.item(
        "zip_dup_record",
        "reject",
        "data/0 twice",
        item(extra_recs=[rec("data/0", F6B)]),
    )
    c.item(
        "zip_dup_pkl",
        "reject",
        "data.pkl twice",
        item(extra_recs=[rec("data.pkl", tensor_pkl())]),
    )
    c.item(
        "zip_overlap",
        "reject",
        "two records share their bytes",
        item(extra_recs=[rec("data/1", F6, loff=0)]),
    )
    c.item(
        "zip_traversal",
        "reject",
        "a record named ../../evil (must never be extracted)",
        item(extra_recs=[rec("!../../evil", b"x")]),
    )
    c.item(
        "zip_extra_long",
        "reject",
        "extra field longer than the item",
        item(mod={"version": {"extra": b"FB\xff\xff"}}),
    )
    c.item("zip_no_pkl", "reject", "no data.pkl", item(drop=("data.pkl",)))
    c.item("zip_no_data", "reject", "no data/0", item(drop=("data/0",)))
    c.item(
        "zip_no_version",
        "reject",
        "no version record (Python refuses)",
        item(drop=("version",)),
    )
    c.item(
        "zip_version_99",
        "reject",
        "version 99",
        item(mod={"version": {"data": b"99\n"}}),
    )
    c.item(
        "zip_byteorder_bad",
        "reject",
        "byteorder 'middle'",
        item(mod={"byteorder": {"data": b"middle"}}),
    )
    c.item(
        "zip_torchscript",
        "reject",
        "a TorchScript archive",
        item(extra_recs=[rec("constants.pkl", b"\x80\x02).")]),
    )
    c.item(
        "zip_crc_wrong",
        "reject",
        "wrong CRC of data/0",
        item(mod={"data/0": {"crc": 0x12345678}}),
    )
    end = struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 0, 0, 0, 0, 0)
    c.item(
        "zip_end_in_comment",
        "either",
        "the comment is an end record of an empty archive",
        item(comment=end),
    )
    for name, mod in (
        ("z64_short", dict(usize=0xFFFFFFFF, cextra=b"\1\0\4\0abcd")),
        ("z64_missing", dict(usize=0xFFFFFFFF, csize=0xFFFFFFFF)),
        (
            "z64_huge",
            dict(usize=0xFFFFFFFF, cextra=b"\1\0\x08\0" + b"\xff" * 8),
        ),
        ("extra_overrun", dict(cextra=b"FB\xff\xff")),
        ("into_directory", dict(usize=700, csize=700)),
    ):
        why = "central directory: " + name
        c.item("zip_" + name, "reject", why, item(mod={"data/0": mod}))
    c.item("zip_disks", "reject", "one of several disks", item(disk=3))
    other = rec("!other/data/0", F6)
    c.item(
        "zip_two_prefixes",
        "reject",
        "a record outside the common folder",
        item(drop=("data/0",), extra_recs=[other]),
    )
    c.item(
        "zip_name_bytes",
        "either",
        "a record whose name is not UTF-8",
        item(extra_recs=[rec(b"archive/\xff\xfe", b"x")]),
    )
    c.item(
        "zip_name_nul",
        "either",
        "a record whose name holds NUL",
        item(extra_recs=[rec("data/0\0x", b"x")]),
    )
    c.item(
        "zip_many",
        "reject",
        "60000 records of one name",
        item(extra_recs=[rec("x", b"", extra=b"")] * 60000),
    )
    c.item(
        "zip_gap_at_end",
        "reject",
        "70000 bytes behind the end record",
        item() + b"\0" * 70000,
    )
