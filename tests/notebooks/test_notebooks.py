"""Every notebook runs from top to bottom, and is kept the way notebooks should be."""

from __future__ import annotations

import os
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

FOLDER = Path(__file__).parents[2] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_a_story(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert notebook.cells[0].cell_type == "markdown"
    assert len(code) <= 15
    assert any("parameters" in cell.metadata.get("tags", []) for cell in code)
    assert notebook.metadata.kernelspec.name == "python3"
    for cell in code:
        assert not cell.outputs
        assert cell.execution_count is None
        assert len(cell.source.splitlines()) <= 12
        for word in ("def ", "class ", "/home/", "/tmp/", "confluent_kafka", "pyspark"):
            assert word not in cell.source


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs_from_top_to_bottom(path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(FOLDER.parent), os.environ.get("PYTHONPATH", "")]))
    notebook = nbformat.read(path, as_version=4)
    client = NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources={"metadata": {"path": str(tmp_path)}}
    )
    client.execute()
    html = [
        out["data"]["text/html"]
        for cell in notebook.cells
        for out in cell.get("outputs", [])
        if "text/html" in out.get("data", {})
    ]
    assert any("✓ equal" in text for text in html), "the proof is not shown as a table"
