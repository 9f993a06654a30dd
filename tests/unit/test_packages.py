"""What one package uses of another stands in the other's `__init__`, or in its stub if it loads its names at their first use."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import mirrorlake

ROOT = Path(mirrorlake.__file__).parent
# Values and laws that packages share, the errors, and what stands beside the packages: each of their files is public.
SHARED = {"crash_points", "daemon", "errors", "lazy", "model", "timing", "tracking"}
# Notebooks use these.
FOR_USERS = {"mirrorlake", "mirrorlake.notebook", "mirrorlake.sandbox"}
# And nothing else of the product is known to tests/judges: a judge outlives what it judges.
FOR_JUDGES = {"mirrorlake", "mirrorlake.errors", "mirrorlake.sandbox"}


@cache
def imports() -> tuple[tuple[str, str, str], ...]:
    """Return `file, module, name` of each import from a package by another one, or by tests, jobs and tools."""
    return tuple(_imports())


def _imports() -> Iterator[tuple[str, str, str]]:
    beside = [file for folder in ("tests", "jobs") for file in sorted((ROOT.parent / folder).rglob("*.py"))]
    for file in (*sorted(ROOT.rglob("*.py")), *beside):
        place = file.relative_to(ROOT) if file.is_relative_to(ROOT) else file.relative_to(ROOT.parent)
        tree = ast.parse(file.read_text())
        packages: dict[str, str] = {}
        for node in ast.walk(tree):
            if not isinstance(node, ast.ImportFrom) or (node.module or "").split(".")[0] != "mirrorlake":
                continue
            whole = {
                one.name: f"{node.module}.{one.name}" for one in node.names if is_package(f"{node.module}.{one.name}")
            }
            packages |= whole
            if _is_elsewhere(str(node.module), place):
                yield from ((str(place), str(node.module), one.name) for one in node.names if one.name not in whole)
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                module = packages.get(node.value.id, "")
                if module and _is_elsewhere(module, place):
                    yield str(place), module, node.attr


def is_package(module: str) -> bool:
    return ROOT.joinpath(*module.split(".")[1:], "__init__.py").exists()


def _is_elsewhere(module: str, place: Path) -> bool:
    package = module.split(".")[1] if "." in module else ""
    return package not in SHARED and package not in ("", place.parts[0])


def shown() -> Iterator[tuple[str, str]]:
    """Yield each package with each name that its `__init__` imports for others."""
    for file in sorted(ROOT.rglob("__init__.py*")):
        package = ".".join(("mirrorlake", *file.parent.relative_to(ROOT).parts))
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.ImportFrom) and f"{node.module}.".startswith(f"{package}."):
                yield from ((package, one.asname or one.name) for one in node.names)


def test_no_package_reaches_into_the_files_of_another() -> None:
    reached = [found for found in imports() if (ROOT / found[0]).exists() and not is_package(found[1])]
    assert reached == [], "import it from the package, and into the `__init__` there"


def test_a_package_shows_what_is_used_and_nothing_else() -> None:
    used = {(module, name) for _, module, name in imports()}
    assert {one for one in shown() if one[0] not in FOR_USERS} - used == set(), "no package uses these: take them off"


def test_judges_know_of_the_product_what_a_user_knows() -> None:
    reached = []
    for file in sorted((ROOT.parent / "tests/judges").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text())):
            modules = [one.name for one in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom):
                inner = [one.name for one in node.names if one.name not in mirrorlake.__all__]
                modules = [str(node.module)]
                modules += [f"mirrorlake.{name}" for name in inner if node.module == "mirrorlake"]
            reached += [(file.name, one) for one in modules if one.startswith("mirrorlake") and one not in FOR_JUDGES]
            if isinstance(node, ast.Attribute) and node.attr == "setattr":
                reached.append((file.name, "setattr"))
    assert reached == [], "a judge sees brokers, commands, settings, tables and `Mirror` only, and patches nothing"
