"""How notebooks are kept: short, clean, with assertions, and links that lead somewhere."""

from __future__ import annotations

import re
from pathlib import Path

import nbformat
import pytest

NOTEBOOKS = sorted((Path(__file__).parents[3] / "notebooks").glob("*.ipynb"))
MOST_CELLS = 20
MOST_LINES = 14
MOST_BYTES = 20_000
# An absolute path, an address, or something that only one machine or one person has.
NOT_IN_A_NOTEBOOK = re.compile(
    r"/(home|Users|tmp|root|work)/|[A-Z]:\\|://|\d+\.\d+\.\d+\.\d+|localhost|(?i:passwor[dt] *=)"
)


def cells(path: Path, kind: str) -> list[nbformat.NotebookNode]:
    return [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == kind]


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_short_and_clean(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert len(notebook.cells) <= MOST_CELLS
    assert path.stat().st_size <= MOST_BYTES
    assert notebook.metadata.kernelspec.name == "python3"
    assert len({cell.id for cell in notebook.cells}) == len(notebook.cells)
    assert any("assert " in cell.source for cell in cells(path, "code")), "what a notebook tells, it asserts"
    for cell in cells(path, "code"):
        assert not cell.outputs, f"{path.stem}: outputs are not for git; next: nbstripout {path.name}"
        assert cell.execution_count is None
        assert len(cell.source.splitlines()) <= MOST_LINES, cell.source
        assert not NOT_IN_A_NOTEBOOK.search(cell.source), cell.source


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_links_lead_somewhere(path: Path) -> None:
    text = "\n".join(cell.source for cell in cells(path, "markdown"))
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{path.name}: {target}"
