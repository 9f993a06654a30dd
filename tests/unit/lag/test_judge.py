"""The verdict on a mirror's hops from windows at hand: what is said of each, in which order, and how it shows itself."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import timedelta

import pytest

from mirrorlake.errors import ClusterUnreachable
from mirrorlake.lag.forecast import Earliest
from mirrorlake.lag.judge import Kept, judge_windows
from mirrorlake.lag.moment import Sample
from mirrorlake.lag.verdict import HopPlace, LagVerdict, Verdict, name_pauses
from mirrorlake.model.control import ControlState, Pause, Subject
from mirrorlake.model.flow import SourcePartition
from tests.builders import NOON, hop_place, sample

HOUR_MS = 3_600_000


def window(positions: Sequence[int], *, end: int) -> list[Sample]:
    def look(minute: int, position: int) -> Sample:
        at, waits = NOON + timedelta(minutes=minute), position < end
        since = NOON - timedelta(minutes=1) if waits else None
        return sample(at, position, end, waiting=since, lag_ms=(minute + 1) * 60_000 if waits else 0)

    return [look(minute, position) for minute, position in enumerate(positions)]


def stalled_and_well() -> LagVerdict:
    windows = {
        hop_place("landed"): window([10, 10, 10], end=10),
        hop_place("republished"): window([5, 6, 8], end=10),
        hop_place("consumed", group="<img src=x onerror=alert(1)>"): window([3, 3, 3], end=10),
        hop_place("landed", flow="east->west"): window([1, 9], end=10),
    }
    return judge_windows(windows, now=NOON + timedelta(minutes=2), retention_of=lambda _: Kept(ms=HOUR_MS))


def test_the_worst_comes_first_and_counts_for_flow_and_mirror() -> None:
    found = stalled_and_well()
    assert [hop.verdict for hop in found.hops] == [Verdict.STALL, Verdict.OK, Verdict.OK, Verdict.UNKNOWN]
    assert found.verdict is Verdict.STALL
    assert found.flows == {"east->central": Verdict.STALL, "east->west": Verdict.UNKNOWN}
    assert found.complete == 0.75
    assert LagVerdict(hops=()).complete == 1.0
    assert sorted(hop.samples for hop in found.hops) == [2, 3, 3, 3]
    assert [hop.place.hop for hop in found.at_risk] == ["consumed"]
    assert found.at_risk[0].as_dict()["retention_left_ms"] == HOUR_MS - 3 * 60_000


def test_a_verdict_is_a_document_and_a_table_and_group_names_are_escaped() -> None:
    found = stalled_and_well()
    document = json.loads(json.dumps(found.as_dict()))
    assert document["verdict"] == "STALL"
    assert [hop["eta_ms"] for hop in document["hops"]] == [None, 0, 80_000, None]
    html, text = found._repr_html_(), str(found)
    assert "<img" not in html
    assert "&lt;img" in html
    assert "STALL" in text
    assert "the position stood at 3 for 120 s" in text


def test_how_long_a_topic_is_kept_is_asked_for_hops_that_are_behind_only_and_may_stay_unknown() -> None:
    asked = []

    def kept(where: HopPlace) -> Kept:
        asked.append(where.hop)
        raise ClusterUnreachable("east does not answer", consequence="", remedy="", alias="east")

    windows = {hop_place("landed"): window([10, 10, 10], end=10), hop_place("republished"): window([5, 5, 5], end=10)}
    found = judge_windows(windows, now=NOON + timedelta(minutes=2), retention_of=kept)
    assert asked == ["republished"]
    assert {hop.place.hop: hop.retention is None for hop in found.hops} == {"republished": True, "landed": False}
    assert found.verdict is Verdict.STALL


def test_the_earliest_offsets_of_a_source_count_where_the_hop_reads_from_it() -> None:
    held = {
        ("east", SourcePartition("orders", 1, 0)): [
            Earliest(observed_at=NOON - timedelta(minutes=8), offset=0),
            Earliest(observed_at=NOON - timedelta(minutes=3), offset=4),
        ]
    }
    windows = {hop: window([10] * 3, end=15) for hop in (hop_place("landed"), hop_place("consumed", group="g"))}
    found = {h.place.hop: h for h in judge_windows(windows, now=NOON + timedelta(minutes=2), earliest=held).hops}
    risk = found["landed"].retention
    assert risk is not None
    assert (risk.by, risk.left_ms) == ("size", 300_000), "4 offsets in 10 minutes, at once; 6 are left"
    assert not found["consumed"].at_risk, "on the target, whose own offsets are others"


@pytest.mark.parametrize(
    ("subject", "named"),
    [
        (Subject(kind="cluster", name="east"), {"landed"}),
        (Subject(kind="flow", name="east->central"), {"republished"}),
        (Subject(kind="cluster", name="central"), {"republished"}),
        (Subject(kind="topic", name="orders", flow="east->central"), {"republished"}),
        (Subject(kind="topic", name="orders", flow="east->west"), set()),
    ],
    ids=str,
)
def test_a_standstill_that_somebody_wanted_says_who_and_how_it_ends(subject: Subject, named: set[str]) -> None:
    hops = [hop_place("landed"), hop_place("republished"), hop_place("consumed", group="billing")]
    found = judge_windows({each: window([3, 3, 3], end=10) for each in hops}, now=NOON + timedelta(minutes=2))
    state = ControlState(pauses={subject: Pause(subject=subject, who="ann", since=NOON, reason="drill")})
    told = name_pauses(found, state, {"east->central": "central"})
    assert told.flows == found.flows, "records wait all the same"
    assert {hop.place.hop for hop in told.hops if "is paused by ann" in hop.reason} == named
    assert all(subject.options in hop.reason for hop in told.hops if hop.place.hop in named)
