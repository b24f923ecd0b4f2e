# SPDX-License-Identifier: Apache-2.0
"""Runs the snippets in python/README.md, one after the other."""

import pathlib
import re
import subprocess
import sys

from conftest import requires_torch
from daemon import Daemon
from daemon import make_certificate

README = pathlib.Path(__file__).parents[2] / "python" / "README.md"
STATE = """
import torch
state = {"model": {"layers.0.weight": torch.randn(8, 4)}, "step": 7}
"""
CHECK = """
assert step == 7
"""


@requires_torch((2, 9), "async_staging")
def test_the_snippets_run(tmp_path):
    snippets = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    assert len(snippets) >= 9
    daemon = Daemon(tmp_path)
    code = "\n".join([STATE, *snippets, CHECK])
    # The daemon has another address and root here.
    code = code.replace("trainer-7:7420", daemon.address)
    code = code.replace("/srv/", f"{daemon.root}/")
    (daemon.root / "run7").mkdir()
    (daemon.root / "run8").mkdir()
    make_certificate(daemon.root)[0].rename(daemon.root / "ca.pem")
    (daemon.root / "token").write_text("secret")
    # In a separate process, because some change PyTorch's behaviour.
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=daemon.root,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    daemon.stop()
    assert done.returncode == 0, done.stdout[-4000:]
    assert "model.layers.0.weight" in done.stdout
    assert "succeeded" in done.stdout
