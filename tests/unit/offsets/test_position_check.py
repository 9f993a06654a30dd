"""What is said of positions where a flow has sent nothing of a partition yet; no broker, and no Spark."""

from __future__ import annotations

from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from mirrorlake.config.schema import FlowConfig
from mirrorlake.kafka import Committed
from mirrorlake.lake import KnownTopic, Lake
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.groups import PositionCheck
from mirrorlake.offsets import OffsetMaps, RelatedFlows
from mirrorlake.offsets.position_check import PositionChecker
from mirrorlake.offsets.resume import _ResumeQuery
from tests.builders import NOON, ORDERS, mirror_config
from tests.kit.lake import LakeBuilder, rows
from tests.kit.memory_cluster import MemoryCluster

REMOTE = TopicPartition("east.orders", 0)


def flow(**more: Any) -> FlowConfig:
    return mirror_config({"target": "central", **more}).flows[0]


def land(built: LakeBuilder, offsets: range, *, since: int = 0) -> None:
    """Land records, a minute apart from noon on, in an account that was opened at `since`."""
    built.turn(*(rows("orders", 0, o, timestamp=NOON + timedelta(minutes=o)) for o in offsets))
    built.position("landed", since).position("landed", max(since, offsets.stop))


def maps(lake: Lake, sent: int | None) -> OffsetMaps:
    positions = {} if sent is None else {ORDERS: sent}
    return OffsetMaps(lake=lake, positions={"east->central": positions}, sources={"east->central": "east"})


def check(lake: Lake, at: int, *, sent: int | None = None, earliest: int = 0, **more: Any) -> PositionCheck:
    source: Any = MemoryCluster(orders=(earliest, earliest))
    return PositionChecker(maps(lake, sent), flow(**more), {(ORDERS, at): None}, source).check(ORDERS, at)


@pytest.mark.law("A")
def test_law_a_what_landing_left_out_is_not_skipped_before_the_first_record_comes(
    built: LakeBuilder, lake: Lake
) -> None:
    land(built, range(0), since=100)
    held = check(lake, 50, start="latest")
    assert not held.is_safe, "law A: records 50 to 99 never come to the target"
    assert "never republished by this flow" in held.reason
    assert check(lake, 100, start="latest").is_safe
    assert check(lake, 50, earliest=100, start="latest").is_safe, "retention took what it has not read"


@pytest.mark.law("A")
def test_law_a_what_the_start_of_a_flow_leaves_out_of_the_relay_is_not_skipped(built: LakeBuilder, lake: Lake) -> None:
    start = {"timestamp": (NOON + timedelta(minutes=30)).isoformat()}
    land(built, range(20))
    assert not check(lake, 10, start=start).is_safe, "law A: records 10 to 19 are older than the flow begins"
    assert check(lake, 20, start=start).is_safe
    land(built, range(20, 60))
    assert not check(lake, 29, start=start).is_safe, "law A: record 29 is older"
    waiting = check(lake, 30, start=start)
    assert waiting.is_safe, "the flow begins with record 30"
    assert check(lake, 29).is_safe, "a flow without a start leaves nothing out"


@pytest.mark.law("A")
def test_law_a_what_another_mirror_had_sent_before_a_takeover_has_no_place_yet(built: LakeBuilder, lake: Lake) -> None:
    land(built, range(40))
    assert not check(lake, 10, sent=30).is_safe
    assert check(lake, 30, sent=30) == PositionCheck()


@pytest.mark.parametrize(("end", "exact", "again"), [(3, True, 0), (9, False, None)])
def test_a_remote_topic_of_other_records_is_read_from_its_beginning_and_that_is_said(
    built: LakeBuilder, lake: Lake, end: int, exact: bool, again: int | None
) -> None:
    land(built, range(10))
    ours = flow()
    related = RelatedFlows(flows=(ours,), topics={ours.name: {"orders": KnownTopic(name="orders", partitions=1)}})
    clusters: Any = SimpleNamespace(admin=lambda _: MemoryCluster("central", **{"east.orders": (3, end)}))
    look = _ResumeQuery(clusters, related, maps(lake, None), {}, {"east"})
    [resume] = look.resume({ours.name: {("g", ORDERS): Committed(0)}}).values()
    assert (resume.downstream_offset, resume.exact, resume.records_again) == (3, exact, again)
    assert ("other records" in resume.reason) is not exact
