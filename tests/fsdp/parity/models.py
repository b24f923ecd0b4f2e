# SPDX-License-Identifier: Apache-2.0
"""The models of parity_trainer in Python.

Names of parameters, the order of modules and every operator are those of
gpt.cc and of fsdp/examples/train_llama/model.cc.
"""

import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


def linear(in_features, out_features):
    return nn.Linear(in_features, out_features, bias=False)


class GptAttention(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.num_heads = num_heads
        self.qkv = linear(dim, 3 * dim)
        self.out = linear(dim, dim)

    def forward(self, x):
        batch, length, dim = x.shape
        q, k, v = (
            self.qkv(x)
            .view(batch, length, 3, self.num_heads, dim // self.num_heads)
            .permute(2, 0, 3, 1, 4)
            .unbind(0)
        )
        scale = math.sqrt(dim / self.num_heads)
        weights = torch.softmax(q.matmul(k.transpose(-1, -2)) / scale, -1)
        mixed = weights.matmul(v).transpose(1, 2)
        return self.out(mixed.reshape(batch, length, dim))


class GptBlock(nn.Module):
    def __init__(self, dim, num_heads):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3, dim))
        self.norm1 = nn.LayerNorm(dim)
        self.attn = GptAttention(dim, num_heads)
        self.norm2 = nn.LayerNorm(dim)
        self.up = linear(dim, 4 * dim)
        self.down = linear(4 * dim, dim)

    def forward(self, x):
        x = x + self.attn(self.norm1(x))
        hidden = self.down(F.gelu(self.up(self.norm2(x))))
        return x + hidden * self.scale.mean(0)


class Gpt(nn.Module):
    """Sizes that no number of ranks divides."""

    vocab_size = 37
    dim = 18
    num_layers = 2
    seq_len = 7

    def __init__(self, checkpoint_activations=False):
        super().__init__()
        self.checkpoint_activations = checkpoint_activations
        self.tok = nn.Embedding(self.vocab_size, self.dim)
        self.pos = nn.Embedding(self.seq_len, self.dim)
        self.layers = nn.ModuleList(
            GptBlock(self.dim, 2) for _ in range(self.num_layers)
        )
        self.norm = nn.LayerNorm(self.dim)
        self.head = linear(self.dim, self.vocab_size)

    def forward(self, tokens):
        h = self.tok(tokens) + self.pos(torch.arange(tokens.size(1)))
        for block in self.layers:
            if self.checkpoint_activations:
                h = checkpoint(block, h, use_reentrant=False)
            else:
                h = block(h)
        return self.head(self.norm(h))


def rotate(x, cos, sin):
    first, second = x.chunk(2, -1)
    turned = torch.cat([-second, first], -1)
    return x * cos.to(x.dtype) + turned * sin.to(x.dtype)


class LlamaAttention(nn.Module):
    def __init__(self, dim, num_heads, num_kv_heads):
        super().__init__()
        self.head_dim = dim // num_heads
        self.grouped = num_heads != num_kv_heads
        kv_dim = self.head_dim * num_kv_heads
        self.q_proj = linear(dim, dim)
        self.k_proj = linear(dim, kv_dim)
        self.v_proj = linear(dim, kv_dim)
        self.o_proj = linear(dim, dim)

    def forward(self, x, cos, sin):

        def split(projected):
            # Under tensor parallelism these are this rank's heads alone.
            shape = (x.size(0), x.size(1), -1, self.head_dim)
            return projected.view(shape).transpose(1, 2)

        q = rotate(split(self.q_proj(x)), cos, sin)
        k = rotate(split(self.k_proj(x)), cos, sin)
        v = split(self.v_proj(x))
        attended = F.scaled_dot_product_attention(
            q,
            k,
            v,
            is_causal=True,
            enable_gqa=self.grouped,
        )
        return self.o_proj(attended.transpose(1, 2).flatten(2))


class LlamaFeedForward(nn.Module):
    def __init__(self, dim, ffn_dim):
        super().__init__()
        self.gate_proj = linear(dim, ffn_dim)
        self.up_proj = linear(dim, ffn_dim)
        self.down_proj = linear(ffn_dim, dim)

    def forward(self, x):
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class LlamaBlock(nn.Module):
    def __init__(self, sizes):
        super().__init__()
        dim = sizes["dim"]
        self.input_layernorm = nn.RMSNorm(dim, eps=1e-5)
        self.self_attn = LlamaAttention(
            dim, sizes["num_heads"], sizes["num_kv_heads"]
        )
        self.post_attention_layernorm = nn.RMSNorm(dim, eps=1e-5)
        self.mlp = LlamaFeedForward(dim, sizes["ffn_dim"])

    def forward(self, x, cos, sin):
        h = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return h + self.mlp(self.post_attention_layernorm(h))


class Llama(nn.Module):
    def __init__(self, sizes, tied=False, checkpoint_activations=False):
        super().__init__()
        self.checkpoint_activations = checkpoint_activations
        self.head_dim = sizes["dim"] // sizes["num_heads"]
        self.vocab_size = sizes["vocab_size"]
        self.embed_tokens = nn.Embedding(self.vocab_size, sizes["dim"])
        self.layers = nn.ModuleList(
            LlamaBlock(sizes) for _ in range(sizes["num_layers"])
        )
        self.norm = nn.RMSNorm(sizes["dim"], eps=1e-5)
        self.lm_head = None if tied else linear(sizes["dim"], self.vocab_size)

    def rotary(self, length, like):
        """Cosines and sines, of the dtype and on the device of `like`."""
        exact = {"dtype": torch.float64, "device": like.device}
        steps = torch.arange(0, self.head_dim, 2, **exact)
        frequencies = torch.pow(10000.0, -(steps / self.head_dim))
        half = torch.outer(torch.arange(0, length, **exact), frequencies)
        angles = torch.cat([half, half], -1)
        return angles.cos().to(like.dtype), angles.sin().to(like.dtype)

    def forward(self, tokens):
        h = self.embed_tokens(tokens)
        cos, sin = self.rotary(tokens.size(1), h)
        for block in self.layers:
            if self.checkpoint_activations:
                h = checkpoint(block, h, cos, sin, use_reentrant=False)
            else:
                h = block(h, cos, sin)
        h = self.norm(h)
        if self.lm_head is None:
            return F.linear(h, self.embed_tokens.weight)
        return self.lm_head(h)


# The size of a head is not a power of two; keys have fewer heads than queries.
SMALL_LLAMA = {
    "vocab_size": 37,
    "dim": 24,
    "num_layers": 2,
    "num_heads": 4,
    "num_kv_heads": 2,
    "ffn_dim": 44,
}


def make(name, checkpoint_activations=False):
    if name == "gpt":
        return Gpt(checkpoint_activations)
    tied = {"llama": False, "llama_tied": True}[name]
    return Llama(SMALL_LLAMA, tied, checkpoint_activations)
