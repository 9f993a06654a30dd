"""What every test gets: the marker of its folder, and the servers of `tests/servers` as fixtures."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import settings

HERE = Path(__file__).parent

# The suite starts many JVMs for a minute each; the second compiler would cost more than they do.
os.environ.setdefault("SPARK_SUBMIT_OPTS", "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m")

# A deadline is a timed assert: a busy machine would fail laws that hold.
settings.register_profile("house", deadline=None)
settings.load_profile("house")

pytest_plugins = [f"tests.servers.{path.stem}" for path in sorted((HERE / "servers").glob("[a-z]*.py"))]


# What takes longest is begun first: where two run at a time, neither waits for the other's last file.
_LONGEST = ("spark", "flow", "notebooks", "kafka")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--law", choices=list("ABCDEFGH"), help="run the tests of one law only (DESIGN 3)")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if letter := config.getoption("--law"):
        others = [item for item in items if not any(letter in mark.args for mark in item.iter_markers("law"))]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in set(others)]
    folders: dict[pytest.Item, str] = {}
    for item in items:
        if not item.path.is_relative_to(HERE):
            continue
        folders[item] = item.path.relative_to(HERE).parts[0]
        # --strict-markers refuses a folder that pyproject.toml does not know.
        item.add_marker(getattr(pytest.mark, folders[item]))
    rank = {folder: place for place, folder in enumerate(_LONGEST)}
    items.sort(key=lambda item: rank.get(folders.get(item, ""), len(rank)))
