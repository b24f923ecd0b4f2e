# SPDX-License-Identifier: Apache-2.0
"""One checkpoint, converted to everything, each output judged bit by bit."""

import itertools

import judge
from harness import DONE, FOUND, REFUSED, UNCHECKED, expect, expect_no_lines
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor._utils import (
    _compute_local_shape_and_global_offset,
)

# safetensors has no name for these.
NOT_IN_SAFETENSORS = ("complex32", "complex128")


class Checkpoint:
    """A source, and what every conversion of it must hold."""

    def __init__(self, path, expected, options=()):
        self.path = path
        self.expected = expected
        self.options = list(options)  # for every command that reads it
        self.tensors = judge.strip_hex(expected["tensors"])
        self.objects = expected.get("objects", {})

    def unfit_for_safetensors(self):
        return [
            name
            for name, d in self.tensors.items()
            if d["dtype"] in NOT_IN_SAFETENSORS
        ]


def expect_content(path, kind, tensors, objects):
    """Demands that a checkpoint holds exactly these values."""
    flat = judge.load_flat(str(path), kind)
    got = judge.normalized(*judge.describe_flat(flat))
    want = judge.normalized(tensors, objects)
    lines = judge.differences("tensor", got[0], want[0])
    expect_no_lines(lines + judge.differences("object", got[1], want[1]))


def check_inspect(tool, source):
    seen = tool.json("inspect", source.path, *source.options)
    got = {t["name"]: (t["dtype"], t["shape"]) for t in seen["tensors"]}
    want = {n: (d["dtype"], d["shape"]) for n, d in source.tensors.items()}
    expect_no_lines(judge.differences("tensor", got, want))
    expect(tool("inspect", source.path, *source.options).stdout, "no text")


def check_verify(tool, source):
    process = tool.run("verify", source.path, *source.options)
    # Files of others may have no checksums.
    codes = (DONE, UNCHECKED)
    expect(process.returncode in codes, f"code {process.returncode}")


def check_to_dcp(tool, source, out):
    tool("convert", source.path, out, "--to", "dcp", *source.options)
    expect_content(out, "dcp", source.tensors, source.objects)
    expect(not judge.bad_crcs(str(out)), "wrong CRC")
    nested = judge.flatten_state_dict(judge.load_dcp_nested(str(out)))[0]
    got = judge.normalized(*judge.describe_flat(nested))
    want = judge.normalized(source.tensors, source.objects)
    expect_no_lines(judge.differences("nested tensor", got[0], want[0]))
    expect_no_lines(judge.differences("nested object", got[1], want[1]))


def boxes_of(shape, mesh, placements):
    """The distinct boxes that DTensor puts on the ranks of a mesh."""
    boxes = set()
    for coordinate in itertools.product(*map(range, mesh)):
        sizes, offsets = _compute_local_shape_and_global_offset(
            tuple(shape), mesh, list(coordinate), placements
        )
        boxes.add((tuple(offsets), tuple(sizes)))
    return boxes


def without_empty(boxes):
    """Whether an empty shard leaves a chunk is the writer's choice."""
    return {b for b in boxes if 0 not in b[1]}


def check_reshard(tool, source, out, mesh, placements, rules=()):
    """`placements` gives DTensor placements of a shape."""
    spec = ",".join(f"{axis}={n}" for axis, n in mesh)
    flags = [x for rule in rules for x in ("--place", rule)]
    tool("reshard", source.path, out, "--mesh", spec, *flags, *source.options)
    expect_content(out, "dcp", source.tensors, source.objects)
    expect(not judge.bad_crcs(str(out)), "wrong CRC")
    lengths = tuple(n for _, n in mesh)
    chunks = judge.chunk_boxes(str(out))
    for name, d in source.tensors.items():
        want = boxes_of(d["shape"], lengths, placements(d["shape"]))
        got = without_empty(set(chunks[name]))
        expect(
            got == without_empty(want),
            f"{name!r} {d['shape']} has chunks {got}, not {want}",
        )


def rows(shape, axes):
    """Shard(0) on every axis, except for what has no rows."""
    return [Shard(0) if shape else Replicate()] * axes


def check_mesh(tool, source, out):
    check_reshard(
        tool, source, out, [("shard", 3)], lambda shape: rows(shape, 1)
    )


def check_hybrid_mesh(tool, source, out):
    check_reshard(
        tool,
        source,
        out,
        [("replicate", 2), ("shard", 2)],
        lambda shape: [Replicate()] + rows(shape, 1),
    )


def check_placed_mesh(tool, source, out):
    """Rows over dp and columns over tp, for tensors that have columns."""
    matrices = {n for n, d in source.tensors.items() if len(d["shape"]) > 1}
    rules = ["*=R,R"] + [f"{name}=S(0),S(1)" for name in sorted(matrices)]

    def placements(shape):
        if len(shape) > 1:
            return [Shard(0), Shard(1)]
        return [Replicate(), Replicate()]

    mesh = [("dp", 2), ("tp", 2)]
    check_reshard(tool, source, out, mesh, placements, rules)


def check_to_pt(tool, source, out):
    tool("convert", source.path, out, *source.options)
    expect_content(out, "pt", source.tensors, source.objects)
    expect(not judge.bad_crcs(str(out)), "wrong CRC")


def safetensors_options(source):
    options = list(source.options)
    for name in source.unfit_for_safetensors():
        options += ["--exclude", name]
    return options


def check_to_safetensors(tool, source, out):
    options = safetensors_options(source)
    want = dict(source.tensors)
    for name in source.unfit_for_safetensors():
        del want[name]
    if source.objects:
        refused = tool("convert", source.path, out, *options, code=REFUSED)
        named = [n for n in source.objects if n in refused.stderr.decode()]
        expect(named, "the refusal names no object")
        expect(not out.exists(), "refused, yet there is output")
        options.append("--drop-non-tensors")
    tool("convert", source.path, out, *options)
    expect_content(out, "safetensors", want, {})


def check_to_safetensors_folder(tool, source, out):
    options = safetensors_options(source) + ["--to", "safetensors"]
    options += ["--drop-non-tensors", "--max-shard-size", "1KiB"]
    tool("convert", source.path, out, *options)
    want = dict(source.tensors)
    for name in source.unfit_for_safetensors():
        del want[name]
    # PyTorch's reader of such folders knows fewer dtypes than safetensors.
    expect_content(out, "hf-files", want, {})


def check_diff(tool, source, other, *options):
    tool("diff", source.path, other, *source.options, *options)
    tool("diff", other, source.path, *source.options, *options)


def check_back_to_pt(tool, source, dcp, out):
    """What went into a DCP comes out of it."""
    tool("convert", dcp, out)
    expect_content(out, "pt", source.tensors, source.objects)
    # A DCP does not keep the types of containers.
    tool("diff", source.path, out, "--tensors-only", *source.options)


def check_flipped(tool, source, other):
    """A copy with one element changed is found to differ."""
    process = tool(
        "diff", source.path, other, *source.options, "--json", code=FOUND
    )
    expect(process.stdout, "diff found something and says nothing")


def check_everything(suite, title, source, all_meshes=True):
    """All cells of the table of conversions for one source."""
    tool = suite.tool
    out = suite.fresh(title.replace("/", "-"))

    def case(name, function, *arguments):
        suite.case(f"{title}: {name}", function, tool, source, *arguments)

    case("inspect", check_inspect)
    case("verify", check_verify)
    case("to dcp", check_to_dcp, out / "dcp")
    case("to dcp, 3 ranks", check_mesh, out / "mesh3")
    if all_meshes:
        case("to dcp, 2x2 replicated", check_hybrid_mesh, out / "hybrid")
        case("to dcp, 2x2 placed", check_placed_mesh, out / "placed")
    case("to pt", check_to_pt, out / "full.pt")
    case("dcp back to pt", check_back_to_pt, out / "dcp", out / "back.pt")
    case("diff dcp", check_diff, out / "dcp")
    case("diff sharded", check_diff, out / "mesh3")
    case("diff pt", check_diff, out / "full.pt")
    if source.tensors:
        case("to safetensors", check_to_safetensors, out / "all.safetensors")
        case("to a folder", check_to_safetensors_folder, out / "folder")
        skip = ["--tensors-only"]
        for name in source.unfit_for_safetensors():
            skip += ["--exclude", name]
        for place in (out / "all.safetensors", out / "folder"):
            case("diff " + place.name, check_diff, place, *skip)
