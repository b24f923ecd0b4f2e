# SPDX-License-Identifier: Apache-2.0
"""Subinterpreters: each imports the package and opens separate checkpoints."""

import subprocess
import sys

import pytest
import torch

# _xxsubinterpreters is the module in CPython 3.11, with which these tests run.
SEVERAL = """
import _xxsubinterpreters as interpreters
import sys

import tessera

WORK = '''
import sys
sys.path[:] = {path!r}
import tessera
for _ in range(2):
    with tessera.open({checkpoint!r}) as checkpoint:
        assert checkpoint["w"].shape == (3,)
        assert dict(checkpoint.objects) == {{"step": 7}}
try:
    tessera.open({checkpoint!r} + "-nothing")
except tessera.NotFoundError as error:
    assert "nothing" in error.path
else:
    raise AssertionError("it was opened")
'''
isolated = sys.argv[2] == "isolated"
others = [interpreters.create(isolated=isolated) for _ in range(2)]
code = WORK.format(path=sys.path, checkpoint=sys.argv[1])
with tessera.open(sys.argv[1]) as here:
    for other in others:
        interpreters.run_string(other, code)
    interpreters.destroy(others[0])
    interpreters.run_string(others[1], code)
    interpreters.destroy(others[1])
    assert dict(here.objects) == {"step": 7}
"""


@pytest.mark.parametrize("sort", ["isolated", "sharing"])
def test_subinterpreters_open_checkpoints(sort, tmp_path):
    path = tmp_path / "m.pt"
    torch.save({"w": torch.ones(3), "step": 7}, path)
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", SEVERAL, path, sort],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:]
