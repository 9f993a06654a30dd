"""The faces of the rooms: what one room uses of another stands in the other's `__init__`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import pytest

import mirrorlake

ROOT = Path(mirrorlake.__file__).parent
# Values and laws that rooms share, the errors, and the names of before: each of their files is public.
SHARED = {"errors", "face", "model", "renamed"}
FACES = sorted(".".join(("mirrorlake", *stub.parent.relative_to(ROOT).parts)) for stub in ROOT.rglob("__init__.pyi"))


@cache
def imports() -> tuple[tuple[str, str, str], ...]:
    """Return `file, module, name` of each import of a room from another one."""
    return tuple(_imports())


def _imports() -> Iterator[tuple[str, str, str]]:
    for file in sorted(ROOT.rglob("*.py")):
        place = file.relative_to(ROOT)
        tree = ast.parse(file.read_text())
        # A room that is imported as it stands is loaded where a name of it is used.
        rooms: dict[str, str] = {}
        for node in ast.walk(tree):
            if not isinstance(node, ast.ImportFrom) or (node.module or "").split(".")[0] != "mirrorlake":
                continue
            whole = {name.name for name in node.names if f"{node.module}.{name.name}" in FACES}
            rooms |= {name: f"{node.module}.{name}" for name in whole}
            names = [name.name for name in node.names if name.name not in whole]
            if _is_elsewhere(str(node.module), place):
                yield from ((str(place), str(node.module), name) for name in names)
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
                module = rooms.get(node.value.id, "")
                if module and _is_elsewhere(module, place) and node.attr in import_module(module).__all__:
                    yield str(place), module, node.attr


def _is_elsewhere(module: str, place: Path) -> bool:
    room = module.split(".")[1] if "." in module else ""
    return room not in SHARED and room not in ("", place.parts[0])


def test_no_room_reaches_into_the_files_of_another() -> None:
    reached = [found for found in imports() if not (ROOT / Path(*found[1].split(".")[1:]) / "__init__.py").exists()]
    assert reached == [], "import it from the package, and list it in the `__init__.pyi` there"


def test_a_face_shows_what_is_used_and_nothing_else() -> None:
    for module, name in sorted({(module, name) for _, module, name in imports()}):
        assert hasattr(import_module(module), name), f"{module} does not show {name}"
    used = {f"{module}.{name}" for _, module, name in imports()}
    shown = {f"{face}.{name}" for face in FACES if face != "mirrorlake" for name in import_module(face).__all__}
    assert shown - used == set(), "no room uses these: take them off the face"


@pytest.mark.parametrize("face", FACES)
def test_each_name_of_a_face_is_there(face: str) -> None:
    module = import_module(face)
    assert module.__all__ == sorted(module.__all__) == dir(module)
    for name in module.__all__:
        assert getattr(module, name) is not None
    with pytest.raises(AttributeError, match="nowhere"):
        module.nowhere  # noqa: B018


@pytest.mark.parametrize("face", FACES)
def test_what_a_face_shows_is_no_namesake_of_a_file(face: str) -> None:
    """Whoever imports the file first would find it in the name's place."""
    folder = ROOT.joinpath(*face.split(".")[1:])
    files = {file.stem for file in folder.glob("*.py")}
    stub = ast.parse((folder / "__init__.pyi").read_text())
    shown = {
        alias.name
        for node in stub.body
        if isinstance(node, ast.ImportFrom) and node.module != face
        for alias in node.names
    }
    assert shown & files == set()
