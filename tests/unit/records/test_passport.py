"""Passports of a lake in a folder, without Spark: every offset has a word from each side, also where a target is away (law E)."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from mirrorlake.errors import ClusterError
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.records import Registry
from tests.builders import NOON, mirror_config
from tests.kit.lake import LakeBuilder

ORDERS = TopicPartition("orders", 0)
REMOTE = TopicPartition("east.orders", 0)


def away(alias: str) -> NoReturn:
    raise ClusterError(f"{alias} does not answer", alias=alias)


@pytest.fixture
def registry(built: LakeBuilder) -> Registry:
    """Two lives of a topic in the relay: of the first 0 and 1, of the second 0, 2, 3, 4 and 5."""
    built.land("orders", 0, [0, 1]).land("orders", 0, [0, 2, 3, 4, 5], generation=2)
    built.add("gaps", generation=2, first_offset=1, last_offset=1, kind="compacted")
    built.send([0, 1], 100).send([0], 102, generation=2).send([4], 103, generation=2)
    context: Any = SimpleNamespace(lake=built.lake, config=mirror_config({"target": "central"}), admin=away)
    return Registry(context)


def test_law_e_an_older_life_a_gap_and_the_way_back(registry: Registry) -> None:
    older = registry.passport("east", ORDERS, 1)
    assert older.source == SourcePartition("orders", 1, 0), "the newest life that holds a record there"
    assert [one.offset for one in older.outcomes] == [101]
    [waiting] = registry.passport("east", ORDERS, 5).outcomes
    assert waiting.words == "not yet republished, as far as the lake knows: central does not answer"
    gap = registry.passport("east", ORDERS, 1, generation=2)
    assert gap.missing is not None
    assert gap.missing.kind == "compacted"
    back = registry.passport("central", REMOTE, 101)
    assert (back.cluster, back.source, back.offset) == ("east", SourcePartition("orders", 1, 0), 1)
    nobody = registry.passport("central", TopicPartition("east.order", 0), 9)
    assert nobody.source is None
    assert nobody.words.endswith("did you mean 'east.orders'?")


def test_what_an_earlier_selection_took_and_what_was_taken_over(built: LakeBuilder, registry: Registry) -> None:
    built.position("taken_over", 6, flow="east->central", generation=2, target_topic="east.orders")
    [outcome] = registry.passport("east", ORDERS, 5).outcomes
    assert "before the place where the flow took over" in outcome.words
    built.land("clicks", 0, [7])
    [left_out] = registry.passport("east", TopicPartition("clicks", 0), 7).outcomes
    assert left_out.status == "not_carried"


@pytest.mark.law("E")
def test_law_e_what_stood_in_a_remote_topic_that_was_deleted_says_so(built: LakeBuilder, registry: Registry) -> None:
    for hour, topic_id in enumerate(("old", "new")):
        at = NOON + timedelta(hours=hour)
        built.observe("east.orders", cluster="central", role="target", topic_id=topic_id, observed_at=at)
    [outcome] = registry.passport("east", ORDERS, 4).outcomes
    assert outcome.status == "in_a_deleted_topic"
    assert registry.passport("central", REMOTE, 103).source is None, "another record may stand there now"
