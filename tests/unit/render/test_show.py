"""Tables, badges, numbers and record content: what they say, and that nothing others wrote gets out of them."""

from __future__ import annotations

import math
import re
from datetime import datetime, timedelta, timezone
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrorlake.render import (
    Sheet,
    badge,
    clean,
    format_count,
    format_duration,
    format_size,
    format_time,
    headers,
    limit_labels,
    payload,
    payload_html,
    split_limits,
    table,
)
from tests.unit.markup import ATTACKS, Markup

NOON = datetime(2026, 7, 1, 12, tzinfo=timezone.utc)
# Text that browsers and terminals care about comes up more often than chance would have it.
NASTY = st.one_of(st.text(), st.sampled_from(ATTACKS), st.text(alphabet="<>\"'&;=/!-x \n\x1b\u202e"))
CELLS = st.one_of(NASTY, NASTY.map(str.encode), st.binary(), st.none(), st.integers(), st.booleans(), st.floats())


@pytest.mark.parametrize(
    ("ms", "text"),
    [
        (0, "0 ms"),
        (0.4, "0.4 ms"),
        (0.036, "0 ms"),
        (999.6, "1.0 s"),
        (59_949, "59.9 s"),
        (59_951, "1 min 0 s"),
        (3_599_999, "1 h 0 min"),
        (86_400_000 * 1234, "1 234 d 0 h"),
        (-3_200, "-3.2 s"),
        (math.inf, "∞"),
        (math.nan, "–"),
    ],
)
def test_a_duration_has_two_units_and_rounds_into_the_next(ms: float, text: str) -> None:
    assert format_duration(ms) == text


def test_quantities_have_units_and_groups() -> None:
    assert [format_count(n) for n in (0, 999, 1000, -1234567, 1234.5, 12.34)] == [
        *("0", "999", "1 000", "-1 234 567", "1 234", "12.3")
    ]
    assert [format_size(n) for n in (0, 999, 999.9, 9_960, 999_600, 12e6, 3e18, -1500)] == [
        *("0 B", "999 B", "1.0 kB", "10 kB", "1.0 MB", "12 MB", "3 000 PB", "-1.5 kB")
    ]


@given(st.datetimes(timezones=st.just(timezone.utc)), st.integers(-23 * 60, 23 * 60))
def test_a_time_is_local_with_its_distance_and_utc(when: datetime, minutes: int) -> None:
    zone = timezone(timedelta(minutes=minutes))
    found = format_time(when, zone=zone, precision="ms")
    assert f"{when.isoformat(sep=' ', timespec='milliseconds')[11:23]} UTC" in found
    local = re.match(r"(\S+ \S+) ([+-]\d\d:\d\d) \(", found)
    if local is None:
        assert not minutes or when.year in (1, 9999)
    else:
        back = datetime.fromisoformat(f"{local[1]}{local[2]}")
        assert back == when.replace(microsecond=when.microsecond // 1000 * 1000)


def test_a_time_without_a_zone_is_never_guessed() -> None:
    with pytest.raises(ValueError, match="does not know its zone"):
        format_time(NOON.replace(tzinfo=None))
    assert "zone not known" in table("", ["at"], [[NOON.replace(tzinfo=None)]]).text()


def test_the_date_stands_at_utc_only_where_it_is_another_day() -> None:
    east = timezone(timedelta(hours=13))
    assert format_time(NOON, zone=east) == "2026-07-02 01:00:00 +13:00 (2026-07-01 12:00:00 UTC)"
    assert format_time(NOON, zone=timezone(timedelta(hours=1))) == "2026-07-01 13:00:00 +01:00 (12:00:00 UTC)"


@given(st.binary() | NASTY.map(lambda text: text.encode("utf-8", "ignore")), st.integers(1, 40))
def test_a_payload_is_one_printable_line_that_says_what_was_cut(data: bytes, limit: int) -> None:
    shown = payload(data, limit)
    assert clean(shown) == shown
    assert len(shown) <= 8 * limit + 30
    assert (len(data) > limit) == shown.endswith(f"… ({format_count(len(data))} bytes)") or data.endswith(b" bytes)")


@given(st.none() | st.binary() | NASTY.map(lambda text: text.encode("utf-8", "ignore")))
def test_no_text_passes_for_a_null_an_empty_value_or_bytes(data: bytes | None) -> None:
    shown = payload(data, None)
    assert (shown == "‹null›") == (data is None)
    assert (shown == "‹empty›") == (data == b"")
    if data and shown.startswith("0x"):
        assert shown == f"0x{data.hex()} ({format_count(len(data))} byte{'s' if len(data) > 1 else ''})"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (None, "‹null›"),
        (b"", "‹empty›"),
        (b"null", "null"),
        ("‹empty›".encode(), "“‹empty›”"),
        (b"0x00", "“0x00”"),
        (b"\x00\x00\x00\x00\x2a\x02", "0x000000002a02 (6 bytes)"),
        (b"\xff", "0xff (1 byte)"),
        (b"a\x1b[2J", "0x611b5b324a (5 bytes)"),
        (b"two\nlines\t", "two␊lines␉"),
    ],
)
def test_null_empty_text_and_bytes_are_told_apart(data: bytes | None, text: str) -> None:
    assert payload(data) == text
    assert Markup(payload_html(data)).text == text


def test_a_cut_never_goes_through_a_character() -> None:
    assert payload("ééé".encode(), 3) == "é… (6 bytes)"
    assert payload(bytes(range(250, 256)) * 100, 4) == "0xfafbfcfd… (600 bytes)"


def test_headers_keep_order_duplicates_and_nulls() -> None:
    assert headers([("b", b"1"), ("a", None), ("b", b"")]) == "b=1, a=‹null›, b=‹empty›"
    assert headers(None) == "–"
    assert headers([("a\x1b[2J", b"\x1b")]) == "a␛[2J=0x1b (1 byte)"


@settings(max_examples=60)
@given(st.lists(st.tuples(CELLS, CELLS), max_size=5), NASTY, NASTY, st.booleans(), st.sampled_from([1, 50, None]))
def test_nothing_gets_out_of_a_table(
    rows: list[tuple[object, object]], title: str, column: str, folded: bool, most: int | None
) -> None:
    found = table(title, [column, "second"], rows, folded=folded)
    assert Markup(found.html(rows=most)).foreign == []
    lines = found.text(rows=most).split("\n")
    assert [line for line in lines if clean(line) != line] == []
    assert len(lines) <= len(rows) + 3


def test_rows_are_capped_with_a_line_that_says_how_many_more() -> None:
    found = table("t", ["n"], [[n] for n in range(1234)])
    assert found.text().endswith("\n49\n… and 1 184 more rows of 1 234")
    assert "… and 1 184 more rows of 1 234" in Markup(found.html()).text
    assert Markup(found.html()).elements.count("tr") == 51
    assert found.text(rows=None).endswith("\n1 233")
    assert table("t", ["n"], [[1], [2]]).text(rows=1).endswith("… and 1 more row of 2")


def test_a_long_cell_is_cut_and_says_so_and_whole_where_everything_is_asked_for() -> None:
    found = table("", ["reason"], [["x" * 1000]])
    assert "x… (1 000 characters)" in found.text()
    assert "x" * 1000 in found.text(rows=None)
    assert "x" * 1000 in found.html(rows=None)


def test_cells_have_their_units() -> None:
    plain = [1234, timedelta(seconds=3.2), NOON, None, True]
    row = [*plain, {"partitions": 3, "configs": {"a": None}}, ("x", 1), badge("behind")]
    found = table("", [str(n) for n in range(len(row))], [row])
    line = found.text(zone=timezone.utc).split("\n")[1]
    assert re.split(r"  +", line.strip()) == [
        *("1 234", "3.2 s", "2026-07-01 12:00:00 UTC", "–", "yes", "partitions=3, configs: a=–", "x, 1", "! behind")
    ]


def test_numbers_and_offsets_stand_to_the_right_whatever_the_script() -> None:
    text = table("", ["offset", "名前", "n"], [["7", "漢字", 1], ["1234567", "é", None]]).text()
    assert text.split("\n") == [" offset  名前  n", "      7  漢字  1", "1234567  é     –"]


def test_a_face_needs_no_style_sheet_no_script_and_no_network() -> None:
    sheet = Sheet(title="t", badge=badge("OK"), parts=("line", table("t", ["a"], [[1]], folded=True)))
    html = sheet.html()
    assert not re.search(r"<(style|script|link|img)|https?:|url\(|class=|id=", html)
    # Every colour comes from the theme, with a fallback for pages that have none.
    assert re.findall(r"var\(--jp-[a-z0-9-]+\)", html) == []


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
    assert split_limits({"objective of f": 30_000}, 20_000) == ({"objective of f": 30_000}, [])
    assert split_limits({"objective of f": 3_600_000}, 20_000) == (
        {},
        ["objective of f: 1 h 0 min, above this picture"],
    )
