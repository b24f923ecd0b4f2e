# SPDX-License-Identifier: Apache-2.0
"""Checkpoints of other frameworks: PyTorch loads what dcp-convert makes of
them, bit for bit, and its FSDP2 resumes from it on other ranks."""

import json
import shutil

import torch
from accelerate import Accelerator
from accelerate.state import PartialState
from accelerate.utils import merge_fsdp_weights
from safetensors.torch import save_file
from torch.distributed.checkpoint.state_dict import get_state_dict

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

# The optimizers of all cases got model.parameters(), and some of the cases lack
# the shapes of their weights.
OPTIONS = ("--optimizer-names", "order", "--allow-losses")

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
    tool("convert", path, out, "--to", "dcp", "--mesh", "shard=3", *OPTIONS)
    compared(judge.load_flat(str(out), "dcp"), tensors)
    expect(not judge.bad_crcs(str(out)), "wrong CRC")
    tool("diff", path, out, "--tensors-only", *OPTIONS[:2])


def check_to_pt(tool, path, tensors, out):
    tool("consolidate", path, out, *OPTIONS)
    # States of random number generators are arrays of numpy.
    flat = judge.load_flat(str(out), "pt", weights_only=False)
    compared(flat, tensors)


def check_shards(tool, path, tensors, out, is_model):
    """The same in several files with an index."""
    shards = ("--to", "safetensors", "--max-shard-size", "2KB")
    tool("consolidate", path, out, "--part", "model", *shards, *OPTIONS)
    flat = judge.load_flat(str(out), "hf-files")
    compared(flat, tensors, names_in_model(tensors, is_model))


def check_model(tool, path, tensors, out, is_model):
    """The model alone, under its own names."""
    tool("consolidate", path, out, "--part", "model", *OPTIONS)
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


def make_accelerate(folder, safe):
    """A step of training of two equal layers, as accelerate saves it, and what
    PyTorch calls its tensors."""
    torch.manual_seed(5)
    model = torch.nn.Sequential(torch.nn.Linear(3, 3), torch.nn.Linear(3, 3))
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.125)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    accelerator = Accelerator(cpu=True)
    model, optimizer, scheduler = accelerator.prepare(
        model, optimizer, scheduler
    )
    accelerator.backward(model(torch.randn(4, 3)).square().sum())
    optimizer.step()
    scheduler.step()
    accelerator.save_state(str(folder), safe_serialization=safe)
    named = get_state_dict(model, optimizer.optimizer)
    state = {"model": named[0], "optimizer": named[1]}
    return state, judge.strip_hex(judge.describe_flat(flatten(state))[0])


def flatten(state):
    return judge.flatten_state_dict(state)[0]


def check_accelerate(tool, folder, out, safe):
    """save_state's default is read whole, with the names that PyTorch has."""
    state, tensors = make_accelerate(folder, safe)
    expect(
        b"cannot be told apart" in tool("verify", folder).stderr,
        "that the optimizer has no names is not said",
    )
    order = ["--optimizer-names", "order"]
    if safe:
        # safetensors have no order.
        torch.save(state["model"], folder / "order.pt")
        order += ["--like", folder / "order.pt"]
    tool("convert", folder, out, "--to", "dcp", *order)
    compared(judge.load_flat(str(out), "dcp"), tensors)
    flat = judge.load_flat(str(out), "dcp")
    expect(flat["extra.scheduler.last_epoch"] == 1, "the scheduler is lost")
    expect("extra.random_states.step" in flat, "random states are lost")
    whole = out.with_name("whole.safetensors")
    save_file(
        {
            name: value.contiguous().clone()
            for name, value in flatten(state).items()
            if isinstance(value, torch.Tensor)
        },
        whole,
    )
    run_script("resume_dialect.py", out, whole)


def main():
    suite = Suite("dialects")
    for safe in (True, False):
        fresh = suite.fresh(f"accelerate_{safe}")
        suite.case(
            f"accelerate's save_state, safe_serialization={safe}",
            check_accelerate,
            suite.tool,
            fresh / "source",
            fresh / "out",
            safe,
        )
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
