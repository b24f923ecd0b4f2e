# SPDX-License-Identifier: Apache-2.0
"""Writes models as transformers saves them, to convert between spellings.

    python make_model.py llama|qwen3-moe|gpt2 DIR BYTES

DIR gets config.json and model.safetensors: real names and shapes in bfloat16,
with as many layers as BYTES allow. The weights are noise.
"""

import json
import pathlib
import sys

import torch
from safetensors.torch import save_file

NOISE = 1 << 22


class Shapes:
    """Name -> shape, of a whole model and of layer {i}."""

    def __init__(self, config, layers_key, outer, layer):
        self.config, self.layers_key = config, layers_key
        self.outer, self.layer = outer, layer

    def of(self, num_bytes):
        """The shapes with about that many bytes; completes the config."""
        size = lambda shapes: sum(
            2 * torch.Size(shape).numel() for shape in shapes.values()
        )
        room = num_bytes - size(self.outer)
        count = max(1, round(room / size(self.layer)))
        self.config[self.layers_key] = count
        return self.outer | {
            name.replace("{i}", str(i)): shape
            for i in range(count)
            for name, shape in self.layer.items()
        }


def attention(hidden, queries, keys):
    at = "model.layers.{i}."
    return {
        at + "self_attn.q_proj.weight": (queries, hidden),
        at + "self_attn.k_proj.weight": (keys, hidden),
        at + "self_attn.v_proj.weight": (keys, hidden),
        at + "self_attn.o_proj.weight": (hidden, queries),
        at + "input_layernorm.weight": (hidden,),
        at + "post_attention_layernorm.weight": (hidden,),
    }


def outer(vocab, hidden):
    return {
        "model.embed_tokens.weight": (vocab, hidden),
        "model.norm.weight": (hidden,),
        "lm_head.weight": (vocab, hidden),
    }


def llama():
    """The layers of Llama 3.2 1B."""
    hidden, heads, groups, ffn, vocab = 2048, 32, 8, 8192, 32000
    config = {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "hidden_size": hidden,
        "intermediate_size": ffn,
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "head_dim": hidden // heads,
        "vocab_size": vocab,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": False,
    }
    layer = attention(hidden, hidden, hidden // heads * groups)
    for name, shape in {
        "gate_proj": (ffn, hidden),
        "up_proj": (ffn, hidden),
        "down_proj": (hidden, ffn),
    }.items():
        layer["model.layers.{i}.mlp." + name + ".weight"] = shape
    return Shapes(config, "num_hidden_layers", outer(vocab, hidden), layer)


def qwen3_moe():
    """The layers of Qwen 3 30B A3B, with half of its experts."""
    hidden, heads, groups, dim, ffn = 2048, 32, 4, 128, 768
    experts, vocab = 64, 32000
    config = {
        "model_type": "qwen3_moe",
        "architectures": ["Qwen3MoeForCausalLM"],
        "hidden_size": hidden,
        "intermediate_size": 6144,
        "moe_intermediate_size": ffn,
        "num_attention_heads": heads,
        "num_key_value_heads": groups,
        "head_dim": dim,
        "num_experts": experts,
        "num_experts_per_tok": 8,
        "vocab_size": vocab,
        "max_position_embeddings": 2048,
        "tie_word_embeddings": False,
    }
    at = "model.layers.{i}."
    layer = attention(hidden, heads * dim, groups * dim)
    layer[at + "self_attn.q_norm.weight"] = (dim,)
    layer[at + "self_attn.k_norm.weight"] = (dim,)
    layer[at + "mlp.gate.weight"] = (experts, hidden)
    for e in range(experts):
        expert = at + f"mlp.experts.{e}."
        layer[expert + "gate_proj.weight"] = (ffn, hidden)
        layer[expert + "up_proj.weight"] = (ffn, hidden)
        layer[expert + "down_proj.weight"] = (hidden, ffn)
    return Shapes(config, "num_hidden_layers", outer(vocab, hidden), layer)


def gpt2():
    """The layers of GPT-2 XL, with Conv1D weights that are [in, out]."""
    hidden, heads, vocab, positions = 1600, 25, 50257, 1024
    config = {
        "model_type": "gpt2",
        "architectures": ["GPT2LMHeadModel"],
        "n_embd": hidden,
        "n_head": heads,
        "n_positions": positions,
        "n_ctx": positions,
        "vocab_size": vocab,
    }
    layer = {}
    for name, (rows, columns) in {
        "attn.c_attn": (hidden, 3 * hidden),
        "attn.c_proj": (hidden, hidden),
        "mlp.c_fc": (hidden, 4 * hidden),
        "mlp.c_proj": (4 * hidden, hidden),
    }.items():
        layer[f"transformer.h.{{i}}.{name}.weight"] = (rows, columns)
        layer[f"transformer.h.{{i}}.{name}.bias"] = (columns,)
    for name in ("ln_1", "ln_2"):
        layer[f"transformer.h.{{i}}.{name}.weight"] = (hidden,)
        layer[f"transformer.h.{{i}}.{name}.bias"] = (hidden,)
    around = {
        "transformer.wte.weight": (vocab, hidden),
        "transformer.wpe.weight": (positions, hidden),
        "transformer.ln_f.weight": (hidden,),
        "transformer.ln_f.bias": (hidden,),
    }
    return Shapes(config, "n_layer", around, layer)


def values(shape, seed, noise):
    """Finite values that no disk compresses, at the speed of memory: a part of
    the noise that begins elsewhere for each tensor."""
    numel = torch.Size(shape).numel()
    begin = seed * 7919 % NOISE
    repeat = -(-(begin + numel) // NOISE)
    return noise.repeat(repeat)[begin : begin + numel].reshape(shape).clone()


def main():
    kind, directory, num_bytes = sys.argv[1:]
    model = {"llama": llama, "qwen3-moe": qwen3_moe, "gpt2": gpt2}[kind]()
    noise = torch.randn(NOISE, generator=torch.Generator().manual_seed(1))
    noise = noise.bfloat16()
    tensors = {
        name: values(shape, seed, noise)
        for seed, (name, shape) in enumerate(model.of(int(num_bytes)).items())
    }
    path = pathlib.Path(directory)
    path.mkdir(parents=True)
    model.config["dtype"] = "bfloat16"
    (path / "config.json").write_text(json.dumps(model.config, indent=1))
    save_file(tensors, path / "model.safetensors", {"format": "pt"})


if __name__ == "__main__":
    main()
