"""Every file that people are told to copy can be read."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from mirrorlake.config import load

FILES = sorted((Path(__file__).parents[3] / "conf").glob("*.yml"))
LOOPS = {"bidirectional.yml", "mesh.yml", "ring.yml", "aggregation.yml"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.name)
def test_the_file_loads(path: Path) -> None:
    assert load(path).flows


@pytest.mark.parametrize("name", sorted(LOOPS))
def test_the_sandbox_can_start_its_clusters(name: str) -> None:
    config = load(next(path for path in FILES if path.name == name))
    for cluster in config.clusters.values():
        assert re.fullmatch(r"127\.0\.0\.1:\d+", cluster.servers())


def test_loops_write_where_records_have_been() -> None:
    told = {path.name: [flow.adds_hops for flow in load(path).flows] for path in FILES if path.name in LOOPS}
    assert told.pop("aggregation.yml") == [False, False, True, True]
    assert all(all(flags) for flags in told.values())
