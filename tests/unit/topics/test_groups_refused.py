"""Law A: groups that cannot be told where to go on between clusters that mirror each other are refused, not guessed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mirrorlake.config import load
from mirrorlake.topics import refused
from tests.commands import write_conf


@pytest.mark.law("A")
@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ("", "")),
        ({"delivery": "at_least_once"}, ("west->east delivers at least once", "")),
        ({"placement": {"by": "key", "count": 4}}, ("other partitions", "other partitions")),
    ],
)
def test_groups_are_refused_where_own_records_cannot_be_told_apart(
    settings: dict[str, Any], expected: tuple[str, str], tmp_path: Path
) -> None:
    plain = {"topics": "orders", "policy": "identity"}
    flows = [{"source": "west", "target": "east", **plain, **settings}, {"source": "east", "target": "west", **plain}]
    config = load(write_conf(tmp_path, {"east": "127.0.0.1:1", "west": "127.0.0.1:2"}, flows))
    for flow, why in zip(config.flows, expected, strict=True):
        found = refused(flow, config.flows)
        assert why in found
        assert bool(found) == bool(why)
