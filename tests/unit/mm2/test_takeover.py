"""Where to go on after another mirror: decided by content, or not decided at all."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mirrorlake.mm2.locate import LocatedPosition, SourceRecord, UnknownPosition, digest, locate


def source(text: str, *, first: int = 0) -> list[SourceRecord]:
    return [SourceRecord(first + index, letter.encode()) for index, letter in enumerate(text)]


def tail(text: str) -> list[bytes]:
    return [letter.encode() for letter in text]


@pytest.mark.parametrize(
    ("stored", "upstream", "remote", "expected"),
    [
        pytest.param(3, "abcdef", "abc", LocatedPosition(3, 0, 3), id="stopped cleanly"),
        pytest.param(3, "abcdef", "abcde", LocatedPosition(5, 2, 5), id="killed"),
        pytest.param(0, "abcdef", "abcde", LocatedPosition(5, 5, 5), id="killed before anything was stored"),
        pytest.param(3, "abcdef", "bc", LocatedPosition(3, 0, 2), id="the remote's beginning has expired"),
        pytest.param(
            3, "abcdef", "abcdecde", LocatedPosition(5, 2, 3), id="started again in between: duplicates further back"
        ),
        pytest.param(3, "abcdef", "abcddef", LocatedPosition(6, 3, 3), id="started again past the stored offset"),
        pytest.param(
            6, "abcdef", "xyz", LocatedPosition(6, 0, 0), id="nothing more on the source, whatever the target holds"
        ),
        pytest.param(3, "abc", "", LocatedPosition(3, 0, 0), id="nothing more, and the remote has expired"),
    ],
)
def test_the_end_of_the_remote_decides(stored: int, upstream: str, remote: str, expected: LocatedPosition) -> None:
    assert locate(stored, source(upstream), tail(remote), at_end=True) == expected


@pytest.mark.parametrize(
    ("stored", "upstream", "remote", "why"),
    [
        pytest.param(3, "abcdef", "", "no record to compare", id="the remote has expired"),
        pytest.param(2, "aaaaaa", "aaaaaaaa", "look like the end", id="all records are equal"),
        pytest.param(3, "abcdef", "ab", "does not have there", id="the remote lacks what was stored as sent"),
    ],
)
def test_what_cannot_be_told_is_not_guessed(stored: int, upstream: str, remote: str, why: str) -> None:
    found = locate(stored, source(upstream), tail(remote), at_end=True)
    assert isinstance(found, UnknownPosition), found
    assert why in found.why


def test_more_is_read_where_more_may_tell() -> None:
    assert locate(1, source("abc"), tail("abcdef"), at_end=False) == UnknownPosition(
        "the end of the remote partition holds records that the source does not have there", more=True
    )


@pytest.mark.law("F")
@settings(max_examples=1000)
@given(st.lists(st.sampled_from([b"a", b"b", b"c", b"d"]), min_size=1, max_size=12), st.data())
def test_law_f_no_record_is_skipped_or_repeated(contents: list[bytes], data: st.DataObject) -> None:
    """Whatever the contents and wherever it was killed: the true place, or no answer."""
    steps = data.draw(st.lists(st.integers(1, 3), min_size=len(contents), max_size=len(contents)))
    offsets = [sum(steps[: index + 1]) for index in range(len(contents))]
    around = [SourceRecord(offset, content) for offset, content in zip(offsets, contents, strict=True)]
    sent = data.draw(st.integers(0, len(contents)))
    stored_count = data.draw(st.integers(0, sent))
    stored = offsets[stored_count - 1] + 1 if stored_count else 0
    kept = data.draw(st.integers(0, sent))
    found = locate(stored, around, contents[sent - kept : sent], at_end=True)
    if isinstance(found, LocatedPosition):
        unsent = [offset for offset in offsets if offset >= found.position]
        assert unsent == offsets[sent:]


@given(st.data())
def test_contents_differ_where_records_differ(data: st.DataObject) -> None:
    part = st.binary(max_size=4) | st.none()
    record = st.tuples(
        part, part, st.lists(st.tuples(st.text(max_size=2), part), max_size=2), st.integers(0, 3) | st.none()
    )
    first, second = data.draw(record), data.draw(record)
    assert (digest(*first) == digest(*second)) == (first == second)
