# SPDX-License-Identifier: Apache-2.0
"""Converts a model with another program's own code, and prints how long each
part took.

    python map_rivals.py KIND SRC DST CONFIG

CONFIG is the model's config.json. Prints JSON: seconds to import, to convert,
and to sync the result, which these programs do not do. Kinds:

  titan_from_hf, titan_to_hf   TorchTitan's scripts/checkpoint_conversion, with
                               its adapters; the model's memory is only allocated
  bridge_from_hf, bridge_to_hf Megatron-Bridge, see map_bridge.py
  load_experts, save_experts   transformers' from_pretrained and save_pretrained,
                               which stack the experts and unstack them
  load_conv1d, save_conv1d     the same, and nanoGPT's loop, which transposes
"""

import json
import os
import pathlib
import shutil
import sys
import time

begin = time.monotonic()

import torch
import torch.distributed.checkpoint as dcp
from torch.distributed.checkpoint import (
    HuggingFaceStorageReader,
    HuggingFaceStorageWriter,
)

# The weights that nanoGPT transposes.
CONV1D = ("c_attn.weight", "c_proj.weight", "c_fc.weight")


def read_config(path):
    return json.loads(pathlib.Path(path).read_text())


def import_titan():
    """TorchTitan imports a class that PyTorch 2.11 lacks, for parallelism over
    several processes; no conversion uses it."""
    import torch.distributed.fsdp as fsdp

    if not hasattr(fsdp, "DataParallelMeshDims"):
        fsdp.DataParallelMeshDims = type("DataParallelMeshDims", (), {})
    import torchtitan.components.checkpointer
    import torchtitan.models.llama3
    import torchtitan.models.qwen3


def titan_llama(hf):
    from torchtitan.models import llama3
    from torchtitan.models.common.rope import ComplexRoPE
    from torchtitan.models.llama3.state_dict_adapter import (
        Llama3StateDictAdapter,
    )

    dim, vocab = hf["hidden_size"], hf["vocab_size"]
    layers = llama3._build_llama3_layers(
        n_layers=hf["num_hidden_layers"],
        dim=dim,
        n_heads=hf["num_attention_heads"],
        n_kv_heads=hf["num_key_value_heads"],
        hidden_dim=hf["intermediate_size"],
        attn_backend="flex",
        rope=ComplexRoPE.Config(dim=hf["head_dim"], max_seq_len=2048),
    )
    config = llama3.Llama3Model.Config(
        dim=dim,
        vocab_size=vocab,
        tok_embeddings=llama3.Embedding.Config(
            num_embeddings=vocab, embedding_dim=dim
        ),
        norm=llama3.RMSNorm.Config(normalized_shape=dim),
        lm_head=llama3.Linear.Config(in_features=dim, out_features=vocab),
        layers=layers,
    )
    return config, Llama3StateDictAdapter


def titan_qwen(hf):
    from torchtitan.models import qwen3
    from torchtitan.models.common.rope import CosSinRoPE
    from torchtitan.models.qwen3.state_dict_adapter import Qwen3StateDictAdapter

    dim, vocab = hf["hidden_size"], hf["vocab_size"]
    layers = qwen3._build_qwen3_moe_layers(
        n_layers=hf["num_hidden_layers"],
        dim=dim,
        n_heads=hf["num_attention_heads"],
        n_kv_heads=hf["num_key_value_heads"],
        head_dim=hf["head_dim"],
        moe_hidden_dim=hf["moe_intermediate_size"],
        num_experts=hf["num_experts"],
        top_k=hf["num_experts_per_tok"],
        moe_comm_backend="standard",
        attn_backend="flex",
        rope=CosSinRoPE.Config(dim=hf["head_dim"], max_seq_len=2048),
    )
    config = qwen3.Qwen3Model.Config(
        vocab_size=vocab,
        dim=dim,
        norm=qwen3._qwen3_norm(dim),
        tok_embeddings=qwen3.Embedding.Config(
            num_embeddings=vocab, embedding_dim=dim
        ),
        lm_head=qwen3.Linear.Config(in_features=dim, out_features=vocab),
        layers=layers,
    )
    return config, Qwen3StateDictAdapter


def titan(config_path):
    """The adapter of the model, and its state in memory of no value."""
    from torchtitan.components.checkpointer import ModelWrapper

    hf = read_config(config_path)
    make = {"llama": titan_llama, "qwen3_moe": titan_qwen}[hf["model_type"]]
    config, adapter = make(hf)
    torch.set_default_dtype(torch.bfloat16)
    with torch.device("meta"):
        model = config.build()
    model = ModelWrapper(model.to_empty(device="cpu"))
    # Tensors that the Hub's files lack are not converted.
    state = {
        name: tensor
        for name, tensor in model.state_dict().items()
        if not name.endswith("expert_bias_E")
    }
    return adapter(config, None), state


@torch.inference_mode()
def titan_from_hf(src, dst, config):
    adapter, state = titan(config)
    hub = adapter.to_hf(state)
    dcp.load(hub, storage_reader=HuggingFaceStorageReader(path=src))
    dcp.save(adapter.from_hf(hub), checkpoint_id=dst)


@torch.inference_mode()
def titan_to_hf(src, dst, config):
    adapter, state = titan(config)
    dcp.load(state, checkpoint_id=src)
    writer = HuggingFaceStorageWriter(
        path=dst,
        save_distributed=True,
        fqn_to_index_mapping=adapter.fqn_to_index_mapping,
        enable_consolidation=True,
        thread_count_consolidation=5,
    )
    dcp.save(adapter.to_hf(state), storage_writer=writer)


def import_bridge():
    import map_bridge

    map_bridge.start()


def bridge_from_hf(src, dst, config):
    import map_bridge

    map_bridge.from_hf(src, dst)


def bridge_to_hf(src, dst, config):
    import map_bridge

    map_bridge.to_hf(src, dst, config)


def import_transformers():
    import safetensors.torch
    import transformers

    transformers.logging.set_verbosity_error()
    for name in ("LlamaForCausalLM", "Qwen3MoeForCausalLM", "GPT2LMHeadModel"):
        getattr(transformers, name)


def model_class(config):
    import transformers

    return getattr(transformers, read_config(config)["architectures"][0])


def read_pretrained(src, config):
    return model_class(config).from_pretrained(src, dtype=torch.bfloat16)


def write_file(state, dst):
    from safetensors.torch import save_file

    save_file(state, os.path.join(dst, "model.safetensors"))


def write_pretrained(state, dst, config):
    """`state` in the names and shapes of transformers' memory."""
    import transformers

    settings = transformers.AutoConfig.from_pretrained(os.path.dirname(config))
    with torch.device("meta"):
        model = model_class(config)(settings)
    model.load_state_dict(state, assign=True, strict=False)
    model.tie_weights()
    model.save_pretrained(dst)


def read_file(src):
    from safetensors.torch import load_file

    return load_file(os.path.join(src, "model.safetensors"))


def load_experts(src, dst, config):
    write_file(read_pretrained(src, config).state_dict(), dst)


def save_experts(src, dst, config):
    write_pretrained(read_file(src), dst, config)


def transposed(state):
    return {
        name: tensor.t().contiguous() if name.endswith(CONV1D) else tensor
        for name, tensor in state.items()
    }


def load_conv1d(src, dst, config):
    state = transposed(read_pretrained(src, config).state_dict())
    # Tied, and two names for one memory are not written.
    state["lm_head.weight"] = state["lm_head.weight"].clone()
    write_file(state, dst)


def save_conv1d(src, dst, config):
    write_pretrained(transposed(read_file(src)), dst, config)


def sync(path):
    """Also removes files that are not part of the result: the merged shards."""
    shutil.rmtree(path / "sharded", ignore_errors=True)
    for file in [path, *path.iterdir()]:
        fd = os.open(file, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


def main():
    kind, src, dst, config = sys.argv[1:]
    os.makedirs(dst)
    if kind.startswith("titan"):
        import_titan()
    elif kind.startswith("bridge"):
        import_bridge()
    else:
        import_transformers()
    imported = time.monotonic()
    output = sys.stdout
    sys.stdout = sys.stderr  # output on the way
    convert = {
        function.__name__: function
        for function in (
            titan_from_hf,
            titan_to_hf,
            bridge_from_hf,
            bridge_to_hf,
            load_experts,
            save_experts,
            load_conv1d,
            save_conv1d,
        )
    }[kind]
    convert(src, dst, config)
    sys.stdout = output
    converted = time.monotonic()
    sync(pathlib.Path(dst))
    print(
        json.dumps(
            {
                "import": imported - begin,
                "convert": converted - imported,
                "sync": time.monotonic() - converted,
            }
        )
    )


if __name__ == "__main__":
    main()
