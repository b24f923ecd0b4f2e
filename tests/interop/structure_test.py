# SPDX-License-Identifier: Apache-2.0
"""Between two .pt files the pickle stays what it was: types, keys, order,
attributes, sharing and values, as torch.load gives them."""

import argparse
import collections
import copy
import datetime
import decimal
import fractions
import io
import pathlib
import uuid

import judge
import torch
import torch.distributed.checkpoint as dcp
from harness import BAD_SOURCE, FOUND, REFUSED, Suite, expect
from torch.distributed.tensor import (
    DTensor,
    Shard,
    distribute_tensor,
    init_device_mesh,
)
from values import det


def same(a, b, path, seen):
    """Demands that two loaded values are alike as far as Python can tell."""
    expect(type(a) is type(b), f"{path}: {type(a)} became {type(b)}")
    if id(a) in seen:
        expect(seen[id(a)] == id(b), f"{path}: what was shared is not")
        return
    if not isinstance(a, (int, float, str, bytes, type, type(None), tuple)):
        expect(id(b) not in seen.values(), f"{path}: shared what was not")
        seen[id(a)] = id(b)
    if isinstance(a, torch.Tensor):
        same_tensor(a, b, path)
    elif isinstance(a, (torch.UntypedStorage, torch.TypedStorage)):
        expect(a.tolist() == b.tolist(), f"{path}: other bytes")
    elif isinstance(a, dict):
        same(list(a), list(b), f"{path} keys", {})
        for (key, x), y in zip(a.items(), b.values()):
            same(x, y, f"{path}[{key!r}]", seen)
        if isinstance(a, collections.defaultdict):
            expect(a.default_factory is b.default_factory, f"{path}: factory")
    elif isinstance(a, (list, tuple, collections.deque)):
        expect(len(a) == len(b), f"{path}: {len(a)} became {len(b)}")
        for i, (x, y) in enumerate(zip(a, b)):
            same(x, y, f"{path}[{i}]", seen)
        if isinstance(a, collections.deque):
            expect(a.maxlen == b.maxlen, f"{path}: maxlen")
    elif isinstance(a, io.BytesIO):
        expect(a.getvalue() == b.getvalue(), path)
    elif isinstance(a, float):
        expect(a.hex() == b.hex(), path)
    elif not isinstance(a, argparse.Namespace):
        expect(a == b, f"{path}: {a!r} became {b!r}")
    attributes = getattr(a, "__dict__", {})
    if attributes and not isinstance(a, (type, torch.UntypedStorage)):
        same(attributes, b.__dict__, f"{path}.__dict__", seen)


def same_tensor(a, b, path):
    for what in ("dtype", "shape", "requires_grad", "layout", "device"):
        x, y = getattr(a, what), getattr(b, what)
        expect(x == y, f"{path}: {what} {x} became {y}")
    if a.layout is not torch.strided:
        a, b = a.to_dense(), b.to_dense()
    elif not a.is_quantized:
        for what in ("stride", "storage_offset", "is_conj", "is_neg"):
            x, y = getattr(a, what)(), getattr(b, what)()
            expect(x == y, f"{path}: {what} {x} became {y}")
        size = a.untyped_storage().nbytes()
        expect(size == b.untyped_storage().nbytes(), f"{path}: storage size")
    if a.is_quantized:
        expect(a.q_scale() == b.q_scale(), f"{path}: scale")
        a, b = a.int_repr(), b.int_repr()
    expect(torch.equal(a, b), f"{path}: other values")


def load(path):
    return torch.load(path, weights_only=False)


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = torch.nn.Embedding(5, 4)
        self.norm = torch.nn.BatchNorm1d(4)
        self.head = torch.nn.Linear(4, 5)
        self.head.weight = self.embed.weight

    def forward(self, x):
        return self.head(self.norm(self.embed(x)))


def training_state():
    """A model, its optimizer after a step, and a scheduler."""
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.1)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    model(torch.tensor([0, 1, 2])).sum().backward()
    optimizer.step()
    schedule.step()
    return (
        model,
        optimizer,
        {
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "schedule": schedule.state_dict(),
            "epoch": 3,
        },
    )


def containers():
    """Keys and containers that names cannot express."""
    base = det((6, 4), seed=1)
    parameter = torch.nn.Parameter(base[2:4])
    counts = collections.Counter({"a": 2, "b": 1})
    defaults = collections.defaultdict(list, {None: [1], (1, "x"): []})
    shared = {"t": base, "v": base[1:3].t()}
    named = collections.OrderedDict(b=parameter, a=det((2,), seed=2))
    named._metadata = collections.OrderedDict({"": {"version": 2}})
    attributed = torch.nn.Parameter(det((2,), seed=5))
    attributed.note = {"frozen": True}
    return {
        0: {1: det((2,), seed=3), 2: {}, "s": ()},
        "counts": counts,
        "defaults": defaults,
        "one": shared,
        "two": shared,
        "list": [shared, parameter, parameter, {}, [[]]],
        "named": named,
        "attributed": attributed,
        "frozen": torch.nn.Parameter(det((3,), seed=4), requires_grad=False),
        "conj": det((2, 2), torch.complex64).conj(),
        "sparse": torch.eye(3).to_sparse(),
        "quantized": torch.quantize_per_tensor(base, 0.1, 3, torch.qint8),
        True: None,
        2.5: b"bytes",
        "tuple": (base, {"x": collections.OrderedDict()}, {7: parameter}),
        "set": {1, 2},
    }


def plain():
    """Values of plain Python."""
    return {
        "t": det((2,)),
        "values": [
            range(1, 9, 2),
            collections.deque([1, det((2,), seed=1)], maxlen=3),
            datetime.datetime(2026, 1, 2, tzinfo=datetime.timezone.utc),
            datetime.timedelta(3),
            decimal.Decimal("1.50"),
            uuid.UUID(int=7),
            fractions.Fraction(1, 3),
            argparse.Namespace(lr=0.1, names=["a"]),
            io.BytesIO(b"abc"),
            pathlib.PurePosixPath("a/b"),
            slice(1, None, 2),
            complex(1, -2),
            torch.torch_version.TorchVersion(torch.__version__),
        ],
    }


def storages(first):
    """A storage next to a tensor, in either order."""
    state = {
        "t": det((3,)),
        "s": det((5,), torch.uint8, 1).untyped_storage(),
        "typed": det((2,), seed=2).storage(),
    }
    names = sorted(state, key=lambda name: name != first)
    return {name: state[name] for name in names}


def check_copy(tool, out, make, **options):
    state = make() if callable(make) else make
    torch.save(state, out / "in.pt", **options)
    tool("convert", out / "in.pt", out / "out.pt")
    tool("verify", out / "out.pt")
    same(load(out / "in.pt"), load(out / "out.pt"), "", {})
    tool("diff", out / "in.pt", out / "out.pt")


def check_resume(tool, out):
    """An optimizer continues from the copy as from the original."""
    model, optimizer, state = training_state()
    torch.save(state, out / "in.pt")
    tool("convert", out / "in.pt", out / "out.pt")
    for name in ("in.pt", "out.pt"):
        other = copy.deepcopy(model)
        again = torch.optim.AdamW(other.parameters(), lr=0.1)
        loaded = load(out / name)
        again.load_state_dict(loaded["optimizer"])
        other.load_state_dict(loaded["model"])
        other(torch.tensor([3, 4])).sum().backward()
        again.step()
        if name == "in.pt":
            want = other.state_dict()
    got = other.state_dict()
    for key, value in want.items():
        expect(torch.equal(got[key], value), key)


def check_cast(tool, out):
    """A cast changes the type of tensors and nothing else."""
    _, _, state = training_state()
    torch.save(state, out / "in.pt")
    tool("convert", out / "in.pt", out / "out.pt", "--cast", "model.*=bf16")
    want = load(out / "in.pt")
    got = load(out / "out.pt")
    for key, value in want["model"].items():
        if value.is_floating_point():
            value = value.to(torch.bfloat16)
        expect(torch.equal(got["model"][key], value), key)
    expect(
        got["model"]["embed.weight"].data_ptr()
        == got["model"]["head.weight"].data_ptr(),
        "tied weights are not tied",
    )
    expect(got["model"]._metadata == want["model"]._metadata, "_metadata")
    same(want["optimizer"], got["optimizer"], "optimizer", {})


def check_bare_model(tool, out):
    """A model taken out of a training state is its own dict."""
    _, _, state = training_state()
    torch.save(state, out / "in.pt")
    rule = ["--include", "model.*", "--rename", r"s/^model\.//"]
    tool("convert", out / "in.pt", out / "out.pt", *rule)
    same(load(out / "in.pt")["model"], load(out / "out.pt"), "", {})


class Config:
    """An object of a class that the program does not know."""

    def __init__(self):
        self.lr = 0.1


def check_unknown(tool, out):
    """An unknown object stops neither inspect nor the rest of a conversion."""
    want = det((3,))
    state = {"w": want, "config": Config(), "layer": torch.nn.Linear(2, 2)}
    torch.save(state, out / "in.pt")
    seen = tool.json("inspect", out / "in.pt")
    expect(seen["num_tensors"] == 1, seen)
    tool("verify", out / "in.pt")
    refused = tool("convert", out / "in.pt", out / "out.pt", code=BAD_SOURCE)
    said = refused.stderr.decode()
    expect("__main__.Config" in said, said)
    expect("--drop-unreadable" in said, said)
    drop = "--drop-unreadable"
    tool("convert", out / "in.pt", out / "out.pt", drop)
    expect(list(load(out / "out.pt")) == ["w"], "what is left")
    dcp.save(state | {"layer": 1}, checkpoint_id=str(out / "dcp"), no_dist=True)
    tool("verify", out / "dcp")
    tool.json("inspect", out / "dcp")
    tool("convert", out / "dcp", out / "again")
    loaded = {"w": torch.empty(3), "config": None}
    dcp.load(loaded, checkpoint_id=str(out / "again"), no_dist=True)
    expect(loaded["config"].lr == 0.1, "the object is another")
    expect(torch.equal(loaded["w"], want), "the tensor is another")
    tool("convert", out / "dcp", out / "w.safetensors", "--drop-non-tensors")
    for make, says in (
        (lambda: torch.save(torch.nn.Linear(2, 2), out / "bad.pt"), "Linear"),
        (
            lambda: torch.jit.script(torch.nn.Linear(2, 2)).save(
                str(out / "bad.pt")
            ),
            "TorchScript",
        ),
    ):
        make()
        said = tool("inspect", out / "bad.pt", code=BAD_SOURCE).stderr.decode()
        expect(says in said and "state_dict()" in said, said)


def check_dtensor(tool, out):
    """A whole DTensor is a tensor; a part of one is refused for that reason."""
    mesh = init_device_mesh("cpu", (1,))
    want = det((4, 2))
    whole = distribute_tensor(want, mesh, [Shard(0)])
    torch.save({"w": whole, "n": 1}, out / "in.pt")
    tool("convert", out / "in.pt", out / "w.safetensors", "--drop-non-tensors")
    got = judge.load_flat(str(out / "w.safetensors"), "safetensors")
    expect(torch.equal(got["w"], want), "other values")
    tool("convert", out / "in.pt", out / "out.pt")
    copy = load(out / "out.pt")["w"]
    expect(copy.placements == whole.placements, "other placements")
    expect(torch.equal(copy.to_local(), want), "other values in the copy")
    part = DTensor.from_local(
        want, mesh, [Shard(0)], shape=(8, 2), stride=(2, 1), run_check=False
    )
    torch.save({"w": part}, out / "part.pt")
    refused = tool(
        "convert", out / "part.pt", out / "part.safetensors", code=REFUSED
    )
    tool("inspect", out / "part.pt")
    refused = tool("convert", out / "part.pt", out / "part", code=BAD_SOURCE)
    said = refused.stderr.decode()
    expect("one rank's part" in said, said)


def check_diff(tool, out):
    """Keys and containers of another type are found, and named."""
    cases = {
        "keys": ({"d": {0: 1}}, {"d": {"0": 1}}),
        "types": ({"d": collections.OrderedDict(a=1)}, {"d": {"a": 1}}),
        "empty": ({"d": {}, "n": 1}, {"n": 1}),
        "storage": (
            storages("t"),
            dict(
                storages("t"),
                s=torch.arange(5, dtype=torch.uint8).untyped_storage(),
            ),
        ),
    }
    for name, (a, b) in cases.items():
        torch.save(a, out / "a.pt")
        torch.save(b, out / "b.pt")
        found = tool.json("diff", out / "a.pt", out / "b.pt", code=FOUND)
        expect(len(found["findings"]) == 1, f"{name}: {found['findings']}")
    torch.save({"d": {0: 1}}, out / "a.pt")
    tool("convert", out / "a.pt", out / "dcp")
    equal = tool.json("diff", out / "a.pt", out / "dcp")
    expect("dcp" in equal["containers_skipped"], equal["containers_skipped"])


def check_storages_in_dcp(tool, out):
    torch.save({"pair": tuple(storages("t").values())}, out / "in.pt")
    tool("convert", out / "in.pt", out / "dcp")
    tool("convert", out / "dcp", out / "out.pt")
    same(load(out / "in.pt"), load(out / "out.pt"), "", {})


def main():
    suite = Suite("structure")
    # A DTensor has a mesh, also on one rank.
    torch.distributed.init_process_group(
        "gloo",
        init_method=f"file://{suite.fresh()}/ranks",
        rank=0,
        world_size=1,
    )
    tool = suite.tool

    def case(name, function, *arguments, **options):
        suite.case(
            name,
            lambda: function(tool, suite.fresh(), *arguments, **options),
        )

    case("training state", check_copy, lambda: training_state()[2])
    case("containers", check_copy, containers)
    old = {"_use_new_zipfile_serialization": False}
    case(
        "training state, legacy", check_copy, lambda: training_state()[2], **old
    )
    case("protocol 4", check_copy, plain_containers, pickle_protocol=4)
    case("plain objects", check_copy, plain)
    case("unknown objects", check_unknown)
    case("dtensor", check_dtensor)
    for first in ("t", "s", "typed"):
        case(f"storages, {first} first", check_copy, storages(first))
    case("storages in dcp", check_storages_in_dcp)
    case("resume", check_resume)
    case("cast", check_cast)
    case("bare model", check_bare_model)
    case("diff", check_diff)
    suite.finish()


def plain_containers():
    return {"t": det((2,)), "b": b"x", "set": {1}, "d": {1: (2, None)}}


if __name__ == "__main__":
    main()
