"""Pieces of a view's time hold what one question about all of it says, wherever the present lies; without Spark."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from mirrorlake.config.schema.lake import LakeConfig
from mirrorlake.lag.asked import LagQuestions
from mirrorlake.lag.view_pieces import VIEWS, ask_pieces, count_pieces
from mirrorlake.lake.ask import rows_of
from mirrorlake.lake.lake import Lake
from mirrorlake.lake.times import micros
from tests.hourly_looks import FLOW, HOURS, create, fill

# Pieces begin at every other day: at this one, too.
MIDNIGHT = datetime(2026, 1, 3, tzinfo=timezone.utc)
DAYS = 2


def _no_session() -> Any:
    raise AssertionError("a folder is asked without Spark")


@pytest.mark.parametrize("hours", [-1, 0, 17, 24, 47.5])
@pytest.mark.parametrize("name", VIEWS)
def test_pieces_say_what_one_question_says(tmp_path: Path, name: str, hours: float) -> None:
    lake = Lake(_no_session, LakeConfig(root=str(tmp_path)), sees_all=lambda: True)
    create(lake)
    now, view = MIDNIGHT + timedelta(hours=hours), VIEWS[name]
    fill(lake, now - timedelta(hours=HOURS - 1))
    numbers = [{"id": number, "now": micros(now)} for number in range(count_pieces(DAYS))]
    answer = ask_pieces(lake.place, None, [FLOW], view, DAYS)
    shown = rows_of(pa.Table.from_batches(answer(iter([pa.RecordBatch.from_pylist(numbers)]))))
    asked = LagQuestions(lake, [FLOW], now=lambda: now)
    plain = view.ask(asked, now - timedelta(days=DAYS), now).rows()
    assert sorted(map(repr, shown)) == sorted(map(repr, plain))
    assert len(shown) == (DAYS * 24 + 1) * (2 if name == "lag" else 1)
