# SPDX-License-Identifier: Apache-2.0
"""Resharding for tensor and expert parallelism gives PyTorch's own chunks."""

import judge
from conversions import Checkpoint, expect_content
from harness import USAGE, Suite, expect, expectations, make_references

PLAN = "blocks.*.up: colwise\nblocks.*.down: {style: rowwise}\n"


def chunks_of(path):
    """The boxes of each tensor that have elements."""
    return {
        name: {b for b in boxes if 0 not in b[1]}
        for name, boxes in judge.chunk_boxes(str(path)).items()
    }


def check_same_chunks(tool, source, whole, out, *options):
    """`whole` has no chunks; it is cut as the ranks of the source saved it."""
    tool("consolidate", source.path, whole)
    tool("reshard", whole, out, *options)
    expect_content(out, "dcp", source.tensors, source.objects)
    expect(not judge.bad_crcs(str(out)), "wrong CRC")
    want, got = chunks_of(source.path), chunks_of(out)
    for name in source.tensors:
        expect(
            got[name] == want[name],
            f"{name!r} has chunks {got[name]}, not {want[name]}",
        )


def check_other_plans(tool, source, out):
    """What one mesh wrote becomes another mesh's, and comes back."""
    plan = out / "plan.yaml"
    plan.write_text(PLAN)
    steps = [
        ["--mesh", "tp=4", "--tp-plan", plan],
        ["--mesh", "rep=2,fsdp=3,t=2", "--tp-plan", plan, "--tp-axis", "t"],
        ["--mesh", "fsdp=4"],
    ]
    last = source.path
    for i, step in enumerate(steps):
        here = out / f"step{i}"
        tool("reshard", last, here, *step)
        expect_content(here, "dcp", source.tensors, source.objects)
        last = here


def check_refused(tool, source, out):
    """An axis without a rule or a plan is not guessed."""
    for mesh in ("dp=2,tp=2", "efsdp=2,ep=2"):
        process = tool("reshard", source.path, out, "--mesh", mesh, code=USAGE)
        expect(b"nothing says which" in process.stderr, process.stderr)
        expect(not out.exists(), "refused, yet there is output")


def main():
    suite = Suite("mesh")
    references = suite.fresh("references")
    make_references(references, ["fsdp_tp_2x2", "fsdp_experts_2x2"])
    sources = {
        expected["case"]: Checkpoint(path, expected)
        for path, expected in expectations(references)
    }
    out = suite.fresh()
    plan = out / "plan.yaml"
    plan.write_text(PLAN)
    dense = sources["fsdp_tp_2x2"]
    mesh = ["--mesh", "dp=2,tp=2"]
    # A buffer is on all ranks.
    buffer = ["--place", "model.freqs=R,R"]
    named = ["--place", "*=dp:S(0)"]
    named += ["--place", "*.up.*=tp:S(0),dp:S(0)"]
    named += ["--place", "*.down.weight*=tp:S(1),dp:S(0)"]
    experts = ["--mesh", "fsdp=4", "--mesh", "experts:efsdp=2,ep=2"]
    experts += ["--place", "*.experts.*@experts=ep:S(0),efsdp:S(0)"]
    for name, source, options in [
        ("a plan", dense, [*mesh, "--tp-plan", plan, *buffer]),
        ("axes in order", dense, [*mesh, *named, *buffer]),
        ("two meshes", sources["fsdp_experts_2x2"], experts),
    ]:
        key = name.replace(" ", "-")
        suite.case(
            name,
            check_same_chunks,
            suite.tool,
            source,
            out / f"{key}.pt",
            out / key,
            *options,
        )
    other = suite.fresh("other")
    suite.case("other plans", check_other_plans, suite.tool, dense, other)
    refused = out / "refused"
    suite.case("refused", check_refused, suite.tool, dense, refused)
    suite.finish()


if __name__ == "__main__":
    main()
