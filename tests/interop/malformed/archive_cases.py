# SPDX-License-Identifier: Apache-2.0
"""Cases of torch.save files, zip and legacy."""

import struct

from building import (
    F6,
    F6B,
    g,
    i,
    item,
    system_call,
    tensor_value,
    touch,
    tup,
    u,
)

MAGIC = b"\x80\x02\x8a\x0al\xfc\x9cF\xf9 j\xa8P\x19."
HEAD = MAGIC + b"\x80\x02M\xe9\x03." + b"\x80\x02}."
NONE = b"N"


def mapping(**values):
    """A pickled dict of already pickled values."""
    pairs = b"".join(u(k) + v for k, v in values.items())
    return b"\x80\x02}(" + pairs + b"u."


def legacy(pkl=None, keys=("0",), storages=((6, F6),), head=HEAD, tail=b""):
    """A file as torch.save wrote it before 1.6."""
    if pkl is None:
        pkl = mapping(w=tensor_value(view=NONE))
    names = b"\x80\x02](" + b"".join(map(u, keys)) + b"e."
    data = b"".join(struct.pack("<q", n) + raw for n, raw in storages)
    return head + pkl + names + data + tail


def add(cases):
    def c(name, expect, why, data, **more):
        cases.file(name + ".pt", "pt", expect, why, data, **more)

    add_zip(c)
    add_legacy(c)


def add_zip(c):
    w = tensor_value()
    c("ok_pt", "accept", "dict with one tensor", item(pkl=mapping(w=w)))
    c("pt_empty", "reject", "empty file", b"")
    c("pt_short", "reject", "two bytes", b"PK")
    c("pt_evil", "reject", "os.system", item(pkl=system_call("pt")))
    linear = g("torch.nn.modules.linear", "Linear")
    c(
        "pt_module",
        "reject",
        "a whole pickled nn.Module",
        item(pkl=b"\x80\x02" + linear + b")\x81}b."),
        says="torch.nn.modules.linear.Linear",
    )
    c(
        "pt_tar",
        "reject",
        "tar archive (oldest torch format)",
        b"sys_info" + b"\0" * 1016,
    )
    c(
        "pt_duplicate_name",
        "reject",
        "two values flatten to one name",
        item(pkl=mapping(**{"a.b": w, "a": b"}" + u("b") + b"K\x01s"})),
    )
    c(
        "pt_self_containing",
        "reject",
        "the dict contains itself",
        item(pkl=b"\x80\x02}q\x00" + u("a") + b"h\x00s."),
    )
    c(
        "pt_storage_two_sizes",
        "reject",
        "one storage key with two element counts",
        item(pkl=mapping(a=w, b=tensor_value(numel=1000, offset=900))),
    )
    c(
        "pt_storage_two_dtypes",
        "reject",
        "one storage key with two dtypes, the second too long",
        item(pkl=mapping(a=w, b=tensor_value(storage="DoubleStorage"))),
    )
    c(
        "pt_list",
        "either",
        "a list, not a dict",
        item(pkl=b"\x80\x02](" + w + b"e."),
    )
    c("pt_tensor", "either", "a tensor alone", item(pkl=b"\x80\x02" + w + b"."))
    c("pt_number", "either", "a number alone", item(pkl=b"\x80\x02K\x01."))
    c("pt_no_stop", "reject", "no STOP", item(pkl=mapping(w=w)[:-1]))
    # It stands in the pickle, and no more of it is written.
    carried = {"verify": "accept", "convert": "accept", "to_dcp": "reject"}
    c(
        "pt_expand_bomb",
        "reject",
        "stride-0 view of 2^50 elements over one float",
        item(pkl=mapping(w=tensor_value(shape=(2**50,), stride=(0,)))),
        **carried,
    )
    c(
        "pt_expand_many",
        "reject",
        "a thousand stride-0 views of 2^40 elements",
        item(
            pkl=mapping(
                **{
                    f"w{k}": tensor_value(shape=(2**40,), stride=(0,))
                    for k in range(1000)
                }
            )
        ),
        **carried,
    )
    c(
        "pt_setstate",
        "reject",
        "BUILD on a tensor class",
        item(
            pkl=b"\x80\x02" + g("torch", "Tensor") + b"}" + u("x") + b"K\x01sb."
        ),
    )
    c(
        "pt_parameter_of_int",
        "reject",
        "a Parameter of an integer",
        item(
            pkl=mapping(
                w=g("torch._utils", "_rebuild_parameter")
                + tup(i(5), b"\x88", g("collections", "OrderedDict") + b")R")
                + b"R"
            )
        ),
    )
    c(
        "pt_type_v2_evil",
        "reject",
        "_rebuild_from_type_v2 with a foreign function",
        item(
            pkl=mapping(
                w=g("torch._tensor", "_rebuild_from_type_v2")
                + tup(
                    g("os", "system"),
                    g("torch", "Tensor"),
                    tup(u(touch("type_v2"))),
                    b"}",
                )
                + b"R"
            )
        ),
    )
    c(
        "pt_pid_number",
        "reject",
        "a persistent id that is a number",
        item(pkl=b"\x80\x02K\x05Q."),
    )
    c(
        "pt_pid_short",
        "reject",
        "a persistent id of two parts",
        item(pkl=b"\x80\x02" + tup(u("storage"), u("0")) + b"Q."),
    )


def add_legacy(c):
    c("ok_pt_legacy", "accept", "the sound legacy file", legacy())
    call = system_call("legacy")
    c("pt_legacy_evil", "reject", "os.system", legacy(pkl=call))
    evil = MAGIC + b"\x80\x02M\xe9\x03." + system_call("sys_info")
    c("pt_legacy_evil_info", "reject", "os.system early", legacy(head=evil))
    c("pt_legacy_truncated", "reject", "legacy magic only", MAGIC)
    c("pt_legacy_cut", "reject", "storage cut", legacy()[:-4])
    c("pt_legacy_no_keys", "reject", "no list of keys", HEAD + mapping(a=b"N"))
    plain = system_call("plain")
    c("pt_plain_pickle_evil", "reject", "plain pickle with os.system", plain)
    c("pt_plain_pickle", "reject", "plain pickle of a dict", mapping(a=b"N"))
    for name, count in (("huge", 2**62), ("negative", -6), ("other", 5)):
        why = f"a storage of {count} elements"
        data = legacy(storages=((count, F6),))
        c("pt_legacy_count_" + name, "reject", why, data)
    c(
        "pt_legacy_key_unknown",
        "reject",
        "the list names a storage that no tensor has",
        legacy(keys=("9",)),
    )
    c(
        "pt_legacy_key_twice",
        "reject",
        "the list names a storage twice",
        legacy(keys=("0", "0"), storages=((6, F6), (6, F6B))),
    )
    c(
        "pt_legacy_key_missing",
        "reject",
        "no storage",
        legacy(keys=(), storages=()),
    )
    view = tup(u("1"), i(2**40), i(6))
    c(
        "pt_legacy_view",
        "reject",
        "view metadata that leaves the storage",
        legacy(pkl=mapping(w=tensor_value(view=view))),
    )
    protocol = MAGIC + b"\x80\x02K\x07." + b"\x80\x02}."
    c("pt_legacy_protocol", "reject", "protocol 7", legacy(head=protocol))
    c(
        "pt_legacy_trailing",
        "either",
        "bytes behind the last storage",
        legacy(tail=b"\0" * 100),
    )
