"""What is quarantined: until when it waits for a redrive, and that the relay keeps it so long (law E)."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from mirrorlake.config.schema import ClusterConfig
from mirrorlake.lake import Lake
from mirrorlake.maintenance.flows import quarantined_records
from mirrorlake.maintenance.tiers import KeptFile
from mirrorlake.republish.quarantine import Cause, find_waiting
from tests.builders import ORDERS, mirror_config
from tests.kit.lake import FLOW, NOON, LakeBuilder

AGAIN = f"{FLOW}.redrive"
ODD = {"kind": "quarantined", "rule": "redact", "rule_version": "1", "reason": "no JSON"}


@pytest.fixture
def built(built: LakeBuilder) -> LakeBuilder:
    """Twenty records, of which every second one is quarantined by the flow, and all by another one."""
    built.land("orders", 0, range(20)).send(range(1, 20, 2), 0)
    return built.withhold(*range(0, 20, 2), **ODD).withhold(*range(20), flow="east->west", **ODD)


def waiting(lake: Lake) -> list[int]:
    return sorted(find_waiting(lake, mirror_config({"target": "central"}).flows[0]).get(ORDERS, {}))


@pytest.mark.law("E")
def test_law_e_it_waits_until_it_is_sent_or_filtered_or_gone(built: LakeBuilder) -> None:
    assert waiting(built.lake) == [*range(0, 20, 2)]
    built.send([2, 6], 30, flow=AGAIN).withhold(4, flow=AGAIN, rule="later").withhold(8, flow=AGAIN, **ODD)
    built.withhold(10, flow="west->east", rule="later").send([12], 40, topic="clicks")
    erased = {
        "removal": "r",
        "first_offset": 14,
        "last_offset": 18,
        "record_count": 2,
        "kind": "erased",
        "reason": "why",
    }
    built.add("removed", **erased, ranges=[{"first": 14, "length": 1}, {"first": 18, "length": 1}])
    assert waiting(built.lake) == [0, 8, 10, 12, 16]


@pytest.mark.law("E")
def test_law_e_what_went_into_a_remote_topic_that_is_gone_waits_again(built: LakeBuilder) -> None:
    built.send([0, 2], 30, flow=AGAIN, target_topic_id="1").send([4], 9, target_topic_id="2")
    built.withhold(6, flow=AGAIN, rule="later", target_topic_id="1").withhold(8, rule="later", target_topic_id="1")
    for topic_id, hour in (("1", 1), ("2", 2)):
        seen = {"cluster": "central", "role": "target", "generation": int(topic_id), "topic_id": topic_id}
        built.observe("east.orders", **seen, observed_at=NOON + timedelta(hours=hour))
    assert waiting(built.lake) == [0, 2, *range(8, 20, 2)]


def test_the_newest_cause_counts(built: LakeBuilder) -> None:
    built.withhold(2, **ODD | {"rule": "newer"}, committed_at=NOON + timedelta(hours=1))
    built.withhold(4, **ODD | {"rule": "older"}, committed_at=NOON - timedelta(hours=1))
    found = find_waiting(built.lake, mirror_config({"target": "central"}).flows[0])[ORDERS]
    assert (found[2], found[4]) == (Cause("newer", "1", "no JSON"), Cause("redact", "1", "no JSON"))
    [newer, redact] = built.mirror()[FLOW].quarantine.summary()
    assert (newer.rule, newer.records, newer.first_offset, newer.last_offset) == ("newer", 1, 2, 2)
    assert (redact.topic, redact.records, redact.first_offset, redact.last_offset) == ("orders", 9, 0, 18)


@pytest.mark.law("E")
@pytest.mark.parametrize(("sent", "needed"), [((), [0, 7, 8]), ((0, 2, 4, 6), [8]), (range(0, 20, 2), [])])
def test_law_e_files_from_the_first_waiting_one_on_stay_in_the_relay(
    built: LakeBuilder, sent: Any, needed: list[int]
) -> None:
    if sent:
        built.send([*sent], 30, flow=AGAIN)
    east = ClusterConfig(bootstrap_servers="e:1", retention={"orders": {"age": "3d"}})
    context: Any = SimpleNamespace(lake=built.lake, config=SimpleNamespace(clusters={"east": east}))
    guards = quarantined_records(context, mirror_config({"target": "central"}).flows).get("east", [])
    plain = {"path": "f", "first_offset": 0, "records": 1, "size": 1, "landed_by": NOON}
    files = [KeptFile(source=ORDERS, last_offset=last, **plain) for last in (0, 7, 8)]
    assert [file.last_offset for file in files if any(guard(file) for guard in guards)] == needed
    other = KeptFile(source=replace(ORDERS, partition=1), last_offset=9, **plain)
    assert not any(guard(other) for guard in guards)
