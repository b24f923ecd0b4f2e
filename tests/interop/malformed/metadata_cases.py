"""Cases of the index, `.metadata`: its pickle, and what the pickle says."""

import io
import pathlib
import pickle
import struct
import subprocess

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    _MEM_FORMAT_ENCODING,
    BytesStorageMetadata,
    ChunkStorageMetadata,
    MetadataIndex,
)

from building import Call, base, chunk, g, size, touch, u


def setst(md, **kw):
    for k, v in md.storage_data.items():
        if k.fqn == "w" and k.offset == torch.Size([0, 0]):
            for a, b in kw.items():
                setattr(v, a, b)


def add(c):
    add_index(c)
    add_more(c)


def add_index(c):
    good = pickle.dumps(base()[0], 4)
    W = "state_dict_metadata"
    c.dcp("ok_base", "accept", "the unmodified base")
    for p in (0, 1, 2, 3, 5):
        c.dcp(
            f"ok_md_protocol{p}",
            "accept" if p >= 2 else "either",
            f"metadata pickled with protocol {p}",
            raw=pickle.dumps(base()[0], p),
        )
    c.dcp(
        "ok_md_trailing",
        "accept",
        "bytes after STOP (Python ignores them)",
        raw=good + b"garbage",
    )
    c.metadata(
        "ok_md_index_hint",
        "accept",
        "wrong index hints; they are not part of the key",
        lambda m: m.__setattr__(
            "storage_data",
            {
                MetadataIndex(
                    k.fqn, k.offset, 999 if k.index is not None else None
                ): v
                for k, v in m.storage_data.items()
            },
        ),
    )
    c.metadata(
        "ok_md_old",
        "accept",
        "no storage_meta and no version attribute (older writers)",
        lambda m: (m.__dict__.pop("storage_meta"), m.__dict__.pop("version"))
        and None,
    )
    c.metadata(
        "ok_md_unknown_attr",
        "accept",
        "an unknown plain attribute of Metadata (future writers)",
        lambda m: setattr(m, "future_field", [1, "x"]),
    )
    c.dcp(
        "ok_md_enum_by_name",
        "accept",
        "enum pickled by name, as Python 3.11.0 to 3.11.3 does",
        raw=_enum_by_name(base()[0]),
    )
    c.metadata(
        "ok_md_path_object",
        "accept",
        "checkpoint_id is a pathlib.PosixPath",
        lambda m: setattr(
            m.storage_meta, "checkpoint_id", pathlib.PosixPath("/some/dir")
        ),
    )
    c.dcp("md_empty", "reject", "empty .metadata", raw=b"")
    c.dcp(
        "md_truncated_half",
        "reject",
        "metadata cut in the middle",
        raw=good[: len(good) // 2],
    )
    c.dcp(
        "md_truncated_stop",
        "reject",
        "metadata without STOP",
        raw=good[:-1],
    )
    c.dcp(
        "md_garbage",
        "reject",
        "random bytes",
        raw=bytes((x * 7919 + 13) % 256 for x in range(2000)),
    )
    c.dcp("md_missing", "reject", "no .metadata at all", raw=False)
    c.dcp(
        "md_toplevel_dict",
        "reject",
        "the pickle is a dict, not a Metadata",
        raw=pickle.dumps({"a": 1}, 4),
    )
    c.dcp(
        "md_toplevel_none",
        "reject",
        "the pickle is None",
        raw=b"\x80\x04N.",
    )
    cmd = touch("md")
    c.dcp(
        "md_evil_os_system",
        "reject",
        "GLOBAL os.system + REDUCE",
        raw=b"\x80\x02" + g("os", "system") + u(cmd) + b"\x85R.",
    )
    c.dcp(
        "md_evil_posix",
        "reject",
        "STACK_GLOBAL posix.system",
        raw=b"\x80\x04\x8c\x05posix\x8c\x06system\x93" + u(cmd) + b"\x85R.",
    )
    c.dcp(
        "md_evil_eval",
        "reject",
        "builtins.eval inside storage_meta",
        raw=pickle.dumps(
            _with(base()[0], storage_meta=Call(eval, "open('PWNED_eval','w')")),
            4,
        ),
    )
    c.dcp(
        "md_evil_subprocess",
        "reject",
        "subprocess.Popen as a chunk list",
        raw=pickle.dumps(
            _with(
                base()[0],
                planner_data=Call(subprocess.Popen, ["touch", "PWNED_popen"]),
            ),
            4,
        ),
    )
    c.dcp(
        "md_evil_getattr",
        "reject",
        "builtins.getattr chain",
        raw=b"\x80\x04"
        + g("builtins", "getattr")
        + g("os", "path")
        + u("os")
        + b"\x86R.",
    )
    c.dcp(
        "md_evil_attr_path",
        "reject",
        "allowed module, dotted name: torch.serialization os.system",
        raw=b"\x80\x04"
        + u("torch.serialization")
        + u("os.system")
        + b"\x93"
        + u(cmd)
        + b"\x85R.",
    )
    c.dcp(
        "md_evil_torch_load",
        "reject",
        "torch.load as a callable",
        raw=b"\x80\x02" + g("torch", "load") + u("x.pt") + b"\x85R.",
    )
    c.dcp(
        "md_evil_inst",
        "reject",
        "INST opcode",
        raw=b"(" + u(cmd) + b"ios\nsystem\n.",
    )
    c.dcp(
        "md_evil_obj",
        "reject",
        "OBJ opcode",
        raw=b"(" + g("os", "system") + u(cmd) + b"o.",
    )
    c.dcp("md_evil_ext", "reject", "EXT1 opcode", raw=b"\x80\x02\x82\x01.")
    c.dcp(
        "md_evil_persid",
        "reject",
        "persistent id in metadata",
        raw=b"\x80\x02" + u("x") + b"Q.",
    )
    c.dcp(
        "md_evil_newobj_ex",
        "reject",
        "NEWOBJ_EX of a foreign class",
        raw=b"\x80\x04" + g("subprocess", "Popen") + b")}\x92.",
    )
    c.dcp(
        "md_evil_build_setstate",
        "reject",
        "BUILD on a global (class attribute overwrite)",
        raw=b"\x80\x02"
        + g("torch.distributed.checkpoint.metadata", "Metadata")
        + b"}"
        + u("__reduce__")
        + b"K\x01sb.",
    )
    c.dcp(
        "md_cyclic_dict",
        "reject",
        "state_dict_metadata contains itself",
        raw=_cyc_dict(),
    )
    c.dcp(
        "md_cyclic_list",
        "reject",
        "a list memoized and appended to itself",
        raw=b"\x80\x04]\x94h\x00a.",
    )
    c.dcp(
        "md_deep_list",
        "reject",
        "one million nested lists",
        raw=b"\x80\x04" + b"]" * 1000000 + b"a" * 999999 + b".",
    )
    c.dcp(
        "md_deep_tuple",
        "reject",
        "two million nested TUPLE1",
        raw=b"\x80\x04N" + b"\x85" * 2000000 + b".",
    )
    c.dcp(
        "md_deep_mark",
        "reject",
        "a million MARKs",
        raw=b"\x80\x04" + b"(" * 1000000 + b".",
    )
    c.dcp(
        "md_deep_build",
        "reject",
        "nested dict values, 200k levels",
        raw=b"\x80\x04" + b"}K\x01" * 200000 + b"N" + b"s" * 200000 + b".",
    )
    laughs = (
        b"\x80\x04]\x94("
        + b"N" * 10
        + b"e"
        + b"".join(
            b"]\x94(" + b"h" + bytes([k]) * 1 + (b"h" + bytes([k])) * 9 + b"e"
            for k in range(30)
        )
        + b"."
    )
    c.dcp(
        "md_laughs",
        "reject",
        "30 levels of ten references each (10^30 leaves when expanded)",
        raw=laughs,
    )
    c.dcp(
        "md_huge_str",
        "reject",
        "BINUNICODE8 of 2^62 bytes",
        raw=b"\x80\x04\x8d" + struct.pack("<Q", 2**62) + b"abc.",
    )
    c.dcp(
        "md_huge_bytes",
        "reject",
        "BINBYTES8 of 2^63-1 bytes",
        raw=b"\x80\x04\x8e" + struct.pack("<Q", 2**63 - 1) + b"abc.",
    )
    c.dcp(
        "md_huge_frame",
        "reject",
        "FRAME length 2^64-1",
        raw=b"\x80\x04\x95" + b"\xff" * 8 + b"N.",
    )
    c.dcp(
        "md_huge_long",
        "reject",
        "LONG4 of 2^31-1 bytes",
        raw=b"\x80\x04\x8b\xff\xff\xff\x7fabc.",
    )
    c.dcp(
        "md_neg_long",
        "reject",
        "LONG4 of negative length",
        raw=b"\x80\x04\x8b\xff\xff\xff\xffabc.",
    )
    c.dcp(
        "md_memo_index",
        "reject",
        "LONG_BINPUT 0xFFFFFFFE must not allocate a 4G-entry memo",
        raw=b"\x80\x02Nr\xfe\xff\xff\xff.",
    )
    c.dcp(
        "md_memo_missing",
        "reject",
        "BINGET of an unset slot",
        raw=b"\x80\x02h\x07.",
    )
    c.dcp("md_underflow", "reject", "stack underflow", raw=b"\x80\x02R.")
    c.dcp(
        "md_underflow_mark",
        "reject",
        "TUPLE without MARK",
        raw=b"\x80\x02K\x01t.",
    )
    c.dcp(
        "md_pop_empty",
        "reject",
        "STOP on an empty stack",
        raw=b"\x80\x02.",
    )
    c.dcp("md_proto99", "reject", "unknown protocol", raw=b"\x80\x63N.")
    c.dcp(
        "md_bad_utf8",
        "reject",
        "invalid UTF-8 in a string",
        raw=good.replace(b"\x8c\x04step", b"\x8c\x04\xff\xfeep"),
    )
    c.dcp(
        "md_setitems_odd",
        "reject",
        "SETITEMS with an odd number of values",
        raw=b"\x80\x02}(K\x01u.",
    )
    c.dcp(
        "md_unhashable_key",
        "reject",
        "a list as dict key",
        raw=b"\x80\x02}]K\x01s.",
    )
    c.metadata(
        "md_no_storage_data",
        "reject",
        "storage_data is None",
        lambda m: setattr(m, "storage_data", None),
    )
    c.metadata(
        "md_no_state",
        "reject",
        "state_dict_metadata missing",
        lambda m: m.__dict__.pop(W) and None,
    )
    c.metadata(
        "md_storage_entry_missing",
        "reject",
        "a chunk has no storage entry",
        lambda m: m.storage_data.pop(MetadataIndex("w", [2, 0])) and None,
    )
    c.metadata(
        "md_storage_entry_extra",
        "accept",
        "storage entry for an unknown name",
        lambda m: m.storage_data.__setitem__(
            MetadataIndex("ghost", [0]), _StorageInfo("__0_0.distcp", 0, 10)
        ),
    )
    c.metadata(
        "md_chunk_dup",
        "reject",
        "the same chunk twice",
        lambda m: m.state_dict_metadata["w"].chunks.append(
            m.state_dict_metadata["w"].chunks[0]
        ),
    )
    c.metadata(
        "md_chunk_overlap",
        "reject",
        "chunks overlap",
        lambda m: m.state_dict_metadata["w"].chunks.__setitem__(
            1, ChunkStorageMetadata(torch.Size([1, 0]), torch.Size([3, 3]))
        ),
    )
    c.metadata(
        "md_chunk_hole",
        "reject",
        "chunks do not cover the tensor",
        lambda m: m.state_dict_metadata["w"].chunks.pop() and None,
    )
    c.metadata(
        "md_chunk_none",
        "reject",
        "a non-empty tensor with no chunk",
        lambda m: m.state_dict_metadata["w"].chunks.clear(),
    )
    c.metadata(
        "md_chunk_oob",
        "reject",
        "chunk reaches past the tensor",
        lambda m: setattr(
            m.state_dict_metadata["w"].chunks[1], "sizes", torch.Size([3, 3])
        ),
    )
    c.metadata(
        "md_chunk_neg_offset",
        "reject",
        "negative chunk offset",
        lambda m: setattr(
            m.state_dict_metadata["w"].chunks[0], "offsets", size(-1, 0)
        ),
    )
    c.metadata(
        "md_chunk_neg_size",
        "reject",
        "negative chunk size",
        lambda m: setattr(
            m.state_dict_metadata["w"].chunks[0], "sizes", size(-2, 3)
        ),
    )
    c.metadata(
        "md_chunk_rank",
        "reject",
        "chunk has another number of dimensions",
        lambda m: setattr(
            m.state_dict_metadata["w"].chunks[0], "sizes", size(6)
        ),
    )
    c.metadata(
        "md_size_overflow",
        "reject",
        "element count overflows 64 bits",
        lambda m: setattr(
            m.state_dict_metadata["w"], "size", size(2**40, 2**40)
        ),
    )
    c.metadata(
        "md_size_huge",
        "reject",
        "a 2^44-element tensor backed by 24 bytes",
        lambda m: (
            setattr(m.state_dict_metadata["w"], "size", size(2**44)),
            setattr(
                m.state_dict_metadata["w"],
                "chunks",
                [ChunkStorageMetadata(size(0), size(2**44))],
            ),
            m.storage_data.__setitem__(
                MetadataIndex("w", [0]), _StorageInfo("__0_0.distcp", 0, 1577)
            ),
        )
        and None,
    )
    c.metadata(
        "md_size_bigint",
        "reject",
        "a dimension that does not fit int64",
        lambda m: setattr(m.state_dict_metadata["w"], "size", size(2**70, 3)),
    )
    c.metadata(
        "md_size_float",
        "reject",
        "a float dimension",
        lambda m: setattr(
            m.state_dict_metadata["w"], "size", Call(torch.Size, (4.0, 3))
        ),
    )
    c.metadata(
        "md_size_neg",
        "reject",
        "negative tensor size",
        lambda m: setattr(m.state_dict_metadata["w"], "size", size(-4, -3)),
    )
    c.metadata(
        "md_ndim_huge",
        "reject",
        "100000 dimensions of size 1",
        lambda m: setattr(
            m.state_dict_metadata["w"], "size", size(*([1] * 100000))
        ),
    )
    c.metadata(
        "md_dtype_str",
        "reject",
        "dtype is a string",
        lambda m: setattr(
            m.state_dict_metadata["w"].properties, "dtype", "float32"
        ),
    )
    c.metadata(
        "md_dtype_other",
        "reject",
        "dtype global is torch.nn.Linear",
        lambda m: setattr(
            m.state_dict_metadata["w"].properties, "dtype", torch.nn.Linear
        ),
    )
    c.dcp(
        "md_dtype_unknown",
        "reject",
        "unknown dtype torch.float3x",
        raw=good.replace(b"\x8c\x07float32", b"\x8c\x07float3x"),
    )
    c.metadata(
        "md_dtype_item",
        "reject",
        "metadata says float64, the item holds float32",
        lambda m: setattr(
            m.state_dict_metadata["w"].properties, "dtype", torch.float64
        ),
    )
    c.metadata(
        "md_layout_sparse",
        "reject",
        "sparse layout",
        lambda m: setattr(
            m.state_dict_metadata["w"].properties, "layout", torch.sparse_coo
        ),
    )
    for nm, p in (
        ("parent", "../ok_base/__0_0.distcp"),
        ("absolute", "/etc/hostname"),
        ("nul", "__0_0\0.distcp"),
        ("empty", ""),
        ("dot", "."),
        ("deep", "a/../../ok_base/__0_0.distcp"),
        ("int", 5),
    ):
        c.metadata(
            "md_path_" + nm,
            "reject",
            f"relative_path {p!r}",
            lambda m, p=p: setst(m, relative_path=p),
        )
    for nm, kw in (
        ("off_neg", dict(offset=-1)),
        ("off_eof", dict(offset=10**9)),
        ("len_big", dict(length=10**12)),
        ("len_zero", dict(length=0)),
        ("len_neg", dict(length=-5)),
        ("len_short", dict(length=100)),
        ("ovf", dict(offset=2**63 - 1, length=2**63 - 1)),
        ("off_bigint", dict(offset=2**80)),
        ("off_shift", dict(offset=4)),
    ):
        c.metadata(
            "md_storage_" + nm,
            "reject",
            f"storage entry {kw}",
            lambda m, kw=kw: setst(m, **kw),
        )
    c.metadata(
        "md_transform",
        "reject",
        "unknown transform descriptor (zstd etc. unless implemented)",
        lambda m: setst(m, transform_descriptors=["stream.zstd/1"]),
    )
    c.metadata(
        "md_transform_type",
        "reject",
        "transform descriptors of a wrong type",
        lambda m: setst(m, transform_descriptors=7),
    )
    c.metadata(
        "md_planner_bomb",
        "reject",
        "planner path with list index 2^40 must not extend a list",
        lambda m: m.planner_data.__setitem__("w", ("w", 2**40)),
    )
    c.metadata(
        "md_planner_conflict",
        "reject",
        "two names share one path",
        lambda m: m.planner_data.__setitem__("step", ("w",)),
    )
    c.metadata(
        "md_planner_prefix",
        "reject",
        "one path runs through another's leaf",
        lambda m: m.planner_data.__setitem__("step", ("w", "x")),
    )
    c.metadata(
        "md_planner_empty",
        "reject",
        "empty path",
        lambda m: m.planner_data.__setitem__("w", ()),
    )
    c.metadata(
        "md_planner_neg",
        "reject",
        "negative list index in a path",
        lambda m: m.planner_data.__setitem__("w", ("w", -1)),
    )
    c.metadata(
        "md_planner_missing",
        "accept",
        "a name without path (use the name itself)",
        lambda m: m.planner_data.pop("w") and None,
    )
    c.metadata(
        "md_fqn_int",
        "reject",
        "an integer as state_dict_metadata key",
        lambda m: m.state_dict_metadata.__setitem__(5, BytesStorageMetadata()),
    )
    c.metadata(
        "md_value_type",
        "reject",
        "a string where storage metadata is expected",
        lambda m: m.state_dict_metadata.__setitem__("w", "x"),
    )
    c.dcp(
        "md_dup_fqn",
        "reject",
        "the same key twice in state_dict_metadata",
        raw=_dup_key(good),
    )


def _enum_by_name(md):
    class P(pickle._Pickler):
        def save(self, obj, save_persistent_id=True):
            if isinstance(obj, _MEM_FORMAT_ENCODING):
                return self.save_reduce(
                    getattr, (_MEM_FORMAT_ENCODING, obj.name), obj=obj
                )
            return super().save(obj, save_persistent_id)

    f = io.BytesIO()
    P(f, 4).dump(md)
    return f.getvalue()


def _with(o, **kw):
    for k, v in kw.items():
        setattr(o, k, v)
    return o


def _cyc_dict():
    return (
        b"\x80\x02"
        + g("torch.distributed.checkpoint.metadata", "Metadata")
        + b")\x81}"
        + u("state_dict_metadata")
        + b"}q\x00"
        + u("a")
        + b"h\x00s"
        + b"sb."
    )


def _dup_key(good):
    # Renames "step" to "w". The memoized string is shared by all dicts.
    body = (
        good[:2] + good[11:]
    )  # drop the FRAME opcode: its length would be stale
    assert good[2:3] == b"\x95" and b"\x8c\x04step\x94" in body
    return body.replace(b"\x8c\x04step\x94", b"\x8c\x01w\x94")


def add_more(c):
    good = pickle.dumps(base()[0], 4)
    enum = g("torch.distributed.checkpoint.metadata", "_MEM_FORMAT_ENCODING")
    getattr_call = b"\x80\x02" + g("builtins", "getattr")
    c.dcp(
        "md_getattr_class",
        "reject",
        "builtins.getattr(_MEM_FORMAT_ENCODING, '__class__')",
        raw=getattr_call + enum + u("__class__") + b"\x86R.",
    )
    metadata = g("torch.distributed.checkpoint.metadata", "Metadata")
    c.dcp(
        "md_getattr_init",
        "reject",
        "builtins.getattr(Metadata, '__init__')",
        raw=getattr_call + metadata + u("__init__") + b"\x86R.",
    )
    twice = b"".join(
        b"h" + bytes([k]) + b"h" + bytes([k]) + b"\x86\x94" for k in range(200)
    )
    c.dcp(
        "md_laughs_tuple",
        "reject",
        "200 levels of pairs of one tuple (2^200 leaves when expanded)",
        raw=b"\x80\x04N\x94" + twice + b".",
    )
    for name, raw in (
        ("string_quote", b"S'abc\n."),
        ("int_text", b"I" + b"9" * 1000000 + b"\n."),
        ("long_text", b"L" + b"9" * 1000000 + b"L\n."),
        ("float_text", b"F1e\n."),
        ("get_text", b"Nqx\ngabc\n."),
        ("no_newline", b"cos"),
        ("dup_empty", b"2."),
        ("append_tuple", b"\x80\x02)K\x01a."),
        ("setitem_list", b"\x80\x02]K\x01K\x02s."),
        ("reduce_int", b"\x80\x02K\x01)R."),
        ("reduce_not_tuple", b"\x80\x02" + g("torch", "Size") + b"K\x01R."),
        ("newobj_str", b"\x80\x02" + u("x") + b")\x81."),
        ("stack_global_int", b"\x80\x04K\x01K\x02\x93."),
        ("frame_short", b"\x80\x04\x95\x01" + b"\0" * 7 + b"\x8c\x05abcde."),
        ("proto_late", b"N\x80\x63."),
        ("buffer", b"\x80\x05\x97."),
        ("unknown_opcode", b"\x80\x04\xff."),
    ):
        c.dcp("md_op_" + name, "reject", "pickle: " + name, raw=raw)

    def many_chunks(box):
        def change(m):
            w = m.state_dict_metadata["w"]
            w.size = torch.Size([100000, 3])
            w.chunks = [box(k) for k in range(20000)]
            for x in w.chunks:
                index = MetadataIndex("w", x.offsets)
                m.storage_data[index] = _StorageInfo("__0_0.distcp", 0, 1577)

        return change

    c.metadata(
        "md_chunks_same",
        "reject",
        "20000 times the same chunk",
        many_chunks(lambda k: chunk([0, 0], [5, 3])),
    )
    c.metadata(
        "md_chunks_nested",
        "reject",
        "20000 chunks, each overlapping all that follow",
        many_chunks(lambda k: chunk([k, 0], [100000 - k, 3])),
    )
    for name, path in (
        ("inside_dotdot", "a/../__0_0.distcp"),
        ("metadata", ".metadata"),
        ("long", "a" * 100000),
        ("newline", "__0_0.distcp\n"),
        ("slash", "__0_0.distcp/"),
    ):
        c.metadata(
            "md_path_" + name,
            "reject",
            f"relative_path {path[:40]!r}",
            lambda m, path=path: setst(m, relative_path=path),
        )
    c.metadata(
        "md_offset_bigint",
        "reject",
        "a chunk offset beyond int64",
        lambda m: setattr(
            m.state_dict_metadata["w"].chunks[0], "offsets", size(2**70, 0)
        ),
    )
    c.metadata(
        "md_storage_shared",
        "either",
        "two chunks are read from the same bytes",
        lambda m: setattr_all(m, "__0_0.distcp", 0),
    )
    c.metadata(
        "md_planner_type",
        "reject",
        "a path that is a string",
        lambda m: m.planner_data.__setitem__("w", "w"),
    )
    c.metadata(
        "md_planner_float",
        "reject",
        "a float in a path",
        lambda m: m.planner_data.__setitem__("w", ("w", 1.5)),
    )
    c.metadata(
        "md_planner_mixed",
        "reject",
        "one container is a dict by one path and a list by another",
        lambda m: m.planner_data.update(w=("x", 0), step=("x", "y")),
    )
    c.metadata(
        "md_planner_deep",
        "reject",
        "a path of 100000 elements",
        lambda m: m.planner_data.__setitem__("w", ("w",) * 100000),
    )
    c.metadata(
        "ok_md_name_escape",
        "accept",
        "a terminal escape sequence in a name (must not reach a terminal)",
        rename("\x1b]0;owned\x07\x1b[2J"),
    )
    c.metadata(
        "ok_md_name_path", "accept", "a name is no path", rename("../../e")
    )
    c.metadata("md_name_nul", "either", "a name holds NUL", rename("a\0b"))
    c.dcp(
        "md_name_surrogate",
        "either",
        "a name holds a lone surrogate",
        raw=good[:2]
        + good[11:].replace(b"\x8c\x04step", b"\x8c\x03\xed\xa0\x80"),
    )


def setattr_all(m, relative_path, offset):
    length = next(
        v.length for k, v in m.storage_data.items() if k.offset is not None
    )
    for key, info in m.storage_data.items():
        if key.offset is not None:
            info.relative_path = relative_path
            info.offset, info.length = offset, length


def rename(name):
    """Gives `w` another name everywhere."""

    def change(m):
        m.state_dict_metadata[name] = m.state_dict_metadata.pop("w")
        m.planner_data[name] = (name,)
        del m.planner_data["w"]
        m.storage_data = {
            MetadataIndex(name if k.fqn == "w" else k.fqn, k.offset, k.index): v
            for k, v in m.storage_data.items()
        }

    return change
