"""Checkpoints of other frameworks: PyTorch loads what dcp-convert makes of
them, bit for bit, and its FSDP2 resumes from it on other ranks."""

import json
import shutil

from accelerate.state import PartialState
from accelerate.utils import merge_fsdp_weights

import judge
from harness import HERE, Suite, expect, expect_no_lines, run_script

# Written on 2 or 3 ranks, or 2 x 2, and loaded on another number.
RESUMED = (
    "deepspeed/zero2_ws3",
    "deepspeed/zero2_roundrobin_ws2",
    "deepspeed/zero3_ws2",
    "deepspeed/zero3_subgroups_ws2",
    "verl/verl_fsdp2_ws2",
    "verl/verl_fsdp2_hsdp_2x2",
    "accelerate/accelerate_fsdp1_sharded_ws2",
    "accelerate/accelerate_fsdp2_full_ws2",
)

WRITTEN_FOR_ACCELERATE = ("deepspeed/zero2_ws3", "verl/verl_fsdp2_ws2")


def path_of(folder):
    """A Trainer's checkpoint is one folder below its case."""
    below = folder / "checkpoint-1"
    return below if below.exists() else folder


def compared(flat, expected, names=lambda name: name):
    """Demands the tensors that the framework's library says are there."""
    tensors, _ = judge.describe_flat(flat)
    want = {names(n): d for n, d in expected.items() if names(n)}
    got = {n: d for n, d in tensors.items() if n in want}
    expect(want, "nothing is expected")
    expect_no_lines(judge.differences("tensor", got, want))


def names_in_model(tensors, is_model=False):
    """A function that gives a tensor its name in the model, if it is there."""
    has_root = not is_model and any(n.startswith("model.") for n in tensors)

    def name_in_model(name):
        root, _, rest = name.partition(".")
        if has_root:
            return rest if root == "model" else None
        return None if root == "optimizer" else name

    return name_in_model


def check_to_dcp(tool, path, tensors, out):
    tool("convert", path, out, "--to", "dcp", "--mesh", "shard=3")
    compared(judge.load_flat(str(out), "dcp"), tensors)
    expect(not judge.bad_crcs(str(out)), "wrong CRC")
    tool("diff", path, out, "--tensors-only")


def check_to_pt(tool, path, tensors, out):
    tool("consolidate", path, out)
    # States of random number generators are arrays of numpy.
    flat = judge.load_flat(str(out), "pt", weights_only=False)
    compared(flat, tensors)


def check_shards(tool, path, tensors, out, is_model):
    """The same in several files with an index."""
    shards = ("--to", "safetensors", "--max-shard-size", "2KB")
    tool("consolidate", path, out, "--part", "model", *shards)
    flat = judge.load_flat(str(out), "hf-files")
    compared(flat, tensors, names_in_model(tensors, is_model))


def check_model(tool, path, tensors, out, is_model):
    """The model alone, under its own names."""
    tool("consolidate", path, out, "--part", "model")
    flat = judge.load_flat(str(out), "safetensors")
    compared(flat, tensors, names_in_model(tensors, is_model))


def check_to_accelerate(tool, path, tensors, out):
    """accelerate merges the model, and PyTorch loads both folders."""
    tool("convert", path, out, "--to", "accelerate", "--mesh", "shard=2")
    both = {}
    for folder in ("pytorch_model_fsdp_0", "optimizer_0"):
        both.update(judge.load_flat(str(out / folder), "dcp"))
    compared(both, tensors)
    PartialState(cpu=True)
    merged = out.with_name("merged")
    merge_fsdp_weights(str(out / "pytorch_model_fsdp_0"), str(merged))
    flat = judge.load_flat(str(merged / "model.safetensors"), "safetensors")
    compared(flat, tensors, names_in_model(tensors))


def check_resume(tool, path, expected, out):
    tool("convert", path, out, "--to", "dcp", "--mesh", "shard=4")
    run_script("resume_dialect.py", out, expected)


def main():
    suite = Suite("dialects")
    source = HERE.parent / "golden" / "dialects"
    for described in sorted(source.glob("*/*.expected.json")):
        case = described.parent.name + "/" + described.name.split(".")[0]
        tensors = judge.strip_hex(json.loads(described.read_text())["tensors"])
        # A copy, because a test may see the files as symbolic links, which a
        # checkpoint must not have.
        folder = suite.fresh(described.parent.name) / "source"
        shutil.copytree(source / case, folder)
        path = path_of(folder)
        out = suite.fresh("out")
        # A model of transformers has names that begin with "model." itself.
        is_model = described.parent.name == "hf_bin"
        for title, check, name, *more in (
            ("dcp", check_to_dcp, "dcp"),
            ("pt", check_to_pt, "state.pt"),
            ("model", check_model, "model.safetensors", is_model),
            ("shards", check_shards, "shards", is_model),
        ):
            suite.case(
                f"{case} to {title}",
                check,
                suite.tool,
                path,
                tensors,
                out / name,
                *more,
            )
        if case in RESUMED:
            whole = source / f"{case}.expected.safetensors"
            suite.case(
                f"{case} resumes",
                check_resume,
                suite.tool,
                path,
                whole,
                out / "resumed",
            )
        if case in WRITTEN_FOR_ACCELERATE:
            suite.case(
                f"{case} to accelerate",
                check_to_accelerate,
                suite.tool,
                path,
                tensors,
                out / "accelerate",
            )
    suite.finish()


if __name__ == "__main__":
    main()
