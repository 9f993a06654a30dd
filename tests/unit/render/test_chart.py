"""Still charts: what is drawn is what the rows say, and names that others chose are text."""

from __future__ import annotations

import re
from datetime import datetime, timedelta, timezone
from html import unescape
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.render.svg_chart import MAX_LINES, MAX_POINTS, Line, chart, frame_of, limit_labels
from mirrorlake.render.time_axis import DURATIONS

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)


def line(name: str, *values: float | None) -> Line:
    return Line(name, tuple((NOON + timedelta(minutes=index), value) for index, value in enumerate(values)))


def drawn(svg: str) -> list[list[tuple[float, float]]]:
    return [
        [(float(x), float(y)) for x, y in (pair.split(",") for pair in points.split(" "))]
        for points in re.findall(r'polyline points="([^"]*)"', svg)
    ]


def titles_of(svg: str) -> list[str]:
    return [unescape(title) for title in re.findall("<title>([^<]*)</title>", svg)]


@given(st.lists(st.floats(0, 1e9), min_size=2, max_size=50))
def test_the_points_of_a_line_stand_where_its_values_are(values: list[float]) -> None:
    one = line("a", *values)
    svg, frame = chart("lag", [one]), frame_of([one])
    assert frame.top >= max(values)
    [points] = drawn(svg)
    for (x, y), (at, value) in zip(points, one.points, strict=True):
        assert value is not None
        assert (x, y) == (pytest.approx(frame.x(at), abs=0.06), pytest.approx(frame.y(value), abs=0.06))
    assert (frame.y(frame.top), frame.y(frame.top / 2), frame.y(0)) == (10, 102, 194), "the whole height is used"


def test_what_is_not_known_breaks_the_line_and_every_value_can_be_read() -> None:
    svg = chart("time lag", [line("east->central landed", 1000, 2000, None, 90_000, 4000)], unit=DURATIONS)
    assert [len(stretch) for stretch in drawn(svg)] == [2, 2]
    titles = titles_of(svg)
    assert titles[0] == "east->central landed 2026-01-01T12:00:00+00:00 1.0 s"
    assert [title.rsplit("+00:00 ")[1] for title in titles] == ["1.0 s", "2.0 s", "1 min 30 s", "4.0 s"]


def test_names_of_others_are_text_and_nothing_is_fetched() -> None:
    svg = chart("<b>", [line('"><script>alert(1)</script>', 1, 2)])
    assert "<script" not in svg
    assert "http" not in svg


def test_no_two_lines_are_alike_and_no_peak_is_thinned_away() -> None:
    lines = [line(f"line {index}", index, index + 1) for index in range(MAX_LINES + 8)]
    svg = chart("many", lines)
    assert f"the highest {MAX_LINES} of {len(lines)} lines" in svg
    assert "line 0<" not in svg
    faces = re.findall(
        r'stroke="(#\w+)" stroke-width="1.5" stroke-dasharray="([^"]*)"/></svg> <span style="[^"]*">(.)', svg
    )
    assert len(faces) == MAX_LINES
    without_colour = {face[1:] for face in faces}
    assert len(without_colour) == MAX_LINES, "dash and marker tell them apart where colours do not"
    long = line("long", *(1e6 if index == 777 else index % 7 for index in range(5000)))
    titles = titles_of(chart("long", [long]))
    assert len(titles) <= MAX_POINTS
    assert any(title.endswith(" 1 000 000") for title in titles)


def test_nothing_known_is_said() -> None:
    assert "nothing is known" in chart("lag", [line("a", None, None)])
    assert "<svg" in chart("lag", [line("a", 0)]), "one look, and no lag"


def test_a_line_does_not_cross_a_time_without_observations() -> None:
    observed = [(NOON + timedelta(minutes=minute), 1.0) for minute in (0, 1, 2, 30, 31)]
    assert [len(stretch) for stretch in drawn(chart("lag", [Line("a", tuple(observed))]))] == [3, 2]


def test_axes_are_divided_at_round_times_and_durations_and_nothing_joins_a_line_to_its_name() -> None:
    at = NOON + timedelta(minutes=3, seconds=7)
    svg = chart("lag", [Line("a", tuple((at + timedelta(minutes=n), 50_000.0 * n) for n in range(6)))], unit=DURATIONS)
    texts = re.findall(r"<text[^>]*>([^<]+)</text>", svg)
    assert [text for text in texts if ":" in text] == ["12:04:00", "12:05:00", "12:06:00", "12:07:00", "12:08:00"]
    assert [text for text in texts if text == "0" or text.endswith("min")] == [
        *("0", "1 min", "2 min", "3 min", "4 min", "5 min"),
    ]
    x_of_lines = [float(x) for x in re.findall(r'<line x1="[^"]*" x2="([^"]*)"', svg)]
    assert max(x_of_lines) == 684, "the right edge of the picture"


@given(st.lists(st.floats(0, 100) | st.just(50.0), max_size=8))
def test_the_labels_of_objectives_do_not_overlap_and_name_each_once(values: list[float]) -> None:
    limits = {f"f{index}": value for index, value in enumerate(values)}
    labels = limit_labels(limits, 100)
    assert labels.keys() == set(values), "each line is drawn"
    places = sorted(value for value, label in labels.items() if label)
    # A label is 10 px high, in a picture of 184.
    assert all(after - before >= 100 * 10 / 184 for before, after in pairwise(places))
    assert sorted(name for label in labels.values() for name in label.split("; ") if name) == sorted(limits)


def test_an_objective_is_drawn_where_it_is_in_sight_and_named_where_it_is_not() -> None:
    one = line("a", 1000, 20_000)
    near = chart("RPO", [one], unit=DURATIONS, limits={"objective of f": 30_000})
    assert 'stroke-dasharray="1 4"' in near
    assert frame_of([one], DURATIONS, top=30_000).top >= 30_000
    far = chart("RPO", [one], unit=DURATIONS, limits={"objective of f": 3_600_000})
    assert 'stroke-dasharray="1 4"' not in far
    assert "objective of f: 1 h 0 min, above this picture" in far
