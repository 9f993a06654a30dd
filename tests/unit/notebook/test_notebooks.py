"""How notebooks are kept: one decision each, short, clean, with one import, and links that lead somewhere."""

from __future__ import annotations

import ast
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


def code(cell: nbformat.NotebookNode) -> ast.Module:
    """Return the Python of a cell, without IPython's own lines."""
    return ast.parse("\n".join(line for line in cell.source.splitlines() if not line.startswith("%")))


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_is_short_and_clean(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    assert len(notebook.cells) <= MOST_CELLS
    assert path.stat().st_size <= MOST_BYTES
    assert notebook.metadata.kernelspec.name == "python3"
    assert len({cell.id for cell in notebook.cells}) == len(notebook.cells)
    for cell in cells(path, "code"):
        assert not cell.outputs, f"{path.stem}: outputs are not for git; next: nbstripout {path.name}"
        assert cell.execution_count is None
        assert len(cell.source.splitlines()) <= MOST_LINES, cell.source
        assert not NOT_IN_A_NOTEBOOK.search(cell.source), cell.source


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_tells_one_decision(path: Path) -> None:
    first, *_ = nbformat.read(path, as_version=4).cells
    assert first.cell_type == "markdown"
    assert first.source.startswith("# ")
    headings = [line for cell in cells(path, "markdown") for line in cell.source.splitlines() if line.startswith("# ")]
    assert len(headings) == 1
    parameters = [cell for cell in cells(path, "code") if "parameters" in cell.metadata.get("tags", [])]
    assert parameters == cells(path, "code")[:1]
    for line in parameters[0].source.splitlines():
        assert re.fullmatch(r'\w+ = ("[^"]*"|\d+|True|False)(  # .+)?', line), (
            f"a plain value and a word about it: {line}"
        )


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_it_calls_and_looks_and_reads_its_parameters(path: Path) -> None:
    imports, asserted = [], 0
    for cell in cells(path, "code"):
        for node in ast.walk(code(cell)):
            assert not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda), cell.source
            if isinstance(node, ast.Import | ast.ImportFrom):
                imports.append(ast.unparse(node))
            asserted += isinstance(node, ast.Assert)
    assert imports == ["import mirrorlake as ml"], (
        "what a notebook needs and the library lacks belongs into the library"
    )
    assert asserted, "what a notebook tells, it asserts"
    [given] = [
        {word.arg for word in node.keywords}
        for cell in cells(path, "code")
        for node in ast.walk(code(cell))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "ml.params"
    ]
    named = {ast.unparse(node.targets[0]) for node in code(cells(path, "code")[0]).body if isinstance(node, ast.Assign)}
    assert given == named


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_links_lead_somewhere(path: Path) -> None:
    text = "\n".join(cell.source for cell in cells(path, "markdown"))
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if "://" not in target:
            assert (path.parent / target).exists(), f"{path.name}: {target}"
