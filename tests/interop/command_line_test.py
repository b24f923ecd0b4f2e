# SPDX-License-Identifier: Apache-2.0
"""Verbs, options and exit codes, with PyTorch's own tool as the judge."""

import json
import os
import subprocess
import sys

import judge
import torch
from harness import (
    BAD_DESTINATION,
    BAD_SOURCE,
    FOUND,
    REFUSED,
    USAGE,
    Suite,
    expect,
    expect_no_lines,
    make_references,
)
from values import describe_flat

CASES = ("fsdp_ws3", "single_objects", "pt_zoo", "hf_sharded_ws2")


def pytorch_tool(*arguments):
    module = "torch.distributed.checkpoint.format_utils"
    command = [sys.executable, "-m", module, *map(str, arguments)]
    subprocess.run(
        command, check=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def expect_same(a, b):
    got = describe_flat(judge.load_flat(str(a)))
    want = describe_flat(judge.load_flat(str(b)))
    lines = judge.differences("tensor", got[0], want[0])
    expect_no_lines(lines + judge.differences("object", got[1], want[1]))


def check_dcp_to_torch(tool, source, out):
    tool("dcp_to_torch", source, out / "ours.pt")
    pytorch_tool("dcp_to_torch", source, out / "theirs.pt")
    expect_same(out / "ours.pt", out / "theirs.pt")


def check_torch_to_dcp(tool, source, out):
    tool("torch_to_dcp", source, out / "ours")
    pytorch_tool("torch_to_dcp", source, out / "theirs")
    expect_same(out / "ours", out / "theirs")
    tool("diff", out / "ours", out / "theirs")


def check_bare_model(tool, source, out):
    rule = ["--include", "model.*", "--rename", r"s/^model\.//"]
    tool("convert", source, out / "bare.pt", *rule)
    state = judge.load_dcp_nested(str(source))["model"]
    got = torch.load(out / "bare.pt", weights_only=True)
    expect(set(got) == set(state), f"names {sorted(got)}")
    for name, value in state.items():
        expect(torch.equal(got[name], value), name)
    tool("diff", source, out / "bare.pt", *rule)


def check_cast(tool, source, out):
    tool("convert", source, out / "cast", "--cast", "model.*=bf16")
    want = judge.load_dcp(str(source))
    got = judge.load_dcp(str(out / "cast"))
    for name, value in want.items():
        if not isinstance(value, torch.Tensor):
            continue
        if name.startswith("model.") and value.is_floating_point():
            value = value.to(torch.bfloat16)
        expect(got[name].dtype == value.dtype, f"{name}: {got[name].dtype}")
        expect(torch.equal(got[name], value), name)


def check_exclude(tool, source, out):
    tool("convert", source, out / "less", "--exclude", "optim.*")
    names = set(judge.load_dcp(str(out / "less")))
    want = {n for n in judge.load_dcp(str(source)) if n[:6] != "optim."}
    expect(names == want, f"difference {names ^ want}")


def check_shard_size(tool, source, out):
    target = out / "pieces"
    flags = ["--to", "safetensors", "--max-shard-size", "128"]
    tool("convert", source, target, *flags)
    with open(target / "model.safetensors.index.json") as f:
        index = json.load(f)
    files = {p.name for p in target.glob("*.safetensors")}
    expect(files == set(index["weight_map"].values()), "index and files")
    want = judge.load_hf(str(source))
    expect(set(index["weight_map"]) == set(want), "names in the index")
    total = sum(t.numel() * t.element_size() for t in want.values())
    expect(index["metadata"]["total_size"] == total, "total_size")
    got = judge.load_hf(str(target))
    for name, value in want.items():
        expect(torch.equal(got[name], value), name)


def check_plan(tool, source, out):
    target = out / "planned.pt"
    tool("convert", source, target, "--plan")
    plan = tool.json("convert", source, target, "--plan")
    expect(not target.exists(), "--plan wrote")
    tool("convert", source, target)
    size = os.path.getsize(target)
    expect(str(size) in json.dumps(plan), f"{size} is not in {plan}")


def check_overwrite(tool, source, out):
    for target in (out / "twice.pt", out / "twice"):
        tool("convert", source, target)
        tool("convert", source, target, code=REFUSED)
        tool("convert", source, target, "--overwrite")
        tool("diff", source, target)


def check_overwrite_other(tool, source, out):
    """A folder that is not a checkpoint is never replaced."""
    folder = out / "precious"
    folder.mkdir()
    (folder / "thesis.txt").write_text("x")
    process = tool.run("convert", source, folder, "--overwrite")
    expect(process.returncode in (REFUSED, 0), f"code {process.returncode}")
    expect((folder / "thesis.txt").exists(), "a foreign file is gone")


def check_usage(tool, source, out):
    for arguments in (
        (),
        ("frobnicate", source),
        ("convert", source),
        ("convert", source, out / "x", "--mesh", "shard=0"),
        ("reshard", source, out / "x", "--mesh", "a=2", "--place", "*=S(0),R"),
        ("inspect", source, "--no-such-option"),
        ("verify", source, "--sample", "101"),
        ("convert", source, out / "x.pt", "--lanes", "-1"),
        ("convert", source, out / "x.pt", "--rename", "s/(/x/"),
    ):
        process = tool(*arguments, code=USAGE)
        expect(process.stderr, f"{arguments}: nothing is said")
    expect(not (out / "x").exists(), "output in spite of wrong usage")


def check_help(tool, verb):
    process = tool(*([verb] if verb else []), "--help")
    text = process.stdout.decode()
    expect("dcp-convert" in text and "130" in text, "no exit codes")
    expect(not verb or "Examples" in text, "no examples")


def check_bad_source(tool, out):
    (out / "noise.pt").write_bytes(b"noise" * 100)
    (out / "empty").mkdir()
    for name in ("missing", "noise.pt", "empty"):
        for verb in ("inspect", "verify"):
            tool(verb, out / name, code=BAD_SOURCE)
        tool("convert", out / name, out / "never.pt", code=BAD_SOURCE)
    expect(not (out / "never.pt").exists(), "output of a bad source")


def check_bad_destination(tool, source, out):
    (out / "file").write_text("x")
    for target in (out / "file" / "x.pt", out / "no" / "folder" / "x.pt"):
        tool("convert", source, target, code=BAD_DESTINATION)


def check_same_place(tool, source):
    """A checkpoint is not converted onto itself."""
    before = sorted(os.listdir(source))
    process = tool.run("convert", source, source)
    expect(process.returncode in (USAGE, REFUSED), "converted onto itself")
    expect(sorted(os.listdir(source)) == before, "the source has changed")


def check_found(tool, source, out):
    state = torch.load(source, weights_only=False)
    state["base"] = state["base"] + 1
    torch.save(state, out / "other.pt")
    tool("diff", source, out / "other.pt", code=FOUND)


def check_progress(tool, source, out):
    """Progress is on standard error; --json leaves one object on output."""
    for mode in ("none", "plain", "json"):
        target = out / f"progress-{mode}.pt"
        flags = ["--progress", mode, "--json"]
        process = tool("convert", source, target, *flags)
        json.loads(process.stdout)
        for line in process.stderr.splitlines() if mode == "json" else []:
            json.loads(line)


def check_memory(tool, source, out):
    flags = ["--max-memory", "16MiB", "--lanes", "1"]
    for mode in ("off", "on", "auto"):
        target = out / f"direct-{mode}"
        tool("convert", source, target, *flags, "--direct", mode)
        tool("diff", source, target)


def main():
    suite = Suite("command_line")
    tool = suite.tool
    references = suite.fresh("references")
    make_references(references, CASES)
    out = suite.fresh("out")
    fsdp = references / "fsdp_ws3"
    objects = references / "single_objects"
    zoo = references / "pt_zoo.pt"
    hf = references / "hf_sharded_ws2"

    def case(name, function, *arguments):
        suite.case(name, function, tool, *arguments)

    case("dcp_to_torch", check_dcp_to_torch, fsdp, suite.fresh())
    case("dcp_to_torch objects", check_dcp_to_torch, objects, suite.fresh())
    case("torch_to_dcp", check_torch_to_dcp, zoo, suite.fresh())
    case("--include --rename", check_bare_model, fsdp, out)
    case("--cast", check_cast, fsdp, out)
    case("--exclude", check_exclude, fsdp, out)
    case("--max-shard-size", check_shard_size, hf, out)
    case("--plan", check_plan, fsdp, out)
    case("--overwrite", check_overwrite, fsdp, out)
    case("--overwrite of others", check_overwrite_other, fsdp, out)
    case("usage", check_usage, fsdp, out)
    for verb in ("", "inspect", "verify", "diff", "convert", "reshard"):
        case(f"help {verb}".strip(), check_help, verb)
    case("bad source", check_bad_source, suite.fresh())
    case("bad destination", check_bad_destination, fsdp, out)
    case("onto itself", check_same_place, fsdp)
    case("diff finds", check_found, zoo, out)
    case("--progress", check_progress, fsdp, out)
    case("--max-memory --direct", check_memory, fsdp, out)
    suite.finish()


if __name__ == "__main__":
    main()
