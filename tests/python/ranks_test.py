# SPDX-License-Identifier: Apache-2.0
"""Writer and Reader on several ranks, each a process, over Gloo."""

import pathlib

import pytest

from conftest import requires_torch
from conftest import run_ranks

RANKS = pathlib.Path(__file__).with_name("ranks.py")
HSDP = requires_torch((2, 5), "get_state_dict for a mesh of two dimensions")
TWO_DIMS = requires_torch((2, 8), "FSDP2 of tensors that are sharded unevenly")
ALONE = requires_torch((2, 7), "no_dist of dcp.load")
PROCESS = requires_torch((2, 7), "async_save in another process")


@pytest.mark.parametrize(
    ("case", "ranks"),
    [
        ("fsdp2", 2),
        ("fsdp2", 3),
        pytest.param("hsdp", 4, marks=HSDP),
        pytest.param("2d", 4, marks=TWO_DIMS),
        ("ddp", 2),
        ("fsdp1", 2),
        ("failing_rank", 2),
        ("resharding", 4),
        pytest.param("alone", 2, marks=ALONE),
        pytest.param("process", 2, marks=PROCESS),
    ],
)
def test_ranks(case, ranks, tmp_path):
    run_ranks(ranks, RANKS, case, tmp_path)
