"""How typed tables stand in status, lag, metrics and events."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mirrorlake.context import Context, utc_now
from mirrorlake.events import read_events
from mirrorlake.lag import Figures
from mirrorlake.lag.hop_verdicts import LagVerdict
from mirrorlake.lag.lag_page import LagPage
from mirrorlake.lag.status import Status
from mirrorlake.lake import BAD_RECORDS, landed_positions
from mirrorlake.metrics import Metrics
from mirrorlake.mirror.changes import pause_stream
from mirrorlake.model.control import PARK, STREAM, Subject
from mirrorlake.tables import TableStatus, read_tables
from tests.builders import NOON
from tests.kit.lake import LANDED_AT
from tests.unit.tables.kit import keep, mirror


@pytest.fixture
def context(tmp_path: Path) -> Context:
    return mirror(tmp_path, {"topics": "sales"}, topics=["sales"])


def stands(context: Context, *, after: timedelta = timedelta()) -> TableStatus:
    """Return how the only table stands a while after its records were landed, or now."""
    now = LANDED_AT + after if after else utc_now()
    context.now = lambda: now
    [found] = read_tables(context).tables
    return found


def park(context: Context, table: str) -> None:
    said = {"error": "UsageError", "cause": "it failed", "remedy": "mend it", "exit_code": 2, "is_retried": False}
    context.control().append(
        PARK, Subject(kind=STREAM, name=f"table {table}"), value={"since": NOON.isoformat(), **said}
    )


def test_lag_is_that_of_the_records_which_wait_and_a_table_is_given_some_batches(
    context: Context, tmp_path: Path
) -> None:
    keep(context, "sales", position=2)
    early, late = stands(context, after=timedelta(seconds=30)), stands(context)
    # Record 3 was produced three seconds before all were landed.
    assert (early.offset_lag, early.time_lag_ms, early.waited_ms, early.verdict) == (2, 33_000, 30_000, "OK")
    assert (late.state, late.verdict) == ("behind", "WARNING")
    assert "batches come" in late.why()
    slow = stands(mirror(tmp_path, {"topics": "sales", "every": "1m"}), after=timedelta(minutes=5))
    assert slow.verdict == "OK"


def test_a_table_without_batches_stalls(context: Context) -> None:
    one = stands(context)
    assert (one.state, one.verdict) == ("new", "STALL")
    assert "mirrorlake tables --run" in one.why()


def test_offsets_without_a_record_are_no_lag(context: Context) -> None:
    keep(context, "sales", position=4)
    reached = landed_positions(context.lake, "east").reached
    # Only markers of transactions follow.
    landed: Any = {"east": SimpleNamespace(reached={source: position + 2 for source, position in reached.items()})}
    [one] = read_tables(context, landed=landed).tables
    assert (one.offset_lag, one.verdict) == (0, "OK")


@pytest.mark.parametrize("how", ["parked", "paused", "fault"])
def test_status_and_lag_show_a_table_that_stands_still_with_its_reason(tmp_path: Path, how: str) -> None:
    twice = [{"topics": "sales", "name": "sales"}] if how == "fault" else []
    context = mirror(tmp_path, {"topics": "sales"}, *twice, topics=["sales"])
    keep(context, "sales", position=4)
    if how == "parked":
        park(context, "sales")
    if how == "paused":
        pause_stream(context, table="sales", reason="a look")
    verdict, why = {
        "parked": ("STOP", "it failed; next: mend it"),
        "paused": ("PAUSED", "mirrorlake resume --table"),
        "fault": ("STOP", "two entries of `tables:` make the table sales"),
    }[how]
    one = stands(context)
    status = Status(flows=(), observed_at=NOON, tables=(one,))
    assert (one.verdict, one.state, status.verdict) == (verdict, how, verdict)
    assert why in one.why()
    judged = LagVerdict(hops=(), status=status)
    assert not judged.is_fine
    for shown in (status, judged):
        text = " ".join(shown.to_text().split())
        assert "sales" in text
        assert verdict in text
    assert judged.as_dict()["tables"][0]["verdict"] == verdict
    assert status.as_dict()["tables"][0]["state"] == how
    if how == "parked":
        assert "table sales is parked" in status.to_text()


def test_a_page_of_lag_ends_with_the_tables(context: Context) -> None:
    keep(context, "sales", position=1)
    row = {"flow": "f", "topic": "sales", "generation": 1, "partition": 0, "hop": "landed", "group_id": None}
    row |= {"cluster": "east", "position": 4, "end_position": 4, "offset_lag": 0, "time_lag_ms": 0}
    assert "in_table" in LagPage([SimpleNamespace(**row, observed_at=NOON)], tables=[stands(context)]).to_text()


def test_metrics_have_lag_and_bad_records_of_each_table(context: Context) -> None:
    keep(context, "sales", position=1)
    bad = {"table_name": "sales", "source": "east", "topic": "sales", "generation": 1, "partition": 0, "offset": 0}
    bad |= {"timestamp": NOON, "key": None, "value": b"{", "reason": "the value is not JSON", "recorded_at": NOON}
    context.lake.append_rows(BAD_RECORDS, [bad])
    one = stands(context, after=timedelta(seconds=10))
    metrics = Metrics()
    metrics.show(Figures(at=NOON, lag=LagVerdict(hops=(), status=Status(flows=(), observed_at=NOON, tables=(one,)))))
    value = metrics.registry.get_sample_value
    assert value("mirrorlake_table_offset_lag", {"table": "sales"}) == 3
    assert value("mirrorlake_table_time_lag_seconds", {"table": "sales"}) == 13
    assert value("mirrorlake_table_bad_records", {"table": "sales"}) == 1


def test_events_tell_of_paused_and_parked_tables(context: Context) -> None:
    park(context, "sales")
    pause_stream(context, table="sales", reason="a look")
    told = [(one.kind, one.subject) for one in read_events(context, NOON - timedelta(days=1))]
    assert ("parked", "table sales") in told
    assert ("paused", "table sales") in told
