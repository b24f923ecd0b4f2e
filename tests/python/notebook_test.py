# SPDX-License-Identifier: Apache-2.0
"""Executes the notebook in examples/notebook in a copy, with a separate
kernel."""

import json
import pathlib

import nbclient
import nbformat
import pytest

import tessera

NOTEBOOK = (
    pathlib.Path(__file__).parents[2]
    / "examples/notebook/look_into_a_checkpoint.ipynb"
)


@pytest.fixture
def executed(tmp_path, monkeypatch):
    """The outputs of the notebook's cells, by cell id."""
    # Files that Jupyter and IPython write about themselves stay in the test.
    for name in ("IPYTHONDIR", "JUPYTER_CONFIG_DIR", "JUPYTER_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / "jupyter"))
    monkeypatch.setenv("JUPYTER_RUNTIME_DIR", str(tmp_path / "jupyter"))
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    client = nbclient.NotebookClient(
        notebook, timeout=300, resources={"metadata": {"path": str(tmp_path)}}
    )
    with client.setup_kernel():
        # Twice, because a notebook's reader runs it again.
        for _ in range(2):
            for index, cell in enumerate(notebook.cells):
                client.execute_cell(cell, index)
    return {
        cell.id: cell.outputs for cell in notebook.cells if "outputs" in cell
    }


def shown(outputs, kind):
    """The cells' output with this MIME type, joined."""
    return "".join(
        output.data.get(kind, "") for output in outputs if "data" in output
    )


def test_the_notebook_runs_and_shows_the_checkpoint(executed, tmp_path):
    html = shown(executed["open"], "text/html")
    assert "<td>model.0.weight</td>" in html
    assert html.count("<svg") == 4
    assert html.count("<rect") == 16
    printed = "".join(output.text for output in executed["print"])
    assert "model.0.weight  float32" in printed
    assert "'step': 1000" in shown(executed["objects"], "text/plain")
    assert "torch.bfloat16" in shown(executed["torch"], "text/plain")
    assert "bfloat16" in shown(executed["convert"], "text/html")
    verified = "".join(output.text for output in executed["verify"])
    assert verified.count("is sound") == 2
    assert shown(executed["diff"], "text/plain") == "True"
    assert len(tessera.open(tmp_path / "run7/model.safetensors")) == 4


def test_the_notebook_is_stored_without_outputs():
    for cell in json.loads(NOTEBOOK.read_text())["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            assert cell["execution_count"] is None
