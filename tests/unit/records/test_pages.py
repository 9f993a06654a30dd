"""Pages of a log that is known: by offset, by time, from the end, of several partitions, and by what records hold."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.errors import UsageError
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.gaps import GAP_KINDS
from mirrorlake.model.ranges import Ranges
from mirrorlake.records import BrowsedRecord, Match, Page, Passport, Seek, read_page
from mirrorlake.records.log import HeldOffsets
from mirrorlake.records.page import Side
from mirrorlake.records.record import WHY_MISSING, LandedIn, Missing, Outcome, in_words
from mirrorlake.render import document
from tests.builders import browsed, passport_of
from tests.unit.markup import unwrapped

START = datetime(2026, 11, 22, 3, tzinfo=timezone.utc)
START_MS = int(START.timestamp() * 1000)


class Known:
    """A log whose records are known; an offset without one is a marker, with the time of its commit."""

    cluster = "east"
    side: Side = "cluster"
    topic = "orders"

    def __init__(
        self,
        records: Iterable[BrowsedRecord],
        *,
        ends: Mapping[int, int],
        first: int = 0,
        markers: Mapping[int, int] | None = None,
    ) -> None:
        self.records = list(records)
        self.held = {partition: HeldOffsets(first=first, end=end) for partition, end in ends.items()}
        self._markers = markers or {}
        self.read_offsets: list[int] = []

    def read(self, partition: int, start: int, stop: int) -> Iterator[BrowsedRecord]:
        for one in self.records:
            if one.partition == partition and start <= one.offset < stop:
                self.read_offsets.append(one.offset)
                yield one

    def from_time(self, partitions: Iterable[int], at: datetime) -> dict[int, int]:
        """As a broker does: the first offset of this time or later, a marker's as well."""
        at_ms = int(at.timestamp() * 1000)
        found = {}
        for partition in partitions:
            times = {one.offset: one.timestamp_ms for one in self.records if one.partition == partition}
            times |= self._markers
            later = [offset for offset, ms in times.items() if ms >= at_ms]
            found[partition] = min(later, default=self.held[partition].end)
        return found

    def explain(self, partition: int, absent: Ranges) -> tuple[Missing, ...]:
        assert partition in self.held
        return tuple(Missing(first=first, last=end - 1, kind="absent") for first, end in absent)


def record(offset: int, minute: float = 0, partition: int = 0, **parts: Any) -> BrowsedRecord:
    return browsed(offset, partition=partition, timestamp_ms=START_MS + int(minute * 60_000), **parts)


def offsets(page: Page) -> list[int]:
    return [one.offset for one in page.records]


def pages(log: Known, count: int, *, backward: bool) -> list[BrowsedRecord]:
    """Return what all pages hold, from the end or from the beginning."""
    page = read_page(log, Seek(count=count) if backward else Seek(count=count, after=dict.fromkeys(log.held, 0)))
    read: list[BrowsedRecord] = []
    while page.records:
        read = [*page.records, *read] if backward else [*read, *page.records]
        step: dict[str, Any] = {"before": page.starts} if backward else {"after": page.nexts}
        page = read_page(log, Seek(count=count, **step))
    return read


def minutes(number: float) -> datetime:
    return START + timedelta(minutes=number)


def test_a_time_past_the_end_is_said_with_the_newest_there_is() -> None:
    log = Known([record(0), record(1, 10)], ends={0: 4}, markers={3: START_MS + 9_000_000})
    page = read_page(log, Seek(at=minutes(60)))
    assert page.records == ()
    assert page.note == "no record is of 2026-11-22 04:00:00 UTC or later; the newest is of 2026-11-22 03:10:00 UTC"
    assert page.note in page.to_text()
    assert "none at all" in read_page(Known([], ends={0: 0}), Seek(at=START)).note
    assert "none at all" in read_page(Known([], ends={0: 5}, first=5), Seek(at=START)).note


def test_the_newest_page_steps_over_what_holds_no_record() -> None:
    log = Known([record(offset) for offset in (*range(10), 40, 41)], ends={0: 1000})
    page = read_page(log, Seek(count=5))
    assert offsets(page) == [7, 8, 9, 40, 41]
    assert page.is_last
    assert (page.start, page.next) == (7, 1000)
    assert offsets(read_page(log, Seek(count=5, before=page.starts))) == [2, 3, 4, 5, 6]


def test_partitions_are_merged_by_time_and_pages_follow_each_other_without_a_gap() -> None:
    records = [record(offset, minute=offset * 3 + p, partition=p) for p in range(3) for offset in range(10)]
    log = Known(records, ends=dict.fromkeys(range(3), 10))
    wanted = sorted(records, key=lambda one: one.timestamp_ms)
    for backward in (True, False):
        assert pages(log, 7, backward=backward) == wanted


@given(st.data())
def test_whatever_the_times_each_record_is_on_one_page_and_in_order(data: st.DataObject) -> None:
    times = data.draw(st.lists(st.lists(st.integers(0, 5), max_size=8), min_size=1, max_size=3))
    records = [record(o, minute, p) for p, minutes in enumerate(times) for o, minute in enumerate(minutes)]
    log = Known(records, ends={p: len(minutes) + 2 for p, minutes in enumerate(times)})
    count = data.draw(st.integers(1, 5))
    for backward in (True, False):
        read = pages(log, count, backward=backward)
        for partition in log.held:
            mine = [one.offset for one in read if one.partition == partition]
            assert mine == list(range(len(times[partition]))), "none twice, none left out, in order (law D)"


@pytest.mark.law("E")
def test_law_e_offsets_before_what_is_held_and_between_records_are_explained() -> None:
    log = Known([record(6), record(8)], ends={0: 10}, first=5)
    page = read_page(log, Seek(offset=2))
    assert (page.start, page.next) == (5, 10)
    missing = [offset for one in page.missing for offset in range(one.first, one.last + 1)]
    assert sorted([*missing, *offsets(page)]) == list(range(2, 10))


def orders(count: int) -> list[BrowsedRecord]:
    return [
        record(n, n / 100, key=f"k{n % 10}".encode(), value=json.dumps({"customer": {"id": n % 7}, "n": n}).encode())
        for n in range(count)
    ]


@pytest.mark.parametrize(
    ("asked", "found"),
    [
        ({"key": "k3"}, [3, 13, 23]),
        ({"key": b"k3"}, [3, 13, 23]),
        ({"contains": '"n": 2'}, [2, 20, 21]),
        ({"where": "$.customer.id = 6"}, [6, 13, 20]),
        ({"where": "value.customer.id = 6 AND value.n > 6"}, [13, 20, 27]),
        ({"where": "$['customer'].id = 6 AND key = 'k3'"}, [13, 83]),
        ({"where": "value.n = '$.n' OR offset = 9"}, [9]),
        ({"key": "k3", "contains": '"id": 6'}, [13, 83]),
        ({"key": ""}, []),
    ],
)
def test_records_are_found_by_what_they_hold(asked: dict[str, Any], found: Sequence[int]) -> None:
    log = Known(orders(90), ends={0: 90})
    match = Match.of(**{"key": None, "contains": None, "where": "", **asked})
    page = read_page(log, Seek(offset=0, count=3, match=match))
    assert offsets(page) == list(found)
    assert page.missing == (), "what does not match is not missing"
    newest = read_page(log, Seek(count=3, match=match))
    everything = offsets(read_page(log, Seek(offset=0, count=1000, match=match)))
    assert offsets(newest) == everything[-3:]


def test_odd_records_do_not_match_and_do_not_fail() -> None:
    framed = b"\x00\x00\x00\x00\x07" + b'{"a": 1}'
    values = [None, b"", b"\xff\xfe", b"{", b"[]", b"7", b'{"a": 1}', b'{"a": null}', framed]
    log = Known([record(n, value=value, key=None) for n, value in enumerate(values)], ends={0: len(values)})

    def found(**asked: Any) -> list[int]:
        match = Match.of(**{"key": None, "contains": None, "where": "", **asked})
        return offsets(read_page(log, Seek(offset=0, match=match)))

    assert found(where="$.a = 1") == [6, 8], "a schema registry's frame is read past"
    assert found(contains=b"\xfe") == [2]
    assert found(where="value IS NULL") == [0]
    assert found(key="k") == []
    headers = [record(0, headers=(("h", None), ("h", b"x"))), record(1)]
    log = Known(headers, ends={0: 2})
    assert found(where="headers['h'] = 'x'") == [0]


@pytest.mark.parametrize("backward", [True, False])
def test_a_search_says_how_far_it_looked_and_goes_on_from_there(backward: bool) -> None:
    log = Known(orders(5000), ends={0: 5000})
    match = Match.of(key=None, contains='"n": 4999}' if not backward else '"n": 0}', where="")
    seek: dict[str, Any] = {} if backward else {"offset": 0}
    page = read_page(log, Seek(match=match, look=2000, **seek))
    assert page.records == ()
    assert 2000 <= page.looked <= 3000
    assert "looked through" in page.note
    assert "there are more" in page.note
    looks = 1
    while not page.records:
        step: dict[str, Any] = {"before": page.starts} if backward else {"after": page.nexts}
        page = read_page(log, Seek(match=match, look=2000, **step))
        looks += 1
    assert offsets(page) == [0 if backward else 4999]
    assert looks <= 3
    assert sorted(log.read_offsets) == list(range(5000)), "each record is read once"


def test_an_offset_is_of_one_partition() -> None:
    log = Known([], ends={0: 0, 1: 0})
    with pytest.raises(UsageError, match="2 partitions"):
        read_page(log, Seek(offset=3))
    page = read_page(log, Seek())
    assert page.as_dict()["partition"] is None
    with pytest.raises(ValueError, match="several partitions"):
        _ = page.start
    page = read_page(Known([record(0)], ends={0: 3}), Seek(partition=0))
    missing = [{"first": 1, "last": 2, "kind": "absent", "why": page.missing[0].why}]
    told = {"partition": 0, "first": 0, "start": 0, "next": 3, "end": 3, "generation": None, "missing": missing}
    assert page.as_dict().items() >= told.items()


@pytest.mark.law("E")
def test_law_e_every_kind_of_gap_has_words() -> None:
    assert set(GAP_KINDS) <= set(WHY_MISSING)
    for kind in WHY_MISSING:
        assert str(Missing(first=3, last=4, kind=kind)).startswith("offsets 3 to 4: ")


@pytest.mark.law("C")
@given(st.none() | st.binary(max_size=20))
def test_law_c_payloads_survive_json(data: bytes | None) -> None:
    told = json.loads(json.dumps(document(data)))
    back = None if told is None else told["text"].encode() if "text" in told else base64.b64decode(told["base64"])
    assert back == data


def test_a_passport_says_how_long_each_step_took() -> None:
    noon = 1_767_268_800_000
    sent = Outcome(flow="east->west", target="west", status="republished", words="there", committed_at_ms=noon + 352)
    landed = LandedIn(file="file:/x", landed_at_ms=noon + 310)
    passport = passport_of(7, sent, record=browsed(timestamp_ms=noon), landed=landed)
    for shown in (passport.to_text(zone=timezone.utc), unwrapped(passport.to_html(zone=timezone.utc))):
        assert "2026-01-01 12:00:00.000 UTC" in shown
        assert "2026-01-01 12:00:00.310 UTC (+310 ms)" in shown
        assert "2026-01-01 12:00:00.352 UTC (+42 ms)" in shown
    early = passport_of(7, record=browsed(timestamp_ms=noon + 500), landed=landed)
    assert "(-190 ms)" in early.to_text(zone=timezone.utc), "the producer's clock is ahead"


def test_a_passport_says_plainly_where_law_e_does_not_hold() -> None:
    source, place = SourcePartition("orders", 1, 0), TopicPartition("east.orders", 0)
    sent = Outcome(flow="a", target="t", status="republished", words="t", place=place, offset=1, lane=0, ledger_seq=2)
    lost = Outcome(flow="b", target="t", status="unexplained", words="NOT accounted for")
    words = in_words("east", source, 7, None, (sent, lost))
    passport = passport_of(7, sent, lost, words=words)
    assert "NOT accounted for in 1" in words
    assert not passport.accounted_for
    assert "✗ not accounted for" in str(passport)
    assert passport.as_dict()["accounted_for"] is False
    for kind, accounted_for in (("unexplained", False), ("compacted", True)):
        missing = Missing(first=7, last=7, kind=kind)
        found = Passport(cluster="e", source=source, offset=7, words="", missing=missing)
        assert found.accounted_for == accounted_for


@pytest.mark.parametrize(
    "seek",
    [{"count": 0}, {"count": 1001}, {"offset": -1}, {"max_bytes": 0}, {"look": 0}, {"offset": 1, "before": {0: 1}}],
)
def test_what_cannot_be_asked_is_refused_before_anything_is_read(seek: dict[str, Any]) -> None:
    with pytest.raises(UsageError):
        Seek(**seek)
