"""Pieces of a view's time hold what one question about all of it says, wherever the present lies; without Spark."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pyarrow as pa
import pytest
from mirrorlake.lag import view_intervals
from mirrorlake.lag.lag_queries import LagQueries
from mirrorlake.lag.view_intervals import LONGEST, VIEWS, choose_interval, count_intervals, query_intervals

from mirrorlake.lake.duckdb_query import to_rows
from mirrorlake.lake.times import micros
from tests.hourly_looks import FLOW, HOURS, hourly_looks
from tests.kit.lake import LakeBuilder

# Pieces begin at every other day: at this one, too.
MIDNIGHT = datetime(2026, 1, 3, tzinfo=timezone.utc)
DAYS = 2


@pytest.mark.parametrize(("hours", "held"), [(-1, None), (0, None), (17, None), (24, None), (47.5, None), (17, 40)])
@pytest.mark.parametrize("name", VIEWS)
def test_pieces_say_what_one_question_says(
    built: LakeBuilder, name: str, hours: float, held: int | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    if held is not None:
        monkeypatch.setattr(view_intervals, "_MAX_ROWS", held)
    lake, now, view = built.lake, MIDNIGHT + timedelta(hours=hours), VIEWS[name]
    for table, rows in hourly_looks(now - timedelta(hours=HOURS - 1)).items():
        built.add(table, *rows)
    length = choose_interval(lake, name)
    assert (length == LONGEST) == (held is None), (
        "a worker holds no more than its memory does, however busy a mirror is"
    )
    numbers = [{"id": number, "now": micros(now)} for number in range(count_intervals(DAYS, length))]
    answer = query_intervals(lake.address, None, [FLOW], view, DAYS, length)
    shown = to_rows(pa.Table.from_batches(answer(iter([pa.RecordBatch.from_pylist(numbers)]))))
    asked = LagQueries(lake, [FLOW], now=lambda: now)
    plain = view.ask(asked, now - timedelta(days=DAYS), now).rows()
    assert sorted(map(repr, shown)) == sorted(map(repr, plain))
    assert len(shown) == (DAYS * 24 + 1) * (2 if name == "lag" else 1)
