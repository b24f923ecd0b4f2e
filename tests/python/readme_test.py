"""Runs the snippets of python/README.md, one after the other."""

import pathlib
import re
import subprocess
import sys

README = pathlib.Path(__file__).parents[2] / "python" / "README.md"
STATE = """
import torch
state = {"model": {"layers.0.weight": torch.randn(8, 4)}, "step": 7}
"""
CHECK = """
assert step == 7
"""


def test_the_snippets_run(tmp_path):
    (tmp_path / "run7").mkdir()
    (tmp_path / "run8").mkdir()
    snippets = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    assert len(snippets) >= 6
    # In a process of their own, because some change what PyTorch does.
    done = subprocess.run(
        [sys.executable, "-c", "\n".join([STATE, *snippets, CHECK])],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    assert "model.layers.0.weight" in done.stdout
