# SPDX-License-Identifier: Apache-2.0
"""TorchTitan's models on a CPU, for configurations of transformers.

TorchTitan's packages import its trainer, which needs much that no model does.
Empty ones take their place, and only the files of the models are executed, as
they are.
"""

import functools
import importlib
import importlib.util
import pathlib
import sys
import types
from unittest import mock

import torch

FAMILIES = ("llama3", "qwen3", "deepseek_v3", "gpt_oss")


def _put_in_place_of(name, **attributes):
    """A package with the files of `name`, whose own code is not executed."""
    package = types.ModuleType(name)
    package.__path__ = [str(_ROOT.joinpath(*name.split(".")))]
    vars(package).update(attributes)
    sys.modules[name] = package


def _replace_packages():
    for name in ("", ".components", ".distributed", ".protocols"):
        _put_in_place_of("torchtitan" + name)
    for family in FAMILIES:
        _put_in_place_of("torchtitan.models." + family)
    for name in ("torchtitan.config", "torchtitan.config.job_config"):
        _put_in_place_of(name, JobConfig=object)
    protocol = importlib.import_module("torchtitan.protocols.model")
    _put_in_place_of(
        "torchtitan.protocols.train_spec",
        ModelProtocol=protocol.ModelProtocol,
        BaseModelArgs=protocol.BaseModelArgs,
    )


def _count(values, bins, min, max):
    """What torch.histc gives for integers on a GPU."""
    return torch.bincount(values, minlength=bins)


_SPEC = importlib.util.find_spec("torchtitan")
_ROOT = pathlib.Path(_SPEC.submodule_search_locations[0]).parent
_replace_packages()


def _build(config, family, model, args, **values):
    """A model whose arguments are those that all have, and `values`."""
    folder = f"torchtitan.models.{family}.model"
    args = getattr(importlib.import_module(folder + ".args"), args)(
        dim=config.hidden_size,
        n_layers=config.num_hidden_layers,
        n_heads=config.num_attention_heads,
        vocab_size=config.vocab_size,
        norm_eps=config.rms_norm_eps,
        rope_theta=config.rope_parameters["rope_theta"],
        max_seq_len=config.max_position_embeddings,
        **values,
    )
    # The trainer sets this one.
    args.moe_impl = "standard"
    model = getattr(importlib.import_module(folder + ".model"), model)(args)
    return model.float().eval()


def _experts(config, **values):
    from torchtitan.models.moe import MoEArgs

    return MoEArgs(
        top_k=config.num_experts_per_tok,
        score_before_experts=False,
        use_grouped_mm=False,
        **values,
    )


def llama3(config):
    from torchtitan.models.llama3.model.args import RoPEScalingArgs

    return _build(
        config,
        "llama3",
        "Transformer",
        "TransformerModelArgs",
        n_kv_heads=config.num_key_value_heads,
        # Together: intermediate_size.
        multiple_of=config.intermediate_size,
        ffn_dim_multiplier=0.1,
        rope_scaling_args=RoPEScalingArgs(scaling_factor=1.0),
    )


def qwen3(config):
    values = {}
    if config.model_type == "qwen3_moe":
        values = dict(
            moe_enabled=True,
            moe_inter_dim=config.moe_intermediate_size,
            moe_args=_experts(
                config,
                num_experts=config.num_experts,
                num_shared_experts=0,
                score_func="softmax",
                route_norm=config.norm_topk_prob,
                load_balance_coeff=None,
            ),
        )
    return _build(
        config,
        "qwen3",
        "Qwen3Model",
        "Qwen3ModelArgs",
        n_kv_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
        hidden_dim=config.intermediate_size,
        enable_weight_tying=config.tie_word_embeddings,
        **values,
    )


def deepseek_v3(config):
    return _build(
        config,
        "deepseek_v3",
        "DeepSeekV3Model",
        "DeepSeekV3ModelArgs",
        inter_dim=config.intermediate_size,
        moe_inter_dim=config.moe_intermediate_size,
        n_dense_layers=config.first_k_dense_replace,
        moe_args=_experts(
            config,
            num_experts=config.n_routed_experts,
            num_shared_experts=config.n_shared_experts,
            score_func="sigmoid",
            route_norm=config.norm_topk_prob,
            route_scale=config.routed_scaling_factor,
            num_expert_groups=config.n_group,
            num_limited_groups=config.topk_group,
        ),
        q_lora_rank=config.q_lora_rank,
        kv_lora_rank=config.kv_lora_rank,
        qk_nope_head_dim=config.qk_nope_head_dim,
        qk_rope_head_dim=config.qk_rope_head_dim,
        v_head_dim=config.v_head_dim,
        original_seq_len=config.max_position_embeddings,
    )


def gpt_oss(config):
    return _build(
        config,
        "gpt_oss",
        "GptOssModel",
        "GptOssModelArgs",
        moe_inter_dim=config.intermediate_size,
        n_kv_heads=config.num_key_value_heads,
        head_dim=config.head_dim,
        moe_args=_experts(
            config,
            num_experts=config.num_local_experts,
            num_shared_experts=0,
            score_func="softmax",
            route_norm=True,
            gate_bias=True,
            load_balance_coeff=None,
        ),
        swiglu_limit=config.swiglu_limit,
        sliding_window_size=config.sliding_window,
        rope_factor=1.0,
    )


def logits(model, tokens):
    """On a CPU: integers are counted, and attention is not compiled."""
    from torch.nn.attention import flex_attention as flex
    from torchtitan.models import attention

    wrapper = attention.FlexAttentionWrapper
    make_mask = functools.partial(flex.create_block_mask, device="cpu")
    patch = mock.patch.object
    with (
        torch.no_grad(),
        patch(torch, "histc", _count),
        patch(wrapper, "_compiled_flex_attn", flex.flex_attention),
        patch(attention, "_compiled_create_block_mask", make_mask),
    ):
        if type(model).__name__ != "GptOssModel":
            return model(tokens)
        return model(tokens, model.get_attention_masks(tokens, None))
