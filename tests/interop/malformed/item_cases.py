# SPDX-License-Identifier: Apache-2.0
"""Cases of data files: tensor items and bytes entries."""

import struct

from building import (
    F6,
    g,
    i,
    item,
    storage_pid,
    tensor_pkl,
    tensor_value,
    touch,
    tup,
    u,
)


def add(c):
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
        b"\x80\x02" + g("mylib", "Config") + b")\x81}" + u("lr") + b"K\x01sb.",
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
        says="numpy objects",
        verify="accept",
        to_dcp="accept",
    )
