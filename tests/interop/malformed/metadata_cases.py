# SPDX-License-Identifier: Apache-2.0
"""Cases of the index, `.metadata`: what its pickle says."""

import pathlib
import pickle

import torch
from torch.distributed.checkpoint.filesystem import _StorageInfo
from torch.distributed.checkpoint.metadata import (
    BytesStorageMetadata,
    ChunkStorageMetadata,
    MetadataIndex,
)

from building import Call, base, chunk, size


def setst(md, **kw):
    for k, v in md.storage_data.items():
        if k.fqn == "w" and k.offset == torch.Size([0, 0]):
            for a, b in kw.items():
                setattr(v, a, b)


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


def add(c):
    good = pickle.dumps(base()[0], 4)
    W = "state_dict_metadata"
    c.dcp("ok_base", "accept", "the unmodified base")
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
        lambda m: (
            (m.__dict__.pop("storage_meta"), m.__dict__.pop("version")) and None
        ),
    )
    c.metadata(
        "ok_md_unknown_attr",
        "accept",
        "an unknown plain attribute of Metadata (future writers)",
        lambda m: setattr(m, "future_field", [1, "x"]),
    )
    c.metadata(
        "ok_md_path_object",
        "accept",
        "checkpoint_id is a pathlib.PosixPath",
        lambda m: setattr(
            m.storage_meta, "checkpoint_id", pathlib.PosixPath("/some/dir")
        ),
    )
    c.dcp("md_missing", "reject", "no .metadata at all", raw=False)
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
            (
                setattr(m.state_dict_metadata["w"], "size", size(2**44)),
                setattr(
                    m.state_dict_metadata["w"],
                    "chunks",
                    [ChunkStorageMetadata(size(0), size(2**44))],
                ),
                m.storage_data.__setitem__(
                    MetadataIndex("w", [0]),
                    _StorageInfo("__0_0.distcp", 0, 1577),
                ),
            )
            and None
        ),
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
        "ok_md_name_path", "accept", "a name is not a path", rename("../../e")
    )
    c.metadata("md_name_nul", "either", "a name holds NUL", rename("a\0b"))
