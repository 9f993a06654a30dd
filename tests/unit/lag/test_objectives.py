"""Objectives beside what is measured, what would have been lost at a past moment, and when the source deletes what waits."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest
from mirrorlake.lag.forecast import Earliest, next_expiry
from mirrorlake.lag.hop_verdicts import LagVerdict
from mirrorlake.lag.lag import Lag
from mirrorlake.lag.objectives import judge_objectives, measured_rto
from mirrorlake.lag.time_lag import LagSample

from mirrorlake.config.schema.flow import FlowConfig
from mirrorlake.lake.lake import Lake
from tests.builders import NOON, sample
from tests.kit.lake import LakeBuilder, position_rows, sample_rows
from tests.unit.lag.kit import at, landed

FLOW = FlowConfig.model_validate(
    {"source": "east", "target": "central", "topics": "t", "objectives": {"rpo": "30s", "rto": "5m"}}
)
PLAIN = FlowConfig.model_validate({"name": "plain", "source": "east", "target": "west", "topics": "t"})


def lag_of(lake: Lake, *, now: datetime) -> Lag:
    unused: Any = None
    return Lag(lake, [FLOW], look=unused, runs=unused, readers=unused, now=lambda: now)


@pytest.mark.law("E")
def test_law_e_what_would_have_been_lost_is_counted_record_by_record_and_unknown_where_nobody_looked(
    built: LakeBuilder,
) -> None:
    # Offset 4 is a marker, and a rule withheld 6.
    built.turn(landed({n: at(n) for n in (0, 1, 2, 3, 5, 6, 7, 8)})).withhold(6, topic="t")
    built.sample(at(10), last_stable=9, reached=9, republished=3)
    built.sample(at(40), last_stable=9, reached=9, republished=9)
    built.sample(at(70), error="east is away", reached=9, republished=9)
    built.sample(at(100), last_stable=12, reached=9, republished=8)
    lag = lag_of(built.lake, now=at(10_000))

    [found] = lag.loss_at(at(15))
    assert found.observed_at == at(10)
    assert (found.records, found.seconds, found.is_exact) == (4, 7.0, True), "3, 5, 7 and 8; 3 was 7 s old"
    [none] = lag.loss_at(at(69))
    assert (none.records, none.seconds) == (0, 0.0)
    [away] = lag.loss_at(at(75))
    assert (away.records, away.seconds, away.reason) == (None, None, "the source did not answer")
    [open_] = lag.loss_at(at(100))
    assert (open_.records, open_.seconds, open_.is_exact) == (4, 92.0, False), "8, and three that were never landed"
    for moment in (at(-1), at(100 + 61), at(9_000)):
        [unknown] = lag.loss_at(moment)
        assert (unknown.records, unknown.observed_at) == (None, None), f"nobody looked at {moment}"
        assert not lag.loss_at(moment).is_known
    assert json.loads(json.dumps(lag.loss_at(at(15)).as_dict(), default=str))["flows"][0]["records"] == 4


def test_what_was_landed_later_is_known_of_the_past_also_of_a_life_that_has_ended(
    built: LakeBuilder, lake: Lake
) -> None:
    """The newest complete look names what there is now; older lives are looked up for themselves."""
    built.turn(landed({n: at(n) for n in (0, 1)})).sample(at(10), last_stable=3, reached=1, republished=1)
    # 2 was a marker: read, never landed.
    built.sample(at(40), last_stable=3, reached=3, republished=3)
    built.add("samples", observed_at=at(5_000), subject="relay", name="east", complete=True)
    built.add("positions", *position_rows(at(5_000), generation=2, reached=7))
    rows = lag_of(lake, now=at(6_000)).query_over(at(0), at(30)).rows()
    assert {row.hop: (row.time_lag_ms, row.offset_lag) for row in rows} == {
        "landed": (9_000, 2),
        "republished": (9_000, 2),
    }
    built.add("positions", *position_rows(at(20), reached=2, republished=2))
    built.add("samples", *(row for row in sample_rows(at(20), complete=False) if row["name"] != "central"))
    rows = lag_of(lake, now=at(6_000)).query_over(at(15), at(30)).rows()
    assert {row.time_lag_ms for row in rows} == {0}, "offset 2 was no record, as landing found later"


def test_objectives_are_met_missed_or_not_measured(built: LakeBuilder, lake: Lake) -> None:
    def rto(command: str, document: Any, seconds: float) -> None:
        built.add("audit", at=at(seconds), command=command, flow=FLOW.name, object="x", who="ann", after=document)

    assert measured_rto(lake, [FLOW, PLAIN]) == {}
    [before] = judge_objectives([FLOW, PLAIN], {FLOW.name: 2_500}, {})
    assert str(before) == "RPO 2.5 s of 30.0 s, met; RTO not measured of 5 min 0 s"
    assert (before.rpo, before.rto, before.missed) == ("met", "unknown", ())
    rto("drill", json.dumps({"rto_s": 100, "rpo_s": 1}), 1)
    rto("failover", json.dumps({"rto_s": 400.5}), 2)
    rto("failover", json.dumps({"rto_s": None}), 3)
    rto("failover", "not JSON, rto_s", 4)
    rto("apply", json.dumps({"rto_s": 1}), 5)
    measured = measured_rto(lake, [FLOW])
    assert (measured[FLOW.name].seconds, measured[FLOW.name].by) == (400.5, "failover")
    [found] = judge_objectives([FLOW], {FLOW.name: 30_001}, measured)
    assert found.missed == ("RPO", "RTO")
    assert found.as_dict()["rto"]["measured_by"] == "failover"
    judged = LagVerdict(hops=(), objectives=(found,))
    assert not judged.is_fine
    assert judged.as_dict()["objectives"][FLOW.name]["rpo"]["verdict"] == "missed"
    [silent] = judge_objectives([FLOW], {}, {})
    assert silent.rpo == "unknown", "what is not known is not met"


def waits(*, since: datetime | None = NOON, position: int = 50, end: int = 100) -> LagSample:
    return sample(at(600), position, end, waiting=since)


def test_law_e_the_nearer_of_age_and_size_says_when_the_source_deletes_what_waits() -> None:
    moved = [Earliest(observed_at=at(0), offset=0), Earliest(observed_at=at(600), offset=20)]
    now = at(600)

    def said(look: LagSample, **how: Any) -> tuple[str, int, bool] | None:
        found = next_expiry(look, now=now, **how)
        return None if found is None else (found.by, found.in_ms, found.is_soon)

    assert said(waits()) is None, "kept for ever, or compacted only"
    assert said(waits(), retention_ms=-1) is None
    assert said(waits(), retention_ms=3_600_000) == ("age", 3_000_000, False)
    assert said(waits(), retention_ms=660_000) == ("age", 60_000, True), "less than a tenth is left"
    assert said(waits(since=None), retention_ms=3_600_000) is None, "its age is not known"
    # 20 offsets in 600 s, at once: of 30 offsets the last 10 are deleted after 300 s.
    assert said(waits(since=None), earliest=moved) == ("size", 300_000, True)
    assert said(waits(since=None, position=90), earliest=moved) == ("size", 1_500_000, False), (
        "most of the log precedes"
    )
    assert said(waits(), retention_ms=900_000, earliest=moved) == ("age", 300_000, False)
    assert said(waits(position=10), earliest=moved) == ("lost", 0, True)
    at_rest = sample(now, 9, 9, lag_ms=0)
    assert said(at_rest, retention_ms=1, earliest=[]) is None, "an idle topic has nothing that waits"
