# SPDX-License-Identifier: Apache-2.0
"""tessera.folder, with transformers as the judge."""

import gc
import os

import pytest
import torch
from transformers import AutoModelForCausalLM
from transformers import LlamaConfig
from transformers import LlamaForCausalLM

import tessera

IDS = torch.arange(8)[None]


@pytest.fixture(scope="module")
def model():
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=64,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
    )
    return LlamaForCausalLM(config).eval()


def assert_loads(folder, model):
    found = AutoModelForCausalLM.from_pretrained(folder).eval()
    assert torch.equal(found(IDS).logits, model(IDS).logits)


@pytest.fixture
def base(model, tmp_path):
    model.save_pretrained(tmp_path / "base")
    return tmp_path / "base"


def test_a_folder_of_transformers_is_taken_as_it_is(model, base):
    folder = tessera.folder(base)
    assert os.fspath(folder) == str(folder) == str(base)
    assert_loads(folder, model)
    folder.close()
    assert base.exists()


def test_a_training_checkpoint_is_loaded(model, base, tmp_path):
    optimizer = torch.optim.AdamW(model.parameters())
    model(IDS).logits.sum().backward()
    optimizer.step()
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "step": 3,
    }
    tessera.save(state, tmp_path / "step-3")
    with tessera.folder(tmp_path / "step-3", config=base) as folder:
        assert_loads(folder, model)
    assert not os.path.exists(folder)


def test_the_names_of_another_program_are_mapped(model, base, tmp_path):
    tessera.convert(
        base, tmp_path / "titan", to="dcp", map="llama-hf-to-torchtitan"
    )
    folder = tessera.folder(tmp_path / "titan", config=base / "config.json")
    assert_loads(folder, model)
    path = str(folder)
    del folder
    gc.collect()
    assert not os.path.exists(path)


def test_a_model_that_no_mapping_knows_is_refused_and_leaves_nothing(tmp_path):
    tessera.save({"a": torch.ones(2)}, tmp_path / "c")
    (tmp_path / "made").mkdir()
    with pytest.raises(tessera.Error):
        tessera.folder(tmp_path / "c", dir=tmp_path / "made")
    assert not list((tmp_path / "made").iterdir())
