"""What `import mirrorlake` gives, costs and starts; and pages that are made from code."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from pathlib import Path

import mirrorlake as ml
from mirrorlake import errors
from tests.docs import DOCS, UNIT, benchmarks_page, systemd_unit_file, tables_page


def test_public_names_are_sorted_and_there() -> None:
    assert sorted(ml.__all__) == ml.__all__ == dir(ml)
    assert {"charts", "show", "load", "__version__"} <= set(ml.__all__)
    for name in ml.__all__:
        assert getattr(ml, name) is not None


def test_importing_starts_nothing() -> None:
    code = (
        "import sys, logging, json; import mirrorlake;"
        "print(json.dumps([m for m in ('pyspark', 'confluent_kafka', 'pyarrow', 'pydantic') if m in sys.modules]"
        "+ [str(h) for h in logging.getLogger().handlers + logging.getLogger('mirrorlake').handlers]))"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(result.stdout) == []


def test_the_command_line_loads_no_spark_before_a_command_needs_it() -> None:
    code = "import sys, mirrorlake.cli; print([m for m in ('pyspark', 'pandas', 'ipywidgets') if m in sys.modules])"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "[]\n"


def test_the_public_api_has_docstrings() -> None:
    """The names of the package, and the values that methods of `Mirror` return."""
    package = Path(ml.__file__).parent
    trees = {path: ast.parse(path.read_text()) for path in package.rglob("*.py")}
    classes = {node.name: node for tree in trees.values() for node in tree.body if isinstance(node, ast.ClassDef)}
    methods = [node for path, tree in trees.items() if path.parent.name == "mirror" for node in ast.walk(tree)]
    returned = [ast.unparse(node.returns) for node in methods if isinstance(node, ast.FunctionDef) and node.returns]
    public = {*ml.__all__, *re.findall(r"\w+", " ".join(returned))} & set(classes)
    assert {"Mirror", "VerifyReport", "LandResult"} <= public
    for name in public:
        own = [node for node in classes[name].body if isinstance(node, ast.FunctionDef) and node.name[0] != "_"]
        bare = [node.name for node in [classes[name], *own] if not ast.get_docstring(node)]
        assert not bare, f"{name}: {bare} need a docstring"


def test_the_error_tree_that_is_drawn_is_the_one_that_is_there() -> None:
    classes = [value for value in vars(errors).values() if isinstance(value, type) and issubclass(value, Exception)]
    for error in classes:
        assert error.__name__ in (errors.__doc__ or ""), f"{error.__name__} is missing in the drawn tree"
        assert error.exit_code in (2, 3, 4)


def test_an_error_names_cause_consequence_and_next_step() -> None:
    error = errors.SourceGap("gone", consequence="stopped", remedy="mirrorlake plan", gaps=(1,))
    assert str(error) == "gone; stopped. Next: mirrorlake plan"
    assert error.as_dict()["exit_code"] == 3
    assert error.gaps == (1,)  # type: ignore[attr-defined]


def test_the_page_of_tables_is_in_step_with_the_schemas() -> None:
    assert (DOCS / "tables.md").read_text() == tables_page(), "docs/tables.md is out of date; next: make docs"
    assert UNIT.read_text() == systemd_unit_file(), f"{UNIT.name} is out of date; next: make docs"


def test_the_page_of_benchmarks_is_in_step_with_the_figures() -> None:
    assert (DOCS / "benchmarks.md").read_text() == benchmarks_page(), (
        "docs/benchmarks.md is out of date; next: make docs"
    )
