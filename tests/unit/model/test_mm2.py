"""MirrorMaker 2's records: the bytes of the real Java classes, round trips, and bytes that nobody can read."""

from __future__ import annotations

import itertools
from typing import Any, NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.model.mm2 import (
    Checkpoint,
    Heartbeat,
    Mm2FormatError,
    Mm2Names,
    OffsetSync,
    SourceOffset,
    decode_all,
    syncs_of,
)
from mirrorlake.model.offset_map import MappedRange
from tests.builders import run_over

INT64 = st.integers(-(2**63), 2**63 - 1)
INT32 = st.integers(-(2**31), 2**31 - 1)
TEXT = st.text(st.characters(codec="utf-8"), max_size=300)

# Printed by the Java classes of connect-mirror-client.
GOLDEN = [
    (OffsetSync("orders", 3, 1234567890123, 42), "00066f726465727300000003", "0000011f71fb04cb000000000000002a"),
    (
        Checkpoint("billing", "A.orders", 3, 1000, 987),
        "000762696c6c696e670008412e6f726465727300000003",
        "000000000000000003e800000000000003db0000",
    ),
    (
        Checkpoint("grüppe", "A.orders", 0, 0, 0, "mé"),
        "00076772c3bc7070650008412e6f726465727300000000",
        "00000000000000000000000000000000000000036dc3a9",
    ),
    (Heartbeat("A", "B", 1700000000000), "000141000142", "00000000018bcfe56800"),
]


class Row(NamedTuple):
    offset: int
    key: bytes | None
    value: bytes | None
    partition: int = 0


@given(
    st.one_of(
        st.builds(OffsetSync, TEXT, INT32, INT64, INT64),
        st.builds(Checkpoint, TEXT, TEXT, INT32, INT64, INT64, TEXT),
        st.builds(Heartbeat, TEXT, TEXT, INT64),
    )
)
def test_what_is_written_is_read_back(record: Any) -> None:
    assert type(record).from_record(record.key(), record.value()) == record


@pytest.mark.parametrize(("record", "key", "value"), GOLDEN, ids=lambda value: str(value)[:40])
def test_the_bytes_are_those_of_java_and_no_shorter_or_longer_ones(record: Any, key: str, value: str) -> None:
    good_key, good_value = record.key(), record.value()
    assert (good_key.hex(), good_value.hex()) == (key, value)
    assert type(record).from_record(good_key, good_value) == record
    for cut in range(len(good_value)):
        with pytest.raises(Mm2FormatError):
            type(record).from_record(good_key, good_value[:cut])
    for cut in range(len(good_key)):
        with pytest.raises(Mm2FormatError):
            type(record).from_record(good_key[:cut], good_value)
    with pytest.raises(Mm2FormatError, match="too many"):
        type(record).from_record(good_key, good_value + b"\0")


def test_malformed_records_and_tombstones_are_skipped_with_their_place() -> None:
    good = Checkpoint("billing", "east.orders", 0, 5, 4)
    later_version = b"\0\1" + good.value()[2:]
    rows = [
        Row(10, good.key(), good.value()),
        Row(11, good.key(), None),
        Row(12, None, good.value()),
        Row(13, good.key(), later_version),
        Row(14, b"\xff\xff", good.value()),
        Row(15, good.key(), good.value()),
    ]
    found = decode_all("east.checkpoints.internal", rows, Checkpoint.from_record)
    assert found.values == [good, good]
    assert [str(skipped) for skipped in found.skipped] == [
        "east.checkpoints.internal-0@11: a tombstone",
        "east.checkpoints.internal-0@12: no key",
        "east.checkpoints.internal-0@13: version 1; this release reads 0",
        "east.checkpoints.internal-0@14: the key holds a text of -1 bytes",
    ]


def test_a_text_that_does_not_fit_is_refused_when_written() -> None:
    with pytest.raises(Mm2FormatError, match="at most 32767"):
        Checkpoint("g" * 32768, "t", 0, 0, 0).key()


def test_a_separator_is_in_the_names_of_internal_topics_unless_it_is_disabled() -> None:
    named = [Mm2Names("_", for_internal).offset_syncs("east") for for_internal in (True, False)]
    assert named == ["mm2-offset-syncs_east_internal", "mm2-offset-syncs.east.internal"]


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        (
            b'["MirrorSourceConnector",{"topic":"orders","cluster":"A","partition":2}]',
            b'{"offset":41}',
            SourceOffset("MirrorSourceConnector", "A", "orders", 2, 41),
        ),
        (
            b'["MirrorSourceConnector",{"cluster":"A","partition":2,"topic":"orders"}]',
            None,
            SourceOffset("MirrorSourceConnector", "A", "orders", 2, None),
        ),
        (b'["MirrorCheckpointConnector",{"group":"g","topic":"A.t","partition":0}]', b'{"offset":0}', None),
        (b'["file-source",{"filename":"x"}]', b'{"position":1}', None),
    ],
)
def test_source_offsets_of_connect_are_read(key: bytes, value: bytes | None, expected: SourceOffset | None) -> None:
    assert SourceOffset.from_record(key, value) == expected
    if expected is not None:
        assert SourceOffset.from_record(expected.key(), expected.value()) == expected


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b"not json", b"{}"),
        (b'{"a":1}', b"{}"),
        (b'["c",{"cluster":"A","partition":"2","topic":"t"}]', b'{"offset":1}'),
        (b'["c",{"cluster":"A","partition":-2,"topic":"t"}]', b'{"offset":1}'),
        (b'["c",{"cluster":"A","partition":2,"topic":"t"}]', b'{"offset":-1}'),
        (b'["c",{"cluster":"A","partition":2,"topic":"t"}]', b"[1]"),
    ],
)
def test_source_offsets_that_say_nothing_are_refused(key: bytes | None, value: bytes) -> None:
    with pytest.raises(Mm2FormatError):
        SourceOffset.from_record(key, value)


@st.composite
def runs(draw: st.DrawFn) -> MappedRange:
    """Return a run with holes by chance."""
    steps = draw(st.lists(st.integers(1, 4), max_size=60))
    offsets = [draw(st.integers(0, 1000))]
    for step in steps:
        offsets.append(offsets[-1] + step)
    return run_over(offsets, draw(st.integers(0, 1000)))


@given(runs(), st.integers(1, 20))
def test_syncs_are_pairs_of_the_map_with_the_first_and_the_last(run: MappedRange, every: int) -> None:
    syncs = list(syncs_of(run, every=every))
    for sync in syncs:
        assert run.downstream_of(sync.upstream_offset) == sync.downstream_offset
    assert (syncs[0].upstream_offset, syncs[-1].upstream_offset) == (run.first_upstream, run.last_upstream)
    places = [sync.downstream_offset for sync in syncs]
    assert all(0 < after - before <= every for before, after in itertools.pairwise(places))


@pytest.mark.law("A")
@given(runs(), st.integers(1, 20), st.integers(0, 300))
def test_law_a_what_mirrormaker_makes_of_the_syncs_is_never_ahead(run: MappedRange, every: int, ahead: int) -> None:
    """`OffsetSyncStore.translateDownstream`: the last sync at or before the group, plus one unless it is exact."""
    group = run.first_upstream + ahead
    sync = max(s for s in syncs_of(run, every=every) if s.upstream_offset <= group)
    translated = sync.downstream_offset + (sync.upstream_offset != group)
    unread = [u for u in range(group, run.last_upstream + 1) if run.downstream_of(u) is not None]
    limit = run.downstream_of(unread[0]) if unread else run.last_downstream + 1
    assert limit is not None
    assert translated <= limit, "law A: a record would be skipped"
    if not unread:
        assert translated == limit, "a group at the end is exact"
