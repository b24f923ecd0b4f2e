"""Writer and Reader on several ranks, each a process, over Gloo."""

import pathlib
import subprocess
import sys

import pytest

RANKS = pathlib.Path(__file__).with_name("ranks.py")


@pytest.mark.parametrize(
    ("case", "ranks"),
    [
        ("fsdp2", 2),
        ("fsdp2", 3),
        ("hsdp", 4),
        ("2d", 4),
        ("ddp", 2),
        ("fsdp1", 2),
        ("failing_rank", 2),
        ("resharding", 4),
        ("process", 2),
    ],
)
def test_ranks(case, ranks, tmp_path):
    done = subprocess.run(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *(f"--nproc_per_node={ranks}", RANKS, case, tmp_path),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout[-6000:]
