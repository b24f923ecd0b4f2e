# SPDX-License-Identifier: Apache-2.0
"""Training frameworks save and resume with Tessera, on two ranks over Gloo."""

import pathlib

import pytest
import torch
from torch.distributed.checkpoint._nested_dict import flatten_state_dict
from torch.distributed.checkpoint.format_utils import dcp_to_torch_save

import tessera
from conftest import run_ranks

RANKS = pathlib.Path(__file__).with_name("adapters_ranks.py")


def check_checkpoint(path, tmp_path):
    """Tessera wrote it, each byte is as written, and PyTorch reads the same."""
    assert list(path.glob(".digests-*"))
    verified = tessera.verify(path)
    assert verified["ok"]
    assert verified["num_items_unchecked"] == 0
    dcp_to_torch_save(path, tmp_path / "theirs.pt")
    theirs, _ = flatten_state_dict(
        torch.load(tmp_path / "theirs.pt", weights_only=False)
    )
    ours = tessera.open(path).to_torch()
    assert ours.keys() == {
        name for name, value in theirs.items() if torch.is_tensor(value)
    }
    for name, tensor in ours.items():
        assert tensor.dtype == theirs[name].dtype, name
        assert torch.equal(tensor, theirs[name]), name


@pytest.mark.parametrize(
    ("case", "checkpoints"),
    [
        ("accelerate", 2),
        ("transformers", 4),
        ("lightning", 6),
        ("torchtitan", 9),
    ],
)
def test_a_training_resumes_bit_for_bit(case, checkpoints, tmp_path):
    folder = tmp_path / "run"
    folder.mkdir()
    run_ranks(2, RANKS, case, folder)
    found = [index.parent for index in folder.rglob(".metadata")]
    assert len(found) == checkpoints
    for path in found:
        check_checkpoint(path, tmp_path)
