# SPDX-License-Identifier: Apache-2.0
"""`verify` and `diff` find a flipped bit, wherever it is."""

import shutil

import judge
import torch
from harness import DONE, FOUND, UNCHECKED, Suite, expect, make_references
from safetensors import safe_open
from safetensors.torch import load_file, save_file
from values import raw_bytes

CASES = ("dt_ws3", "pt_zoo", "hf_sharded_ws2")


def files_of(path):
    if path.is_file():
        return [path]
    return sorted(p for p in path.rglob("*") if p.is_file())


def flip_bit(path, payload):
    """Flips one bit of the payload's place in the files of a checkpoint."""
    for file in files_of(path):
        data = bytearray(file.read_bytes())
        place = data.find(payload)
        if place >= 0:
            data[place + len(payload) // 2] ^= 0x10
            file.write_bytes(data)
            return
    raise AssertionError(f"the payload is nowhere in {path}")


def copy(source, target):
    if source.is_dir():
        shutil.copytree(source, target)
    else:
        shutil.copy(source, target)
    return target


def check_flip(tool, source, damaged, payload, name, verifiable):
    copy(source, damaged)
    tool("diff", source, damaged)
    tool("verify", damaged, code=DONE if verifiable else UNCHECKED)
    flip_bit(damaged, payload)
    found = tool("diff", source, damaged, code=FOUND)
    expect(name in found.stdout.decode(), f"diff does not name {name}")
    found = tool.json("diff", source, damaged, code=FOUND)
    expect(name in str(found), f"diff --json does not name {name}")
    if verifiable:
        found = tool("verify", damaged, code=FOUND)
        text = found.stdout.decode() + found.stderr.decode()
        expect(name in text, f"verify does not name {name}: {text}")


def check_header(tool, out):
    """The package reads a header with digests, and what it carries over to
    other values passes for unchecked, not for damaged."""
    ours, theirs = out / "header.safetensors", out / "carried.safetensors"
    for names in ("ab", "a"):
        state = {name: torch.arange(8.0) for name in names}
        torch.save(state, out / "header.pt")
        tool("convert", out / "header.pt", ours, "--overwrite")
        with safe_open(ours, "pt") as file:
            metadata = file.metadata()
            expect(sorted(file.keys()) == sorted(names), str(file.keys()))
        expect("tessera_digests" in metadata, str(metadata))
        expect(metadata["format"] == "pt", str(metadata))
        loaded = load_file(ours)
        for name in names:
            expect(torch.equal(loaded[name], state[name]), name)
        found = tool.json("verify", ours)
        expect(found["num_digests_checked"] == len(names), str(found))
        save_file({n: -t for n, t in loaded.items()}, theirs, metadata)
        found = tool.json("verify", theirs, code=UNCHECKED)
        expect(found["num_digests_checked"] == 0, str(found))
        expect(found["num_items_unchecked"] == len(names), str(found))


def check_dtype(tool, out):
    """Equal values of different dtypes are not equal checkpoints."""
    values = torch.arange(6.0).reshape(2, 3)
    torch.save({"a": values}, out / "f32.pt")
    torch.save({"a": values.double()}, out / "f64.pt")
    torch.save({"a": values.reshape(3, 2)}, out / "shape.pt")
    torch.save({"b": values}, out / "name.pt")
    for other in ("f64.pt", "shape.pt", "name.pt"):
        tool("diff", out / "f32.pt", out / other, code=FOUND)


def check_objects(tool, out):
    """One changed value among objects is found and named."""
    state = {"w": torch.ones(2), "cfg": {"lr": 0.5, "betas": (0.9, 0.99)}}
    torch.save(state, out / "a.pt")
    state["cfg"]["betas"] = (0.9, 0.98)
    torch.save(state, out / "b.pt")
    found = tool("diff", out / "a.pt", out / "b.pt", code=FOUND)
    expect("cfg.betas" in found.stdout.decode(), "cfg.betas is not named")
    tool("diff", out / "a.pt", out / "b.pt", "--tensors-only")


def check_distance(tool, out):
    """The report says how far values are apart: max abs and ulp."""
    a = torch.tensor([1.0, 2.0, 4.0])
    b = a.clone()
    b[1] += 0.25
    torch.save({"a": a}, out / "x.pt")
    torch.save({"a": b}, out / "y.pt")
    found = tool("diff", out / "x.pt", out / "y.pt", code=FOUND)
    expect("0.25" in found.stdout.decode(), found.stdout.decode())


def main():
    suite = Suite("integrity")
    tool = suite.tool
    references = suite.fresh("references")
    make_references(references, CASES)
    out = suite.fresh("out")
    sharded = references / "dt_ws3"
    plain = raw_bytes(judge.load_dcp(str(sharded))["plain"])
    archive = references / "pt_zoo.pt"
    zoo = judge.load_flat(str(archive), "pt")["zoo.float32"]
    tool("convert", sharded, out / "ours")
    tool("convert", sharded, out / "ours.pt")
    hf = references / "hf_sharded_ws2"
    tool("convert", hf, out / "ours.safetensors")
    save_file(load_file(out / "ours.safetensors"), out / "theirs.safetensors")
    weight = raw_bytes(
        judge.load_flat(str(out / "ours.safetensors"))["c.weight"]
    )
    for title, source, payload, name, verifiable in (
        ("dcp of PyTorch", sharded, plain, "plain", True),
        ("dcp of ours", out / "ours", plain, "plain", True),
        ("pt of PyTorch", archive, raw_bytes(zoo), "zoo.float32", True),
        ("pt of ours", out / "ours.pt", plain, "plain", True),
        (
            "safetensors of ours",
            out / "ours.safetensors",
            weight,
            "c.weight",
            True,
        ),
        # The format itself has no checksums.
        (
            "safetensors of safetensors",
            out / "theirs.safetensors",
            weight,
            "c.weight",
            False,
        ),
    ):
        damaged = suite.fresh() / source.name
        suite.case(
            f"flipped bit: {title}",
            check_flip,
            *(tool, source, damaged, payload, name, verifiable),
        )
    suite.case("digests in a header", check_header, tool, out)
    suite.case("diff sees dtype, shape and name", check_dtype, tool, out)
    suite.case("diff sees objects", check_objects, tool, out)
    suite.case("diff says how far", check_distance, tool, out)
    suite.finish()


if __name__ == "__main__":
    main()
