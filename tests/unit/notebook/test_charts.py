"""Charts in notebooks: the figures hold what the rows hold."""

from __future__ import annotations

import builtins
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.errors import UsageError
from mirrorlake.notebook.charts import MAX_LINES, events_chart, group_chart, lag_chart, latency_chart, rpo_chart
from mirrorlake.status import Event, Events

NOON = pd.Timestamp(2026, 1, 1, 12)
Points = dict[tuple[str, datetime], float | None]


def shown(figure: Any) -> Points:
    """Collect the points of a figure, by the name of the line and time."""
    return {
        (trace.name.replace("&gt;", ">"), pd.Timestamp(x).to_pydatetime()): None if y is None or y != y else float(y)
        for trace in figure.data
        for x, y in zip(trace.x, trace.y, strict=True)
    }


def titles_of(figure: Any) -> list[str]:
    return [one.text for one in figure.layout.annotations]


def rows(*hops: tuple[str, str | None], minutes: int = 4, partitions: int = 3) -> list[dict[str, Any]]:
    of_all = {"flow": "east->central", "source": "east", "topic": "orders", "generation": 1}
    return [
        {**of_all, "partition": partition, "hop": hop, "group_id": group}
        | {"observed_at": NOON + timedelta(minutes=minute), "position": 100 * minute}
        | {"end_position": 110 * minute + partition + place, "offset_lag": 10 * minute + partition + place}
        | {"time_lag_ms": 1000 * minute + partition * 500 + place}
        for place, (hop, group) in enumerate(hops)
        for minute in range(minutes)
        for partition in range(partitions)
    ]


HOPS: list[tuple[str, str | None]] = [("landed", None), ("republished", None), ("consumed", "billing")]


def test_latency_rpo_and_the_history_of_a_group_show_their_rows() -> None:
    latency = pd.DataFrame(
        {"bucket": NOON + timedelta(minutes=m), "flow": "f", "topic": t, "records": 9}
        | {"p50_ms": m, "p95_ms": 5.0 * m, "p99_ms": 9.5 * m}
        for m in range(5)
        for t in ("orders", "clicks")
    )
    expected: Points = {
        (f"f {row.topic} {name}", row.bucket.to_pydatetime()): getattr(row, f"{name}_ms") / 1000
        for row in latency.itertuples()
        for name in ("p50", "p95", "p99")
    }
    assert shown(latency_chart(latency)) == pytest.approx(expected)

    looks = enumerate([0, 4000, None, 1500])
    rpo = pd.DataFrame({"observed_at": NOON + timedelta(minutes=m), "flow": "f", "data_ms": ms} for m, ms in looks)
    figure = rpo_chart(rpo.sample(frac=1, random_state=1), objective_ms=10_000)
    assert list(shown(figure).values()) == [0.0, 4.0, None, 1.5], "in the order of time"
    assert figure.layout.shapes[0].y0 == 10
    far = rpo_chart(rpo, objective_ms=60_000)
    assert not far.layout.shapes, "it would press the lines to the ground"
    assert titles_of(far) == ["RPO; objective: 1 min 0 s, above this picture"]

    frame = pd.DataFrame(rows(*HOPS))
    found = shown(group_chart(frame, "billing"))
    own = frame[frame.group_id == "billing"]
    assert found == {
        (f"{r.flow} {r.topic}-{r.partition} {word}", r.observed_at.to_pydatetime()): float(value)
        for r in own.itertuples()
        for word, value in (("position", r.position), ("end", r.end_position))
    }
    with pytest.raises(UsageError, match="known groups: billing"):
        group_chart(frame, "billling")


def test_outages_are_shaded_and_other_events_are_lines_within_the_times_of_the_frame() -> None:
    frame = pd.DataFrame(rows(("landed", None)))
    first, last = (at.to_pydatetime() for at in (frame.observed_at.min(), frame.observed_at.max()))
    begin, end = (at.replace(tzinfo=timezone.utc) for at in (first, last))
    seen = {"at": begin - timedelta(hours=1), "until": begin + timedelta(seconds=9)}
    away = Event(**seen, kind="cluster away", subject="west")
    applied = Event(at=end, kind="applied", subject="settings")
    pause = replace(away, kind="paused", at=end - timedelta(seconds=1), until=None)
    later = replace(applied, at=end + timedelta(hours=1))
    events = Events(start=away.at, end=later.at, events=(away, applied, pause, later))
    figure = lag_chart(frame, events=events)
    assert [(shape.x0, shape.x1) for shape in figure.layout.shapes] == [
        (first, first + timedelta(seconds=9)),
        (last, last),
        (last - timedelta(seconds=1), last),
    ]
    assert titles_of(figure) == ["time lag", "cluster away", "applied", "paused"]


def test_the_timeline_has_a_bar_for_each_event_from_its_start_to_its_end() -> None:
    noon = NOON.replace(tzinfo=timezone.utc)
    away = Event(at=noon, until=noon + timedelta(seconds=600), kind="cluster away", subject="<b>west</b>")
    pause = Event(at=noon + timedelta(seconds=900), kind="paused", subject="flow f")
    figure = events_chart(Events(start=noon, end=noon + timedelta(seconds=1800), events=(away, pause)))
    bars = {bar.name: (bar.y[0], bar.base[0], bar.x[0]) for bar in figure.data}
    assert bars == {
        "cluster away": ("&lt;b&gt;west&lt;/b&gt;", NOON, 600_000),
        "paused": ("flow f", NOON + timedelta(seconds=900), 900_000),
    }


def test_times_are_shown_in_utc_whatever_zone_they_come_in() -> None:
    frame = pd.DataFrame(rows(("landed", None)))
    zoned = frame.assign(observed_at=frame.observed_at.dt.tz_localize("UTC").dt.tz_convert("Asia/Kolkata"))
    assert shown(lag_chart(zoned)) == shown(lag_chart(frame))


def test_lines_differ_without_their_colours_and_only_the_highest_are_drawn() -> None:
    groups: list[tuple[str, str | None]] = [("consumed", f"group-{n:02}") for n in range(MAX_LINES + 10)]
    figure = lag_chart(pd.DataFrame(rows(*groups, partitions=1)))
    assert len(figure.data) == MAX_LINES
    assert f"the highest {MAX_LINES} of {len(groups)} lines" in titles_of(figure)[0]
    names = {trace.name.replace("&gt;", ">") for trace in figure.data}
    assert names == {f"east->central consumed by group-{n:02}" for n in range(10, MAX_LINES + 10)}
    faces = [(trace.line.dash, trace.marker.symbol) for trace in figure.data]
    assert len(set(faces[:25])) == 25


def test_names_of_others_are_no_markup_and_a_figure_needs_no_network() -> None:
    figure = lag_chart(pd.DataFrame(rows(("consumed", "<a href='javascript:alert(1)'>g</a>"))))
    assert "<a" not in figure.data[0].name
    html = figure.to_html(include_plotlyjs=False, full_html=False)
    assert "<script src" not in html


def test_a_missing_column_or_plotly_is_a_users_mistake_with_a_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = pd.DataFrame(rows(("landed", None)))
    with pytest.raises(UsageError, match="no column hop"):
        lag_chart(frame.drop(columns="hop"))
    real: Callable[..., Any] = builtins.__import__

    def without(name: str, *args: Any, **options: Any) -> Any:
        if name.startswith("plotly"):
            raise ImportError(name)
        return real(name, *args, **options)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(UsageError, match=r"pip install 'mirrorlake\[notebook\]'"):
        lag_chart(frame)


@given(st.lists(st.lists(st.one_of(st.none(), st.integers(0, 10**9)), min_size=2, max_size=2), min_size=1, max_size=8))
def test_any_rows_are_shown_as_they_are(lags: list[list[int | None]]) -> None:
    hop = {"flow": "f", "hop": "landed", "group_id": None}
    frame = pd.DataFrame(
        {**hop, "observed_at": NOON + timedelta(minutes=m), "offset_lag": lag, "time_lag_ms": lag, "partition": p}
        for m, pair in enumerate(lags)
        for p, lag in enumerate(pair)
    )
    added, longest = (shown(lag_chart(frame, measure=measure)) for measure in ("offsets", "time"))
    for m, pair in enumerate(lags):
        at = ("f landed", (NOON + timedelta(minutes=m)).to_pydatetime())
        known = [lag for lag in pair if lag is not None]
        assert (added[at], longest[at]) == ((sum(known), max(known) / 1000) if len(known) == 2 else (None, None))


def test_groups_have_a_picture_of_their_own_and_lines_break_where_nothing_was_observed() -> None:
    frame = pd.DataFrame(rows(*HOPS, minutes=60))
    minute = (frame.observed_at - NOON).dt.total_seconds() / 60
    figure = lag_chart(frame[(minute < 20) | (minute > 35)])
    assert titles_of(figure) == ["time lag", "time lag of consumer groups"]
    assert {trace.name: trace.yaxis for trace in figure.data} == {
        "east-&gt;central landed": "y",
        "east-&gt;central republished": "y",
        "east-&gt;central consumed by billing": "y2",
    }
    for trace in figure.data:
        assert [x.minute for x, y in zip(trace.x, trace.y, strict=True) if y is None] == [27]
