# SPDX-License-Identifier: Apache-2.0
"""mypy's findings for the snippets in python/README.md, and for our types."""

import re
import subprocess
import sys

from conftest import requires_torch
from readme_test import README

BEFORE = """
from typing import Any, Dict
import torch
tensor = torch.ones(2)
state: Dict[str, Any] = {}
"""
# PyTorch does not export names that everybody imports, and async_save returns
# one of two classes; tqdm has no types.
OF_OTHERS = re.compile(
    'Module "torch.distributed.checkpoint" does not explicitly export'
    '|"AsyncSaveResponse|AsyncSaveResponse"|"tqdm"'
)
CALLS = """
import tessera
import tessera.client

checkpoint = tessera.open("c")
weight = checkpoint["w"]
reveal_type(weight[2:7])
reveal_type(weight.torch())
reveal_type(checkpoint.to_torch())
for name, tensor in checkpoint.items():
    reveal_type(tensor)
for name, array in checkpoint.items(memory="1GiB"):
    reveal_type(array)
for name, part in checkpoint.items("1GiB", "torch"):
    reveal_type(part)
with tessera.client.Client("a:1") as client:
    reveal_type(client.verify("p").wait())
tessera.convert("a", "b", mesh={"shard": 8}, include=["a"], max_memory=3)
tessera.convert("a", "b", overwrite="yes")
tessera.convert("a", "b", bogus=1)
"""
REVEALED = [
    *(
        "numpy.ndarray",
        "torch._tensor.Tensor",
        "dict[str, torch._tensor.Tensor]",
    ),
    *("tessera._checkpoint.Tensor", "numpy.ndarray", "torch._tensor.Tensor"),
    "tessera.client._results.VerifyReport",
]


def mypy(code, folder):
    """The lines that mypy --strict prints for a program."""
    path = folder / "program.py"
    path.write_text(code)
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--no-color-output",
            path.name,
        ],
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    lines = done.stdout.splitlines()
    assert done.returncode in (0, 1), done.stdout
    return [line for line in lines if line.startswith(path.name)]


@requires_torch((2, 9), "AsyncSaveResponse")
def test_the_snippets_have_types(tmp_path):
    snippets = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    said = mypy("\n".join([BEFORE, *snippets]), tmp_path)
    errors = [line for line in said if ": error: " in line]
    assert not [line for line in errors if not OF_OTHERS.search(line)]


def test_types_of_results_are_known(tmp_path):
    said = mypy(CALLS, tmp_path)
    revealed = [line for line in said if "Revealed type" in line]
    assert len(revealed) == len(REVEALED), said
    for line, kind in zip(revealed, REVEALED):
        assert f'"{kind}' in line
    errors = [line for line in said if ": error: " in line]
    assert len(errors) == 2, said
    assert '"overwrite"' in errors[0] and '"bogus"' in errors[1]
