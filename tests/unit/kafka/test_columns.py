"""Arrow columns become produce arguments without losing a null, a duplicate or a millisecond (law C)."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.kafka.lane.columns import Unsendable, binary_values, header_lists, timestamps_ms
from mirrorlake.model.late_times import EARLIER_US, LATER_US

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
header = st.tuples(st.text("ab-ключ", max_size=4), st.none() | st.binary(max_size=4))


@pytest.mark.law("C")
@given(st.lists(st.none() | st.lists(header, max_size=5), min_size=1, max_size=20), st.data())
def test_law_c_headers_keep_order_duplicates_and_nulls(rows: list[Any], data: st.DataObject) -> None:
    array = pa.array([None if row is None else [{"key": k, "value": v} for k, v in row] for row in rows], HEADERS)
    start = data.draw(st.integers(0, len(rows) - 1))
    found = header_lists(array.slice(start))
    expected = [row or None for row in rows[start:]]
    assert [h for h, _ in zip(found, expected, strict=False)] == expected, "law C"


@pytest.mark.law("C")
def test_law_c_a_header_key_that_was_not_utf8_is_refused_with_its_row() -> None:
    rows = [[{"key": "a", "value": b"1"}], [], [{"key": "x", "value": None}, {"key": "\ufffd", "value": b""}]]
    with pytest.raises(Unsendable, match="header 1 is not UTF-8") as refused:
        header_lists(pa.array(rows, HEADERS))
    assert refused.value.row == 2


@pytest.mark.law("C")
@given(st.lists(st.integers(-1, 2**42).filter(bool), min_size=1, max_size=20))
def test_law_c_timestamps_keep_their_milliseconds(stamps: list[int]) -> None:
    for unit, factor in (("us", 1000), ("ms", 1)):
        column = pa.array([stamp * factor for stamp in stamps], pa.timestamp(unit, tz="UTC"))
        assert timestamps_ms(column).to_pylist() == stamps, "law C"


@pytest.mark.law("C")
@pytest.mark.parametrize(
    ("us", "why"), [(0, "timestamp is 0"), (LATER_US, "past the year 9999"), (EARLIER_US, "before the year 1")]
)
def test_law_c_a_timestamp_that_librdkafka_or_the_relay_would_change_is_refused(us: int, why: str) -> None:
    with pytest.raises(Unsendable, match=why) as refused:
        timestamps_ms(pa.array([5_000, us, 7_000], pa.timestamp("us", tz="UTC")))
    assert refused.value.row == 1


@pytest.mark.law("C")
@given(st.lists(st.none() | st.sampled_from([b"", b"k", b"x" * 200_000]), min_size=1, max_size=12), st.data())
def test_law_c_values_that_are_copied_a_few_at_a_time_are_all_there(rows: list[Any], data: st.DataObject) -> None:
    start = data.draw(st.integers(0, len(rows) - 1))
    assert list(binary_values(pa.array(rows, pa.binary()).slice(start))) == rows[start:], "law C"
