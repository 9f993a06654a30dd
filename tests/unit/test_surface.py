"""What `import mirrorlake` gives, costs and starts; and pages that are made from code."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import mirrorlake as ml
from mirrorlake import errors
from tests.docs import DOCS, benchmarks_page, tables_page
from tests.kit.commands import write_conf


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


_FAULTY = """
from pathlib import Path
from mirrorlake.cli.command import Invocation
from mirrorlake.errors import MirrorlakeError
try:
    Invocation(Path("nowhere.yml"), as_json=False).mirror
except MirrorlakeError:
    pass
"""
_MIRROR = """
from pathlib import Path
from mirrorlake.cli.command import Invocation
mirror = Invocation(Path("mirror.yml"), as_json=False).mirror
"""
# What no question asks of.
_ROOMS = [
    *("mirrorlake.doctor.examination", "mirrorlake.failover.failover", "mirrorlake.mm2.takeover"),
    *("mirrorlake.maintenance.upkeep", "mirrorlake.publish.publisher", "mirrorlake.records.browse"),
    *("mirrorlake.replay.replay", "mirrorlake.verify.verifications", "urllib.request", "statistics"),
]
# It loads both.
_ASKED = """
import pyarrow as pa
frame = pa.table({"n": [1, 2]}).to_pandas()
assert pa.array(frame["n"]).to_pylist() == [1, 2]
import tornado
"""


@pytest.mark.parametrize(
    ("code", "absent", "then"),
    [
        ("import mirrorlake.cli", {"pyspark", "pandas", "ipywidgets"}, ""),
        ("import mirrorlake.daemon", {"pyarrow", "pydantic", "pyspark"}, ""),
        (_FAULTY, {"pandas", "tornado", "pyspark"}, _ASKED),
        (_MIRROR, {"duckdb", "pyspark", "sqlglot", "ipywidgets", "plotly", *_ROOMS}, ""),
    ],
    ids=["command line", "daemon, which then chooses how memory is kept", "no mirror", "mirror"],
)
def test_nothing_is_loaded_before_it_is_needed(code: str, absent: set[str], then: str, tmp_path: Path) -> None:
    write_conf(tmp_path, {"a": "a:1", "b": "b:1"}, [{"source": "a", "target": "b", "topics": "orders"}])
    code += f"\nimport sys; print({absent} & sys.modules.keys())\n{then}"
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert (done.stdout, done.returncode) == ("set()\n", 0), done.stderr


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


def test_pages_that_are_made_from_code_are_in_step_with_it() -> None:
    assert (DOCS / "tables.md").read_text() == tables_page(), "docs/tables.md is out of date; next: make docs"
    assert (DOCS / "benchmarks.md").read_text() == benchmarks_page(), "it is out of date; next: make docs"
