"""Runs the snippets of python/README.md, one after the other."""

import pathlib
import re

import torch

README = pathlib.Path(__file__).parents[2] / "python" / "README.md"


def test_the_snippets_run(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run7").mkdir()
    (tmp_path / "run8").mkdir()
    snippets = re.findall(r"```python\n(.*?)```", README.read_text(), re.S)
    assert len(snippets) >= 5
    names = {
        "state": {
            "model": {"layers.0.weight": torch.randn(8, 4)},
            "step": 7,
        }
    }
    for snippet in snippets:
        exec(compile(snippet, "README.md", "exec"), names)
    assert "model.layers.0.weight" in capsys.readouterr().out
    assert names["step"] == 7
