"""What every test gets: the marker of its folder, and the servers of `tests/servers` as fixtures."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from mirrorlake.sandbox import ports

HERE = Path(__file__).parent

# What is loaded and collected stays: to look through it for garbage took 1.4 of the 6.7 CPU-s that each process needs before its
# first test, and 0.3 each time afterwards.
gc.disable()

# The suite starts many JVMs for a minute each: the second compiler would cost more than they do, the first saves 4 % where it
# inlines more. It asks much about few rows, which Spark interprets with 15 % less CPU than Java that it generates for each takes.
# Where memory is slow to get (40 us a page of a machine that gives back what is free, 2026-11-29), large pages cost a quarter.
# Where a column was made, which a failure of it tells, takes six calls of each: 7 % of the CPU of tests of typed tables.
# The demo and the job of the README are run as users run them.
os.environ.setdefault(
    "SPARK_SUBMIT_OPTS",
    f"-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m{' -XX:+UseTransparentHugePages' if sys.platform == 'linux' else ''}"
    " -XX:C1MaxInlineLevel=15 -XX:C1MaxInlineSize=60 -Dspark.sql.codegen.wholeStage=false -Dspark.sql.codegen.factoryMode=NO_CODEGEN"
    " -Dspark.python.sql.dataFrameDebugging.enabled=false -Dspark.sql.dataFrameQueryContext.enabled=false",
)

# jsonschema, which nbformat loads, builds a grammar of IRIs where it finds this one: 1.3 CPU-s in every process of pytest for
# a check that no schema here asks for.
sys.modules["rfc3987_syntax"] = None  # type: ignore[assignment]

# A deadline is a timed assert: a busy machine would fail laws that hold.
settings.register_profile("house", deadline=None)
settings.load_profile("house")

# A port of a broker that a test has just killed looks free to the processes that test beside it: each has ports of its own.
if worker := os.environ.get("PYTEST_XDIST_WORKER"):
    ports._RANGE = ports._RANGE[int(worker.removeprefix("gw")) :: int(os.environ["PYTEST_XDIST_WORKER_COUNT"])]

pytest_plugins = [f"tests.servers.{path.stem}" for path in sorted((HERE / "servers").glob("[a-z]*.py"))]
pytest_plugins += ["tests.kit.golden", "tests.kit.lake"]


# What takes longest is begun first. The others follow as they are collected, judges before Spark's, unit tests last.
_LONGEST = (
    "judges/test_kept_tables.py",
    "judges/test_failover.py",
    "spark/tables/test_others.py",
    "judges/test_typed_tables.py",
    "judges/test_tables.py",
    "notebooks/test_notebooks.py",
    "spark/tables/test_running.py",
    "spark/publish/test_publish.py",
    "spark/status/test_history.py",
    "stores/test_sql.py",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--law", choices=list("ABCDEFGH"), help="run the tests of one law only")


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(trylast=True)
def pytest_unconfigure() -> None:
    # What is frozen is not collected when Python ends either, and DuckDB prints 40 lines about what is then left of it.
    gc.unfreeze()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if letter := config.getoption("--law"):
        others = [item for item in items if not any(letter in mark.args for mark in item.iter_markers("law"))]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if item not in set(others)]
    rank = {name: place for place, name in enumerate(_LONGEST)}
    places: dict[pytest.Item, int] = {}
    for item in items:
        if not item.path.is_relative_to(HERE):
            continue
        path = item.path.relative_to(HERE)
        # --strict-markers refuses a folder that pyproject.toml does not know.
        item.add_marker(getattr(pytest.mark, path.parts[0]))
        places[item] = rank.get(path.as_posix(), len(rank))
    items.sort(key=lambda item: places.get(item, len(rank)))
