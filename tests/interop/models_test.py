# SPDX-License-Identifier: Apache-2.0
"""Tiny models run after their tensors were mapped: transformers and TorchTitan
compute the same logits before and after.

Every family of `dcp-convert maps list` goes to each of its sides, in a
checkpoint of several ranks, and back into several files. Equal bytes prove that
nothing was lost; equal logits of two programs prove that the spelling is the
right one.
"""

import os
import shutil

# Nothing here is on a hub.
os.environ["HF_HUB_OFFLINE"] = "1"

import safetensors.torch
import tiny_models
import titan_models
import torch
import torch.distributed.checkpoint as dcp
import torch.nn.functional as functional
from harness import BAD_SOURCE, REFUSED, Suite, expect

# case: the model of TorchTitan 0.2 that computes the same
TITANS = {
    "llama": titan_models.llama3,
    "llama, tied": titan_models.llama3,
    "qwen3": titan_models.qwen3,
    "qwen3-moe": titan_models.qwen3,
    "deepseek-v3": titan_models.deepseek_v3,
    "gpt-oss": titan_models.gpt_oss,
}

# What TorchTitan 0.3 calls "qkv_linear.wq" and "lm_head" in a Llama.
OLD_NAMES = ["--rename", "s/qkv_linear.//", "--rename", "s/^lm_head/output/"]

# The two sides of a Llama whose queries and keys have their rows in another
# order. For the other families, torchtitan only has other names.
RUN_IN_TITAN = {"llama": ["torchtitan", "meta"]}

# The others have no linear layers whose weights are in one tensor each.
IN_FLOAT8 = {"llama", "qwen", "qwen3-moe", "mixtral", "deepseek-v3"}

# Sides of a family that a model of it does not have, and how that ends:
# TorchTitan has no Qwen 2, and Meta no tied model in several files.
REFUSALS = {
    ("qwen2", "torchtitan"): REFUSED,
    ("qwen2", "torchtitan_0_2"): REFUSED,
    ("llama, tied", "meta_mp"): BAD_SOURCE,
}

# Two programs add in another order. Two rows of keys that have changed places
# alter logits by 5.
TOLERANCE = 2e-5


def settings(side):
    if side == "meta_mp":
        return ["--set", "tp=2"]
    if side.startswith("megatron"):
        return ["--set", "vocab_multiple=64"]
    return []


class Model:
    """A case of tiny_models, saved as transformers saves it."""

    def __init__(self, suite, case):
        self.suite = suite
        self.case = case
        self.family = tiny_models.family_of(case)
        self.model = tiny_models.build(case)
        self.logits = tiny_models.logits(self.model)
        self.hub = suite.fresh("hub")
        self.model.save_pretrained(self.hub)
        expect(self.logits.std() > 0.5, "the logits say nothing")

    def convert(self, verb, src, dst, from_side, to_side, *more, **options):
        side = to_side if from_side == "hf" else from_side
        mapping = f"{self.family}-{from_side}-to-{to_side}"
        config = self.hub / "config.json"
        arguments = [verb, src, dst, "--map", mapping, "--config", config]
        self.suite.tool(*arguments, *settings(side), *more, **options)

    def come_back(self, side):
        """To ranks with `side`, and back to shards; transformers runs it."""
        work = self.suite.fresh()
        there, hub = work / "there", work / "hub"
        mesh = ["--to", "dcp", "--mesh", "dp=3"]
        self.convert("convert", self.hub, there, "hf", side, *mesh)
        shards = ["--to", "safetensors", "--max-shard-size", "50KB"]
        self.convert("convert", there, hub, side, "hf", *shards)
        shutil.copy(self.hub / "config.json", hub)
        logits = tiny_models.logits(tiny_models.load(hub))
        expect(torch.equal(logits, self.logits), "the logits are not equal")

    def come_back_in_float8(self):
        """transformers decodes the codes to what dcp-convert makes of them."""
        work = self.suite.fresh()
        ranks, codes, decoded = work / "ranks", work / "codes", work / "decoded"
        convert = self.suite.tool
        convert("convert", self.hub, ranks, "--to", "dcp", "--mesh", "dp=3")
        shards = ["--to", "safetensors", "--max-shard-size", "50KB"]
        convert("convert", ranks, codes, *shards, "--encode", "fp8-128")
        decode = ["--decode", "fp8-128", "--cast", "f32"]
        convert("convert", codes, decoded, *shards, *decode)
        # What a hub's folder would have.
        convert(
            "convert",
            self.hub,
            work / "whole",
            "--to",
            "safetensors",
            "--encode",
            "fp8-128",
        )
        shutil.copy(work / "whole" / "config.json", codes)
        shutil.copy(self.hub / "config.json", decoded)
        theirs = tiny_models.load(codes)
        ours = tiny_models.load(decoded).state_dict()
        for name, tensor in theirs.state_dict().items():
            expect(torch.equal(tensor.float(), ours[name]), name)

    def refuse(self, side, code):
        out = self.suite.fresh() / "out"
        more = ["--to", "dcp"]
        self.convert("convert", self.hub, out, "hf", side, *more, code=code)
        expect(not out.exists(), f"{out} was written")

    def run_in_memory(self):
        """The names and shapes of hf5 are those of the model in memory."""
        out = self.suite.fresh() / "hf5.safetensors"
        self.convert("convert", self.hub, out, "hf", "hf5")
        again = tiny_models.load(self.hub)
        for tensor in again.parameters():
            tensor.data.zero_()
        again.load_state_dict(safetensors.torch.load_file(out), strict=True)
        logits = tiny_models.logits(again)
        expect(torch.equal(logits, self.logits), "the logits are not equal")

    def run_in_titan(self, side):
        """TorchTitan loads the shards of ranks; its Llama has Meta's names."""
        out = self.suite.fresh() / "titan"
        more = ["--to", "dcp", "--mesh", "dp=3"]
        if side == "torchtitan":
            more += OLD_NAMES
        self.convert("convert", self.hub, out, "hf", side, *more)
        titan = TITANS[self.case](self.model.config)
        for tensor in titan.parameters():
            tensor.data.fill_(float("nan"))
        state = titan.state_dict()
        stored = dcp.FileSystemReader(out).read_metadata().state_dict_metadata
        expect(set(stored) == set(state), set(stored) ^ set(state))
        dcp.load(state, checkpoint_id=out)
        logits = titan_models.logits(titan, tiny_models.tokens())
        expect_close(logits, self.logits)

    def run_plain_gpt(self):
        """With linear layers, as nanoGPT has them."""
        out = self.suite.fresh() / "plain.safetensors"
        self.convert("convert", self.hub, out, "hf", "plain")
        tensors = safetensors.torch.load_file(out)
        logits = plain_gpt(tensors, self.model.config, tiny_models.tokens())
        expect_close(logits, self.logits)


def expect_close(logits, expected):
    distance = (logits - expected).abs().max().item()
    expect(distance <= TOLERANCE, f"logits differ by up to {distance:.1e}")


def plain_gpt(tensors, config, tokens):
    def linear(name, x):
        return functional.linear(
            x, tensors[name + ".weight"], tensors.get(name + ".bias")
        )

    def norm(name, x):
        return functional.layer_norm(
            x, x.shape[-1:], tensors[name + ".weight"], tensors[name + ".bias"]
        )

    def heads(x):
        return x.unflatten(-1, (config.n_head, -1)).transpose(1, 2)

    x = tensors["transformer.wte.weight"][tokens]
    x = x + tensors["transformer.wpe.weight"][: tokens.shape[1]]
    for i in range(config.n_layer):
        h = f"transformer.h.{i}."
        qkv = linear(h + "attn.c_attn", norm(h + "ln_1", x)).chunk(3, dim=-1)
        attended = functional.scaled_dot_product_attention(
            *map(heads, qkv), is_causal=True
        )
        x = x + linear(h + "attn.c_proj", attended.transpose(1, 2).flatten(2))
        inner = linear(h + "mlp.c_fc", norm(h + "ln_2", x))
        inner = functional.gelu(inner, approximate="tanh")
        x = x + linear(h + "mlp.c_proj", inner)
    return linear("lm_head", norm("transformer.ln_f", x))


def check(suite, case, sides):
    model = Model(suite, case)
    if model.family in IN_FLOAT8:
        suite.case(f"{case}: float8 and back", model.come_back_in_float8)
    for side in sides[model.family]:
        if side == "hf":
            continue
        if (case, side) in REFUSALS:
            suite.case(
                f"{case}: {side} is refused",
                model.refuse,
                side,
                REFUSALS[case, side],
            )
            continue
        suite.case(f"{case}: {side} and back", model.come_back, side)
        if side == "hf5":
            suite.case(f"{case}: hf5 in memory", model.run_in_memory)
        elif side == "plain":
            suite.case(f"{case}: plain runs", model.run_plain_gpt)
        elif side in RUN_IN_TITAN.get(model.family, ["torchtitan_0_2"]):
            suite.case(
                f"{case}: {side} in TorchTitan", model.run_in_titan, side
            )


def main():
    suite = Suite("models")
    maps = suite.tool.json("maps", "list")["maps"]
    sides = {family["name"]: family["sides"] for family in maps}
    suite.case(
        "every family has a model",
        lambda: expect(
            set(sides) == {tiny_models.family_of(c) for c in tiny_models.CASES},
            sorted(sides),
        ),
    )
    for case in tiny_models.CASES:
        check(suite, case, sides)
    suite.finish()


if __name__ == "__main__":
    main()
