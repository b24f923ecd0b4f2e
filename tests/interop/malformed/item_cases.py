"""Cases of data files: the zip container, tensor items and bytes entries."""

import struct

from building import (
    F6,
    F6B,
    g,
    i,
    item,
    rec,
    storage_pid,
    tensor_pkl,
    tensor_value,
    touch,
    tup,
    u,
    zipb,
)


def add(c):
    add_items(c)
    add_more(c)


def add_items(c):
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
        "ok_item_view",
        "accept",
        "item is a view into a larger storage",
        item(
            struct.pack("<12f", *([9.0] * 3 + list(range(6)) + [9.0] * 3)),
            tensor_pkl(numel=12, offset=3),
        ),
    )
    c.item(
        "ok_item_transposed",
        "accept",
        "item is a transposed view",
        item(struct.pack("<6f", 0, 3, 1, 4, 2, 5), tensor_pkl(stride=(1, 2))),
    )
    c.item(
        "ok_bigendian",
        "accept",
        "byteorder big with swapped data",
        item(
            struct.pack(">6f", *range(6)), mod={"byteorder": {"data": b"big"}}
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
    c.item(
        "item_storage_short",
        "reject",
        "storage record shorter than numel",
        item(F6[:20]),
    )
    c.item(
        "item_storage_long",
        "accept",
        "storage record longer than numel",
        item(F6 + b"\0" * 64),
    )
    c.item(
        "item_numel_huge",
        "reject",
        "numel 2^61",
        item(pkl=tensor_pkl(numel=2**61)),
    )
    c.item(
        "item_numel_neg", "reject", "numel -6", item(pkl=tensor_pkl(numel=-6))
    )
    c.item(
        "item_stride_oob",
        "reject",
        "strides reach past the storage",
        item(pkl=tensor_pkl(stride=(300, 1))),
    )
    c.item(
        "item_stride_neg",
        "reject",
        "negative stride",
        item(pkl=tensor_pkl(offset=5, stride=(-3, -1))),
    )
    c.item(
        "item_stride_ovf",
        "reject",
        "stride product overflows",
        item(pkl=tensor_pkl(stride=(2**62, 2**62))),
    )
    c.item(
        "item_offset_neg",
        "reject",
        "negative storage offset",
        item(pkl=tensor_pkl(offset=-1)),
    )
    c.item(
        "item_offset_huge",
        "reject",
        "storage offset 2^62",
        item(pkl=tensor_pkl(offset=2**62)),
    )
    c.item(
        "item_shape_other",
        "reject",
        "item shape (3,2), chunk says (2,3)",
        item(pkl=tensor_pkl(shape=(3, 2), stride=(2, 1))),
    )
    c.item(
        "item_shape_neg",
        "reject",
        "negative shape",
        item(pkl=tensor_pkl(shape=(-2, 3))),
    )
    c.item(
        "item_shape_stride_rank",
        "reject",
        "shape and stride lengths differ",
        item(pkl=tensor_pkl(stride=(1,))),
    )
    c.item(
        "item_expand_bomb",
        "reject",
        "stride-0 view of 2^40 elements over one float",
        item(pkl=tensor_pkl(shape=(2**40,), stride=(0,))),
    )
    c.item(
        "item_dtype_other",
        "reject",
        "item is DoubleStorage",
        item(F6 + F6, tensor_pkl(storage="DoubleStorage")),
    )
    c.item(
        "item_storage_class",
        "reject",
        "persistent id names a foreign class",
        item(pkl=tensor_pkl(storage="system", smod="os")),
    )
    c.item(
        "item_pid_kind",
        "reject",
        "persistent id kind 'module'",
        item(pkl=tensor_pkl(tag="module")),
    )
    c.item(
        "item_key_traversal",
        "reject",
        "storage key ../../x",
        item(pkl=tensor_pkl(key="../../version")),
    )
    c.item(
        "item_not_tensor",
        "reject",
        "a dict where a tensor is expected",
        item(pkl=b"\x80\x02}."),
    )
    c.item(
        "item_evil",
        "reject",
        "os.system in data.pkl",
        item(
            pkl=b"\x80\x02" + g("os", "system") + u(touch("item")) + b"\x85R."
        ),
    )
    c.item(
        "item_evil_rebuild",
        "reject",
        "torch.hub.load as rebuild function",
        item(pkl=tensor_pkl(func=("torch.hub", "load"))),
    )
    c.item(
        "item_evil_hooks",
        "reject",
        "backward hooks hold a call",
        item(
            pkl=tensor_pkl()[:-2]
            + b"0"
            + g("os", "system")
            + u(touch("hook"))
            + b"\x85R."
        ),
    )
    c.item(
        "item_sparse",
        "reject",
        "sparse tensor",
        item(
            pkl=b"\x80\x02"
            + g("torch._utils", "_rebuild_sparse_tensor")
            + tup(
                g("torch.serialization", "_get_layout")
                + u("torch.sparse_coo")
                + b"\x85R",
                tup(b"N", b"N", b"N"),
            )
            + b"R."
        ),
    )
    c.item(
        "item_quantized",
        "reject",
        "quantized tensor",
        item(pkl=tensor_pkl(func=("torch._utils", "_rebuild_qtensor"))),
    )
    c.item(
        "item_meta_tensor",
        "reject",
        "meta tensor without storage",
        item(
            pkl=b"\x80\x02"
            + g("torch._utils", "_rebuild_meta_tensor_no_storage")
            + tup(
                g("torch", "float32"), tup(i(2), i(3)), tup(i(3), i(1)), b"\x89"
            )
            + b"R."
        ),
    )
    c.item(
        "item_legacy",
        "reject",
        "legacy (non-zip) torch.save as item",
        b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19.\x80\x02M\xe9\x03.",
    )
    c.item(
        "item_pkl_deep",
        "reject",
        "data.pkl with a million nested tuples",
        item(pkl=b"\x80\x02N" + b"\x85" * 1000000 + b"."),
    )
    c.object(
        "obj_unknown_global",
        "reject",
        "bytes entry holds an object of a class of somebody's own",
        b"\x80\x02"
        + g("mylib", "Config")
        + b")\x81}"
        + u("lr")
        + b"K\x01sb.",
        says="mylib.Config",
        verify="accept",
        to_dcp="accept",
    )
    c.object(
        "ok_obj_namespace",
        "accept",
        "bytes entry holds an argparse.Namespace",
        b"\x80\x02"
        + g("argparse", "Namespace")
        + b")\x81}"
        + u("lr")
        + b"K\x01sb.",
    )
    c.object(
        "ok_obj_numpy",
        "accept",
        "bytes entry holds numpy.core.multiarray.scalar",
        b"\x80\x02"
        + g("numpy.core.multiarray", "scalar")
        + tup(
            g("numpy", "dtype") + tup(u("f8"), b"\x89", b"\x88") + b"R",
            g("_codecs", "encode") + tup(u("\x00" * 8), u("latin1")) + b"R",
        )
        + b"R.",
    )
    c.object(
        "obj_evil",
        "reject",
        "os.system in a bytes entry",
        b"\x80\x02" + g("os", "system") + u(touch("obj")) + b"\x85R.",
    )
    c.object(
        "obj_evil_builtin",
        "reject",
        "__builtin__.eval (Python 2 name)",
        b"\x80\x02"
        + g("__builtin__", "eval")
        + u("open('PWNED_builtin','w')")
        + b"\x85R.",
    )
    c.object(
        "obj_evil_codecs",
        "reject",
        "_codecs.encode with a foreign codec name",
        b"\x80\x02"
        + g("_codecs", "encode")
        + tup(u("abc"), u("bz2_codec"))
        + b"R.",
    )
    c.object(
        "obj_truncated",
        "reject",
        "data.pkl cut",
        b"\x80\x02X\x10\x00\x00\x00abc",
    )
    c.object(
        "obj_not_zip",
        "reject",
        "plain pickle without zip",
        b"",
        raw=b"\x80\x02K\x09.",
    )
    c.object(
        "obj_cyclic",
        "reject",
        "a list that contains itself",
        b"\x80\x02]q\x00h\x00a.",
    )
    c.object(
        "obj_deep",
        "reject",
        "500k nested lists",
        b"\x80\x02" + b"]" * 500000 + b"a" * 499999 + b".",
    )
    c.object(
        "obj_longint",
        "either",
        "a 200000-digit integer",
        b"\x80\x02\x8b" + struct.pack("<i", 83000) + b"\x7f" * 83000 + b".",
    )
    c.object(
        "obj_set_unhashable",
        "reject",
        "dict key is a dict",
        b"\x80\x02}}K\x01s.",
    )


def add_more(c):
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
    c.item(
        "item_requires_grad",
        "either",
        "requires_grad is a string",
        item(pkl=tensor_pkl().replace(b"\x89c", u("yes") + b"c")),
    )
    c.item(
        "item_size_bool",
        "either",
        "a dimension is True",
        item(pkl=tensor_pkl().replace(b"(K\x02K\x03t", b"(\x88K\x06t")),
    )
    c.item(
        "item_two_tensors",
        "reject",
        "a tuple of two tensors where one is expected",
        item(pkl=b"\x80\x02" + tensor_value() * 2 + b"\x86."),
    )
    c.item(
        "item_storage_alone",
        "reject",
        "a storage without a tensor",
        item(pkl=b"\x80\x02" + storage_pid() + b"."),
    )
    laughs = b"".join(
        b"](" + b"h" + bytes([k]) + b"h" + bytes([k]) + b"eq" + bytes([k + 1])
        for k in range(100)
    )
    c.object(
        "obj_laughs",
        "either",
        "100 levels of lists that hold one list twice",
        b"\x80\x02]q\x00" + laughs + b".",
    )
    c.object(
        "obj_dotted",
        "reject",
        "a dotted name in STACK_GLOBAL",
        b"\x80\x04" + u("torch") + u("hub.load") + b"\x93" + u("x") + b"\x85R.",
    )
    c.object(
        "obj_defaultdict_evil",
        "reject",
        "collections.defaultdict with a foreign factory",
        b"\x80\x02"
        + g("collections", "defaultdict")
        + g("os", "system")
        + b"\x85R.",
    )
    c.object(
        "obj_int_of_text",
        "reject",
        "builtins.int of a million digits",
        b"\x80\x02" + g("__builtin__", "int") + u("9" * 1000000) + b"\x85R.",
    )
    c.object(
        "obj_bytearray_of_int",
        "reject",
        "builtins.bytearray(2^40) would allocate a terabyte",
        b"\x80\x02" + g("__builtin__", "bytearray") + i(2**40) + b"\x85R.",
    )
    c.object(
        "obj_numpy_object",
        "reject",
        "a numpy scalar of dtype object",
        b"\x80\x02"
        + g("numpy.core.multiarray", "scalar")
        + tup(
            g("numpy", "dtype") + tup(u("O8"), b"\x89", b"\x88") + b"R",
            u("x"),
        )
        + b"R.",
    )
