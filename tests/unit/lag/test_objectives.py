"""Objectives beside what is measured, what would have been lost at a past moment, and when the source deletes what waits."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from mirrorlake.config.schema.flow import FlowConfig
from mirrorlake.config.schema.lake import LakeConfig
from mirrorlake.lag.forecast import Earliest, next_expiry
from mirrorlake.lag.hop_verdicts import LagVerdict
from mirrorlake.lag.lag import Lag
from mirrorlake.lag.objectives import judge_objectives, measured_rto
from mirrorlake.lag.time_lag import LagSample
from mirrorlake.lake.arrow_types import arrow_table
from mirrorlake.lake.lake import Lake
from mirrorlake.lake.schema import AUDIT, POSITIONS, RELAY, SAMPLES, SIDE_TABLES, WITHHELD
from mirrorlake.lake.table_schema import TableSchema

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
FLOW = FlowConfig.model_validate(
    {"source": "east", "target": "central", "topics": "t", "objectives": {"rpo": "30s", "rto": "5m"}}
)
PLAIN = FlowConfig.model_validate({"name": "plain", "source": "east", "target": "west", "topics": "t"})


def after(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def no_session() -> Any:
    raise AssertionError("a question about a folder needs no Spark")


@pytest.fixture
def lake(tmp_path: Path) -> Lake:
    lake = Lake(no_session, LakeConfig(root=str(tmp_path)))
    lake._folder.create(lake.relay_location("east"), RELAY)
    for table in SIDE_TABLES:
        lake._folder.create(lake.meta_location(table), table)
    return lake


def add(lake: Lake, table: TableSchema, rows: Sequence[Sequence[Any]]) -> None:
    lake.append_rows(table, [dict(zip(table.columns, row, strict=False)) for row in rows])


def sampled(lake: Lake, seconds: float, *, end: int, landed: int, sent: int, error: str | None = None) -> None:
    """Write what one complete look at one partition saw; with an error the source did not answer."""
    at = after(seconds)
    looks = [
        ("cluster", "east", error),
        ("cluster", "central", None),
        ("relay", "east", None),
        ("flow", FLOW.name, None),
    ]
    add(lake, SAMPLES, [(at, subject, name, why is None, 1, 1, 1, why) for subject, name, why in looks])
    seen = [("reached", None, landed), ("republished", FLOW.name, sent)]
    seen += [] if error else [("last_stable", None, end)]
    add(
        lake,
        POSITIONS,
        [("east", flow, "t", 1, 0, kind, None, position, None, at) for kind, flow, position in seen],
    )


def lag_of(lake: Lake, *, now: datetime) -> Lag:
    unused: Any = None
    return Lag(lake, [FLOW], look=unused, runs=unused, readers=unused, now=lambda: now)


def landed(lake: Lake, offsets: Sequence[int]) -> None:
    rows = [("t", 1, 0, n, after(n), 0, None, None, None, after(n)) for n in offsets]
    held = [dict(zip(RELAY.columns, row, strict=True)) for row in rows]
    lake._folder.append(lake.relay_location("east"), arrow_table(RELAY, held))


@pytest.mark.law("E")
def test_law_e_what_would_have_been_lost_is_counted_record_by_record_and_unknown_where_nobody_looked(
    lake: Lake,
) -> None:
    # Offset 4 is a marker, and a rule withheld 6.
    landed(lake, [0, 1, 2, 3, 5, 6, 7, 8])
    add(lake, WITHHELD, [(FLOW.name, "t", 1, 0, 6, 6, [{"first": 6, "length": 1}], 1, "filtered")])
    sampled(lake, 10, end=9, landed=9, sent=3)
    sampled(lake, 40, end=9, landed=9, sent=9)
    sampled(lake, 70, end=0, landed=9, sent=9, error="east is away")
    sampled(lake, 100, end=12, landed=9, sent=8)
    lag = lag_of(lake, now=after(10_000))

    [found] = lag.loss_at(after(15))
    assert found.observed_at == after(10)
    assert (found.records, found.seconds, found.is_exact) == (4, 7.0, True), "3, 5, 7 and 8; 3 was 7 s old"
    [none] = lag.loss_at(after(69))
    assert (none.records, none.seconds) == (0, 0.0)
    [away] = lag.loss_at(after(75))
    assert (away.records, away.seconds, away.reason) == (None, None, "the source did not answer")
    [open_] = lag.loss_at(after(100))
    assert (open_.records, open_.seconds, open_.is_exact) == (4, 92.0, False), "8, and three that were never landed"
    for moment in (after(-1), after(100 + 61), after(9_000)):
        [unknown] = lag.loss_at(moment)
        assert (unknown.records, unknown.observed_at) == (None, None), f"nobody looked at {moment}"
        assert not lag.loss_at(moment).is_known
    assert json.loads(json.dumps(lag.loss_at(after(15)).as_dict(), default=str))["flows"][0]["records"] == 4


def test_what_was_landed_later_is_known_of_the_past_also_of_a_life_that_has_ended(lake: Lake) -> None:
    """The newest complete look names what there is now; older lives are looked up for themselves."""
    landed(lake, [0, 1])
    sampled(lake, 10, end=3, landed=1, sent=1)
    # 2 was a marker: read, never landed.
    sampled(lake, 40, end=3, landed=3, sent=3)
    at = after(5_000)
    add(lake, SAMPLES, [(at, "relay", "east", True, 1, 1, 1, None)])
    add(lake, POSITIONS, [("east", None, "t", 2, 0, "reached", None, 7, None, at)])
    rows = lag_of(lake, now=after(6_000)).query_over(after(0), after(30)).rows()
    assert {row.hop: (row.time_lag_ms, row.offset_lag) for row in rows} == {
        "landed": (9_000, 2),
        "republished": (9_000, 2),
    }
    add(lake, POSITIONS, [("east", FLOW.name, "t", 1, 0, "republished", None, 2, None, after(20))])
    add(lake, POSITIONS, [("east", None, "t", 1, 0, "reached", None, 2, None, after(20))])
    add(lake, SAMPLES, [(after(20), s, n, False, 1, 1, 1, None) for s, n in (("relay", "east"), ("flow", FLOW.name))])
    add(lake, SAMPLES, [(after(20), "cluster", "east", False, 1, 1, 1, None)])
    rows = lag_of(lake, now=after(6_000)).query_over(after(15), after(30)).rows()
    assert {row.time_lag_ms for row in rows} == {0}, "offset 2 was no record, as landing found later"


def test_objectives_are_met_missed_or_not_measured(lake: Lake) -> None:
    def rto(command: str, document: Any, seconds: float) -> None:
        row = {
            "at": after(seconds),
            "command": command,
            "flow": FLOW.name,
            "after": document,
            "object": "x",
            "who": "ann",
        }
        lake.append_rows(AUDIT, [row])

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


@pytest.mark.parametrize("wrong", [{"rpo": "0s"}, {"rto": "soon"}, {"rpo": 5, "rtt": "1m"}])
def test_objectives_are_checked_when_the_file_is_read(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        FlowConfig.model_validate({"source": "a", "target": "b", "topics": "t", "objectives": wrong})


def waits(*, since: datetime | None = NOON, position: int = 50, end: int = 100) -> LagSample:
    return LagSample(
        observed_at=after(600), position=position, end_position=end, offset_lag=end - position, waiting_since=since
    )


def test_law_e_the_nearer_of_age_and_size_says_when_the_source_deletes_what_waits() -> None:
    moved = [Earliest(observed_at=after(0), offset=0), Earliest(observed_at=after(600), offset=20)]
    now = after(600)

    def said(sample: LagSample, **how: Any) -> tuple[str, int, bool] | None:
        found = next_expiry(sample, now=now, **how)
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
    at_rest = LagSample(observed_at=now, position=9, end_position=9, offset_lag=0, time_lag_ms=0)
    assert said(at_rest, retention_ms=1, earliest=[]) is None, "an idle topic has nothing that waits"
