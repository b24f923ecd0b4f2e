# SPDX-License-Identifier: Apache-2.0
"""Cases of safetensors files and of directories of them."""

import json
import os
import struct

A = {"dtype": "F32", "shape": [2], "data_offsets": [0, 8]}
D8 = struct.pack("<2f", 1, 2)
FILE = "model-00001-of-00001.safetensors"
MAP = {"weight_map": {"a": FILE}}


def st(header, data=b"", hlen=None, raw=None):
    """A safetensors file; `raw` replaces the JSON, `hlen` its length."""
    head = json.dumps(header).encode() if raw is None else raw
    return struct.pack("<Q", len(head) if hlen is None else hlen) + head + data


def shard(offsets, shape=(2,), data=D8, name="a"):
    """A shard of a tensor as PyTorch's Hugging Face writer marks it."""
    info = json.dumps({name: {"saved_offsets": offsets}})
    note = {"DCP_SHARDING_INFO": info, "DCP_VERSION": "1.0", "format": "pt"}
    tensor = dict(A, shape=list(shape), data_offsets=[0, len(data)])
    return st({"__metadata__": note, name: tensor}, data)


def add(c):
    add_files(c)
    add_directories(c)
    add_more_files(c)


def add_files(cases):
    def c(name, expect, why, data):
        cases.file(name + ".safetensors", "safetensors", expect, why, data)

    c("ok_st", "accept", "valid", st({"a": A}, D8))
    c(
        "ok_st_pad",
        "accept",
        "header padded with spaces",
        st(None, D8, raw=json.dumps({"a": A}).encode() + b"   "),
    )
    c(
        "ok_st_unaligned",
        "accept",
        "header length not a multiple of 8",
        st(None, D8, raw=json.dumps({"ab": A}).encode() + b" "),
    )
    cases.file(
        "ok_st_empty.safetensors",
        "safetensors",
        "accept",
        "no tensors: sound, and there is nothing to convert",
        st({}),
        convert="refuse",
    )
    c(
        "ok_st_meta",
        "accept",
        "string metadata",
        st({"__metadata__": {"k": "v"}, "a": A}, D8),
    )
    c(
        "ok_st_order",
        "accept",
        "header order differs from data order",
        st({"b": dict(A, data_offsets=[8, 16]), "a": A}, D8 + D8),
    )
    c("st_empty_file", "reject", "empty file", b"")
    c("st_short", "reject", "7 bytes", b"\0" * 7)
    c(
        "st_len_past_end",
        "reject",
        "header length past the end",
        st({"a": A}, D8, hlen=10**6),
    )
    c(
        "st_len_huge",
        "reject",
        "header length 2^63 (limit is 100 MB)",
        st({"a": A}, D8, hlen=2**63),
    )
    c("st_not_json", "reject", "header is not JSON", st(None, D8, raw=b"{nope"))
    c(
        "st_not_object",
        "reject",
        "header is a JSON array",
        st(None, D8, raw=b"[1,2]"),
    )
    c(
        "st_leading_space",
        "accept",
        "a space before the header, which safetensors reads",
        st(None, D8, raw=b" " + json.dumps({"a": A}).encode()),
    )
    c(
        "st_bad_utf8",
        "reject",
        "header is not UTF-8",
        st(None, D8, raw=b'{"\xff": 1}'),
    )
    c(
        "st_deep",
        "reject",
        "100k nested arrays",
        st(None, D8, raw=b'{"a":' + b"[" * 100000 + b"]" * 100000 + b"}"),
    )
    c(
        "st_hole",
        "reject",
        "hole between tensors",
        st({"a": A, "b": dict(A, data_offsets=[16, 24])}, D8 * 3),
    )
    c(
        "st_overlap",
        "reject",
        "tensors overlap",
        st({"a": A, "b": dict(A, data_offsets=[4, 12])}, D8 * 2),
    )
    c(
        "st_tail",
        "reject",
        "unreferenced bytes at the end",
        st({"a": A}, D8 + b"\0" * 8),
    )
    c("st_truncated", "reject", "data cut", st({"a": A}, D8[:5]))
    c(
        "st_first_hole",
        "reject",
        "first tensor does not start at 0",
        st({"a": dict(A, data_offsets=[8, 16])}, D8 * 2),
    )
    c(
        "st_rev",
        "reject",
        "end before begin",
        st({"a": dict(A, data_offsets=[8, 0])}, D8),
    )
    c(
        "st_size",
        "reject",
        "shape and byte length differ",
        st({"a": dict(A, shape=[3])}, D8),
    )
    c(
        "st_neg_shape",
        "reject",
        "negative shape",
        st({"a": dict(A, shape=[-2])}, D8),
    )
    c(
        "st_neg_off",
        "reject",
        "negative offset",
        st({"a": dict(A, data_offsets=[-8, 0])}, D8),
    )
    c(
        "st_ovf",
        "reject",
        "shape product overflows",
        st({"a": dict(A, shape=[2**33, 2**33])}, D8),
    )
    c(
        "st_big_num",
        "reject",
        "offset 2^70",
        st({"a": dict(A, data_offsets=[0, 2**70])}, D8),
    )
    c(
        "st_float_shape",
        "reject",
        "fractional shape",
        st({"a": dict(A, shape=[2.5])}, D8),
    )
    c(
        "st_dtype",
        "reject",
        "unknown dtype",
        st({"a": dict(A, dtype="F31")}, D8),
    )
    c(
        "st_missing_field",
        "reject",
        "no data_offsets",
        st({"a": {"dtype": "F32", "shape": [2]}}, D8),
    )
    c(
        "st_dup_key",
        "reject",
        "the same tensor name twice",
        st(
            None,
            D8,
            raw=('{"a":%s,"a":%s}' % (json.dumps(A), json.dumps(A))).encode(),
        ),
    )
    c(
        "st_meta_nonstr",
        "reject",
        "__metadata__ value is a number",
        st({"__metadata__": {"k": 1}, "a": A}, D8),
    )


def add_directories(cases):
    def hf(name, expect, why, index, files=None):
        """`index` is None, bytes, or what the index file says."""
        files = dict({FILE: st({"a": A}, D8)} if files is None else files)
        if index is not None:
            raw = (
                index
                if isinstance(index, bytes)
                else json.dumps(index).encode()
            )
            files["model.safetensors.index.json"] = raw
        cases.directory(name, "hf", expect, why, files)

    hf(
        "ok_hf",
        "accept",
        "valid",
        {
            "metadata": {"total_size": 8},
            "weight_map": {"a": FILE},
        },
    )
    hf(
        "hf_traversal",
        "reject",
        "weight_map leaves the directory",
        {"weight_map": {"a": "../ok_st.safetensors"}},
    )
    hf(
        "hf_absolute",
        "reject",
        "weight_map has an absolute path",
        {"weight_map": {"a": "/etc/hostname"}},
    )
    hf(
        "hf_missing",
        "reject",
        "weight_map names a missing file",
        {"weight_map": {"a": "nope.safetensors"}},
    )
    hf(
        "hf_type",
        "reject",
        "weight_map value is a number",
        {"weight_map": {"a": 5}},
    )
    hf("hf_json", "reject", "index is not JSON", b"{")
    hf(
        "hf_sharding_info",
        "reject",
        "DCP_SHARDING_INFO offset negative",
        {"weight_map": {"a": FILE}},
        {
            FILE: st(
                {
                    "__metadata__": {
                        "DCP_SHARDING_INFO": '{"a": {"saved_offsets": [-1]}}',
                        "DCP_VERSION": "1.0",
                        "format": "pt",
                    },
                    "a": A,
                },
                D8,
            )
        },
    )
    hf(
        "hf_sharding_rank",
        "reject",
        "DCP_SHARDING_INFO has another number of dimensions",
        {"weight_map": {"a": FILE}},
        {
            FILE: st(
                {
                    "__metadata__": {
                        "DCP_SHARDING_INFO": '{"a": {"saved_offsets": [0, 0]}}'
                    },
                    "a": A,
                },
                D8,
            )
        },
    )
    hf(
        "hf_sharding_not_json",
        "reject",
        "DCP_SHARDING_INFO is not JSON",
        None,
        {FILE: st({"__metadata__": {"DCP_SHARDING_INFO": "{"}, "a": A}, D8)},
    )
    hf(
        "hf_sharding_overflow",
        "reject",
        "saved offset 2^63-1 plus the shape overflows",
        None,
        {FILE: shard([2**63 - 1])},
    )
    hf(
        "hf_sharding_type",
        "reject",
        "saved_offsets is a string",
        None,
        {FILE: shard("0")},
    )
    two = "shard-0000%d-model-00001-of-00001.safetensors"
    hf(
        "ok_hf_shards",
        "accept",
        "two shards that touch",
        None,
        {two % 1: shard([0]), two % 2: shard([2])},
    )
    hf(
        "hf_shards_overlap",
        "reject",
        "two shards share an element",
        None,
        {two % 1: shard([0]), two % 2: shard([1])},
    )
    hf(
        "hf_shards_hole",
        "reject",
        "nothing holds elements 2 and 3",
        None,
        {two % 1: shard([0]), two % 2: shard([4])},
    )
    hf(
        "hf_shards_dtype",
        "reject",
        "two shards of one tensor differ in dtype",
        None,
        {
            two % 1: shard([0]),
            two % 2: shard([2]).replace(b"F32", b"I32"),
        },
    )
    hf(
        "hf_shards_rank",
        "reject",
        "two shards of one tensor differ in their number of dimensions",
        None,
        {two % 1: shard([0]), two % 2: shard([2, 0], (2, 1))},
    )
    hf(
        "hf_index_ghost",
        "reject",
        "weight_map names a tensor that its file does not hold",
        {"weight_map": {"a": FILE, "ghost": FILE}},
    )
    hf(
        "hf_index_dup",
        "reject",
        "weight_map has one name twice",
        b'{"weight_map": {"a": "%s", "a": "b"}}' % FILE.encode(),
    )
    hf(
        "hf_index_deep",
        "reject",
        "100k nested arrays in the index",
        b'{"weight_map":' + b"[" * 100000 + b"]" * 100000 + b"}",
    )
    hf("hf_index_list", "reject", "the index is a list", b"[]")
    hf("hf_index_no_map", "reject", "the index has no weight_map", b"{}")
    hf(
        "hf_index_nul",
        "reject",
        "a file name holds NUL",
        {"weight_map": {"a": FILE + chr(0)}},
    )
    hf(
        "hf_index_dir",
        "reject",
        "weight_map names the directory itself",
        {"weight_map": {"a": "."}},
    )
    hf("ok_hf_symlink", "accept", "a link, as in a hub's cache", MAP, {})
    os.symlink("../ok_st.safetensors", cases.path("ok_hf_symlink", FILE))


def add_more_files(cases):
    def c(name, expect, why, raw, data=D8):
        content = st(None, data, raw=raw)
        cases.file(name + ".safetensors", "safetensors", expect, why, content)

    good = json.dumps(A).encode()
    c("st_trailing_comma", "reject", "trailing comma", b'{"a":%s,}' % good)
    c("st_comment", "reject", "a comment", b'{/**/"a":%s}' % good)
    c("st_two_values", "reject", "JSON goes on after", b'{"a":%s}{}' % good)
    c("st_single_quotes", "reject", "single quotes", b"{'a':%s}" % good)
    c("st_control", "reject", "raw newline in a name", b'{"a\n":%s}' % good)
    c("st_surrogate", "reject", "lone surrogate", b'{"\\ud800":%s}' % good)
    c("st_nul_name", "either", "a name with NUL", b'{"\\u0000":%s}' % good)
    c("st_empty_name", "either", "an empty name", b'{"":%s}' % good)
    c("st_entry_list", "reject", "an entry is a list", b'{"a":[]}')
    for name, shape in (
        ("bool", b"[true,2]"),
        ("null", b"null"),
        ("exponent", b"[2e0]"),
        ("leading_zero", b"[02]"),
        ("nan", b"[NaN]"),
        ("plus", b"[+2]"),
        ("string", b'["2"]'),
    ):
        raw = good.replace(b"[2]", shape)
        c(
            "st_shape_" + name,
            "reject",
            "shape " + shape.decode(),
            b'{"a":%s}' % raw,
        )
    many = good.replace(b"[2]", b"[2" + b",1" * 100000 + b"]")
    c("st_ndim_huge", "reject", "100001 dimensions", b'{"a":%s}' % many)
    c(
        "st_offsets_three",
        "reject",
        "three data offsets",
        b'{"a":%s}' % good.replace(b"[0, 8]", b"[0, 4, 8]"),
    )
    c(
        "st_field_dup",
        "reject",
        "dtype given twice",
        b'{"a":{"dtype":"I32",%s}' % good[1:],
    )
    c(
        "ok_st_name_path",
        "accept",
        "a name is not a path",
        b'{"../../e":%s}' % good,
    )
    c(
        "ok_st_name_escape",
        "accept",
        "escapes in a name",
        b'{"\\u001b]0;x\\u0007":%s}' % good,
    )
    c("st_long_string", "reject", "string without end", b'{"' + b"a" * 1000000)
