"""The verdict on a mirror's hops from windows at hand: what is said of each, in which order, and how it shows itself."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any

import pytest
from mirrorlake.lag.forecast import Earliest
from mirrorlake.lag.hop_verdicts import HopKey, LagVerdict
from mirrorlake.lag.judge import Retention, judge_windows
from mirrorlake.lag.partition_status import PartitionStatus
from mirrorlake.lag.status import FlowStatus, Status
from mirrorlake.lag.status_hops import adopt_status, append_snapshot
from mirrorlake.lag.time_lag import LagSample
from mirrorlake.lag.verdict import Verdict

from mirrorlake.errors import MirrorlakeError, NotAuthorized
from mirrorlake.model.control import NOTHING_ASKED
from mirrorlake.model.flow import SourcePartition
from tests.builders import NOON, hop_place, mirror_config, sample

HOUR_MS = 3_600_000


def window(positions: Sequence[int], *, end: int) -> list[LagSample]:
    def look(minute: int, position: int) -> LagSample:
        at, waits = NOON + timedelta(minutes=minute), position < end
        since = NOON - timedelta(minutes=1) if waits else None
        return sample(at, position, end, waiting=since, lag_ms=(minute + 1) * 60_000 if waits else 0)

    return [look(minute, position) for minute, position in enumerate(positions)]


def stalled_and_well() -> LagVerdict:
    windows = {
        hop_place("landed"): window([10, 10, 10], end=10),
        hop_place("republished"): window([5, 6, 8], end=10),
        hop_place("consumed", group="billing"): window([3, 3, 3], end=10),
        hop_place("landed", flow="east->west"): window([1, 9], end=10),
    }
    return judged(windows, retention_of=kept)


def judged(windows: dict[HopKey, list[LagSample]], **more: Any) -> LagVerdict:
    return judge_windows(windows, now=NOON + timedelta(minutes=2), **more)


def kept(places: Collection[HopKey]) -> dict[HopKey, int]:
    return dict.fromkeys(places, HOUR_MS)


def test_the_worst_comes_first_and_counts_for_flow_and_mirror() -> None:
    found = stalled_and_well()
    assert [hop.verdict for hop in found.hops] == [Verdict.STALL, Verdict.WARMING_UP, Verdict.OK, Verdict.OK]
    assert found.flows == {"east->central": Verdict.OK, "east->west": Verdict.WARMING_UP}, "a group is no flow"
    assert found.verdict is Verdict.WARMING_UP
    assert found.groups == {"billing": Verdict.STALL}
    assert found.is_fine, "an idle group is no trouble of the mirror"
    assert (found.at_risk, found.at_risk_words()) == ((), "0 partitions"), "nor are records at risk that are mirrored"
    assert found.complete == 0.75
    assert LagVerdict(hops=()).complete == 1.0
    assert sorted(hop.samples for hop in found.hops) == [2, 3, 3, 3]
    [group] = found.groups_at_risk
    assert group.key.hop == "consumed"
    assert group.as_dict()["retention_left_ms"] == HOUR_MS - 3 * 60_000
    document = json.loads(json.dumps(found.as_dict()))
    assert (document["verdict"], [*document["groups"].values()]) == ("WARMING_UP", ["STALL"])
    assert [hop["eta_ms"] for hop in document["hops"]] == [None, None, 0, 80_000]


def test_verdicts_of_many_partitions_are_one_page_that_says_why_in_80_columns() -> None:
    still, moves = window([5, 5, 5], end=10), window([10, 10, 10], end=10)
    windows = {
        hop_place(hop, partition=n): still if (n, hop) == (7, "republished") else moves
        for n in range(48)
        for hop in ("landed", "republished")
    }
    found = judged(windows, retention_of=lambda _: {})
    page, every = (one.sheet().text(rows=None, width=80) for one in (found, found.by("partition")))
    assert "1 of 48 partitions, such as 7: the position stood at 5 for 2 min 0 s" in found.sheet().text()
    assert page.splitlines()[1].split()[-1] == "why"
    assert len(page.splitlines()) < 16
    assert sum("landed" in line for line in every.splitlines()) == 48
    assert len(found.by("topic").as_dict()["hops"]) == 96


def test_how_long_a_topic_is_kept_is_asked_for_hops_that_are_behind_only_and_may_stay_unknown() -> None:
    asked = []

    def unknown(places: Collection[HopKey]) -> dict[HopKey, int | None]:
        asked.extend(place.hop for place in places)
        return {}

    windows = {hop_place("landed"): window([10, 10, 10], end=10), hop_place("republished"): window([5, 5, 5], end=10)}
    found = judged(windows, retention_of=unknown)
    assert asked == ["republished"]
    assert {hop.key.hop: hop.retention is None for hop in found.hops} == {"republished": True, "landed": False}
    assert found.verdict is Verdict.STALL


@pytest.mark.parametrize("topics", [10, 1_000])
def test_a_cluster_is_asked_once_how_long_it_keeps_its_topics_however_many_wait(topics: int) -> None:
    asked = []

    class Admin:
        def effective_configs_each(
            self, names: Collection[str], *, refused: dict[str, MirrorlakeError]
        ) -> dict[str, dict[str, str | None]]:
            asked.append(len(names))
            refused["t0"] = NotAuthorized("t0 may not be read")
            return {name: {"cleanup.policy": "delete", "retention.ms": "5"} for name in names if name != "t0"}

    admin: Any = Admin()
    retention = Retention(mirror_config(), admin=lambda _: admin)
    places = [
        HopKey(flow="east->west", source="east", topic=f"t{n}", generation=1, partition=p, hop=hop, cluster=cluster)
        for n in range(topics)
        for p in range(3)
        for hop, cluster in (("landed", "east"), ("consumed", "west"), ("republished", None))
    ]
    found = retention(places)
    assert asked == [topics, topics], "of the source's topics, and of the remote ones"
    assert {place.topic for place in places if place not in found} == {"t0"}
    assert {found[place] for place in found if place.hop == "landed"} == {5}
    assert retention(places[9:]) == {place: found[place] for place in places[9:]}
    assert asked == [topics, topics]


def test_the_earliest_offsets_of_a_source_count_where_the_hop_reads_from_it() -> None:
    held = {
        ("east", SourcePartition("orders", 1, 0)): [
            Earliest(observed_at=NOON - timedelta(minutes=8), offset=0),
            Earliest(observed_at=NOON - timedelta(minutes=3), offset=4),
        ]
    }
    windows = {hop: window([10] * 3, end=15) for hop in (hop_place("landed"), hop_place("consumed", group="g"))}
    found = {h.key.hop: h for h in judge_windows(windows, now=NOON + timedelta(minutes=2), earliest=held).hops}
    risk = found["landed"].retention
    assert risk is not None
    assert (risk.by, risk.left_ms) == ("size", 300_000), "4 offsets in 10 minutes, at once; 6 are left"
    assert not found["consumed"].at_risk, "on the target, whose own offsets are others"


def looked(*rows: PartitionStatus, **flow: Any) -> Status:
    at = NOON + timedelta(minutes=3)
    found = FlowStatus(flow="east->central", partitions=rows, observed_at=at, **flow)
    return Status(flows=(found,), observed_at=at)


def row(partition: int = 0, verdict: str = "OK", **figures: Any) -> PartitionStatus:
    known = {"source_end": 10, "landed": 9, "republished": 4, "offset_lag": 6, "time_lag_ms": 500}
    return PartitionStatus(topic="orders", partition=partition, verdict=verdict, reason="it is so", **(known | figures))


HOPS = (hop_place("landed"), hop_place("republished"), hop_place("consumed", group="billing"))


def test_the_look_of_a_status_is_the_last_sample_of_the_mirror_s_own_hops_and_its_verdict_counts() -> None:
    status = looked(row(verdict="PAUSED", eta_ms=7))
    windows = append_snapshot({each: window([3, 3, 3], end=10) for each in HOPS}, status)
    found = judge_windows(windows, now=NOON + timedelta(minutes=3))
    told = {hop.key.hop: hop for hop in adopt_status(found, status, NOTHING_ASKED).hops}
    assert {name: (hop.last.position, hop.last.offset_lag) for name, hop in told.items()} == {
        "landed": (9, 1),
        "republished": (4, 6),
        "consumed": (3, 7),
    }
    assert told["landed"].last.offset_lag <= told["republished"].last.offset_lag, "one moment: no more out than in"
    assert (told["republished"].verdict, told["republished"].catch_up.eta_ms) == (Verdict.PAUSED, 7)
    assert adopt_status(found, status, NOTHING_ASKED).flows == {"east->central": Verdict.PAUSED}
    assert told["consumed"].verdict is Verdict.STALL


def test_at_risk_counts_partitions_not_hops_and_groups_apart() -> None:
    hops = [
        hop_place(hop, group, partition=p) for p in range(8) for hop, group in (("landed", None), ("consumed", "a"))
    ]
    windows = {each: window([3, 3, 3], end=10) for each in hops}
    found = judged(windows, retention_of=kept)
    assert (len(found.at_risk), len(found.groups_at_risk)) == (8, 8)
    assert found.at_risk_words() == "8 partitions"
    assert "retention overtakes 8 partitions" in str(found)
