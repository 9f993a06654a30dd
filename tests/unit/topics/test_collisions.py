"""Names that meet only when real topics show it: a conflict in the plan."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.config import load
from mirrorlake.config.schema import FlowConfig
from mirrorlake.kafka import TopicState
from mirrorlake.topics import refused
from mirrorlake.topics.topic_plan import BothEnds, name_conflicts
from tests.builders import config_of
from tests.kit.commands import write_conf


def ends(source: Iterable[str], target: Iterable[str] = ()) -> BothEnds:
    states = {name: TopicState(name=name, topic_id=name, partitions=1) for name in source}
    return BothEnds(source=states, source_configs={}, remote={}, remote_configs={}, target_names=tuple(target))


def conflicts(flow: FlowConfig, at: BothEnds, others: list[tuple[FlowConfig, list[str]]]) -> list[tuple[str, str]]:
    changes = name_conflicts(flow, at, others=others)
    return [(change.name, change.reason) for change in changes if change.action == "conflict"]


def test_names_that_kafka_takes_for_one_are_a_conflict() -> None:
    mine, other = "source: a, target: c, topics: '[bx].+', policy: identity", "source: b, target: c, topics: 'y.+'"
    first, second = config_of(mine, other).flows
    [(_, reason)] = conflicts(first, ends(["x.1"], target=["x_1"]), [])
    assert "differs from x_1 in . and _ only" in reason
    [(_, reason)] = conflicts(first, ends(["b_y1"]), [(second, ["y1"])])
    assert "differs from b.y1 in . and _ only" in reason, "which the other flow makes"
    there = ends(["b_y1"], target=["b_y1"])
    assert conflicts(first, there, [(second, ["y1"])]) == [], "it is there already: the other one cannot come"


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
