# SPDX-License-Identifier: Apache-2.0
"""Cases of the index, `.metadata`: its pickle."""

import io
import pickle
import struct
import subprocess

from torch.distributed.checkpoint.metadata import (
    _MEM_FORMAT_ENCODING,
)

from building import Call, base, g, touch, u


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


def add(c):
    good = pickle.dumps(base()[0], 4)
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
    c.dcp(
        "ok_md_enum_by_name",
        "accept",
        "enum pickled by name, as Python 3.11.0 to 3.11.3 does",
        raw=_enum_by_name(base()[0]),
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
    c.dcp(
        "md_dup_fqn",
        "reject",
        "the same key twice in state_dict_metadata",
        raw=_dup_key(good),
    )
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
    c.dcp(
        "md_name_surrogate",
        "either",
        "a name holds a lone surrogate",
        raw=good[:2]
        + good[11:].replace(b"\x8c\x04step", b"\x8c\x03\xed\xa0\x80"),
    )
