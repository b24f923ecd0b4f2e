# SPDX-License-Identifier: Apache-2.0
"""Tiny models of transformers, whose random weights depend on their names."""

import zlib

import torch
import transformers

_LLAMA = dict(
    hidden_size=32,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    intermediate_size=48,
    vocab_size=50,
    max_position_embeddings=64,
)
_EXPERTS = dict(num_experts_per_tok=2)
_LATENT = dict(
    num_hidden_layers=3,
    num_key_value_heads=4,
    moe_intermediate_size=20,
    n_routed_experts=8,
    n_shared_experts=1,
    n_group=4,
    topk_group=2,
    q_lora_rank=24,
    kv_lora_rank=16,
    qk_nope_head_dim=8,
    qk_rope_head_dim=4,
    v_head_dim=6,
    first_k_dense_replace=1,
    rms_norm_eps=1e-6,
    # save_pretrained leaves out layers that predict further tokens.
    num_mtp_layers=0,
)

# case: family of mappings, configuration of transformers, its arguments
CASES = {
    "llama": ("llama", "LlamaConfig", dict(tie_word_embeddings=False)),
    "llama, tied": ("llama", "LlamaConfig", dict(tie_word_embeddings=True)),
    "qwen2": ("qwen", "Qwen2Config", dict(tie_word_embeddings=False)),
    "qwen3": (
        "qwen",
        "Qwen3Config",
        dict(head_dim=12, tie_word_embeddings=True),
    ),
    "qwen3-moe": (
        "qwen3-moe",
        "Qwen3MoeConfig",
        dict(
            _EXPERTS,
            head_dim=12,
            moe_intermediate_size=20,
            num_experts=4,
            norm_topk_prob=True,
        ),
    ),
    "mixtral": (
        "mixtral",
        "MixtralConfig",
        dict(_EXPERTS, num_local_experts=4),
    ),
    "deepseek-v3": (
        "deepseek-v3",
        "DeepseekV3Config",
        dict(_EXPERTS, **_LATENT),
    ),
    "gpt2": (
        "gpt2",
        "GPT2Config",
        dict(n_embd=32, n_layer=2, n_head=4, n_positions=64),
    ),
    "gpt-oss": (
        "gpt-oss",
        "GptOssConfig",
        dict(
            _EXPERTS,
            head_dim=12,
            num_local_experts=4,
            sliding_window=5,
            rope_parameters={"rope_type": "default", "rope_theta": 150000.0},
        ),
    ),
}


def family_of(case):
    return CASES[case][0]


def build(case):
    """The model, in float32."""
    _, config, values = CASES[case]
    if config != "GPT2Config":
        values = {**_LLAMA, **values}
    config = getattr(transformers, config)(**{"vocab_size": 50, **values})
    model = transformers.AutoModelForCausalLM.from_config(
        config, dtype=torch.float32
    )
    generator = torch.Generator().manual_seed(zlib.crc32(case.encode()))
    tensors = dict(model.named_parameters())
    # The bias of experts; the frequencies of positions stay.
    tensors |= {k: v for k, v in model.named_buffers() if "bias" in k}
    with torch.no_grad():
        for name in sorted(tensors):
            is_norm = "norm" in name or ".ln_" in name
            noise = torch.randn(tensors[name].shape, generator=generator) / 4
            tensors[name].copy_(noise + (1 if is_norm else 0))
    return model.eval()


def tokens():
    """Two sequences of 24 tokens."""
    generator = torch.Generator().manual_seed(1)
    return torch.randint(50, (2, 24), generator=generator)


def logits(model):
    with torch.no_grad():
        return model(tokens()).logits


def load(folder):
    """The model of a folder, of which every tensor is used and found."""
    model, report = transformers.AutoModelForCausalLM.from_pretrained(
        folder, dtype=torch.float32, output_loading_info=True
    )
    wrong = {kind: names for kind, names in report.items() if names}
    assert not wrong, wrong
    return model.eval()
