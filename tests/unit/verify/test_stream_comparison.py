"""Two streams of records in order, compared: compacted logs, runs with holes, and digests; no broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from mirrorlake.kafka.fetched_rows import _SCHEMA
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.ranges import OffsetRange, Ranges
from mirrorlake.verify.content import Digest, content_of
from mirrorlake.verify.feeds import Feed, FeedKey, FeedTarget, FetchedPart
from mirrorlake.verify.offset_columns import OffsetColumns
from mirrorlake.verify.stream_comparison import StreamComparison

Row = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...] | None]


def batch(rows: Sequence[Row]) -> pa.RecordBatch:
    columns: list[Any] = [[row[at] for row in rows] for at in range(4)]
    headers = [None if row[4] is None else [{"key": k, "value": v} for k, v in row[4]] for row in rows]
    offsets, stamps, keys, values = columns
    return pa.RecordBatch.from_arrays(
        [
            pa.array(offsets, pa.int64()),
            pa.array([stamp * 1000 for stamp in stamps], pa.int64()).cast(_SCHEMA.field("timestamp").type),
            pa.array([0] * len(rows), pa.int32()),
            pa.array(keys, pa.binary()),
            pa.array(values, pa.binary()),
            pa.array(headers, _SCHEMA.field("headers").type),
        ],
        schema=_SCHEMA,
    )


def tp(number: int) -> TopicPartition:
    return TopicPartition("r", number)


def compacted(rows: list[Row], *, fed_is_source: bool) -> StreamComparison:
    """Return the comparison of a relay that holds these rows with a compacted log."""
    feed = Feed.identity(SourcePartition("r", 1, 0), Ranges([(0, len(rows))]))
    part = FetchedPart(span=OffsetRange(0, len(rows)), compacts=True)
    return StreamComparison([feed], {tp(0): part}, rows=lambda _: iter([batch(rows)]), fed_is_source=fed_is_source)


def test_a_compacted_log_may_lack_what_a_later_record_replaces() -> None:
    rows: list[Row] = [(o, 5, b"%d" % (o % 3), None if o == 4 else b"%d" % o, None) for o in range(9)]
    merge = compacted(rows, fed_is_source=True)
    # Of key 0 the newest is there, of key 1 nothing is, of key 2 the newest is not.
    merge.take(tp(0), batch([rows[5], rows[6]]), 9)
    assert merge.unexplained() == [tp(0)]
    # Meanwhile key 2 was written once more.
    merge.note_survivors(tp(0), batch([(12, 5, b"2", b"new", None)]))
    merge.finish()
    assert [found.offset for found in merge.mismatches] == [7], "law E: of each key only the newest can be a loss"


def test_a_record_and_its_deletion_may_both_have_left_a_compacted_log() -> None:
    rows: list[Row] = [(0, 5, b"k", b"v", None), (1, 5, b"k", None, None), (2, 5, b"n", b"v", None)]
    merge = compacted(rows, fed_is_source=False)
    merge.take(tp(0), batch(rows[2:]), 3)
    merge.finish()
    assert merge.mismatches == []


def runs_of(*runs: tuple[int, int, int, Any]) -> pa.Table:
    names = ("first_upstream", "last_upstream", "first_downstream", "holes")
    holes = pa.list_(pa.struct([("first", pa.int64()), ("length", pa.int64())]))
    schema = pa.schema([*((name, pa.int64()) for name in names[:3]), ("holes", holes)])
    return pa.Table.from_pylist([dict(zip(names, run, strict=True)) for run in runs], schema)


def test_a_record_in_doubt_lies_after_what_nothing_stands_for() -> None:
    rows: list[Row] = [(o, 5, b"k", b"%d" % o, None) for o in range(6)]
    places = OffsetColumns.from_runs(runs_of((0, 2, 0, []), (3, 5, 4, [])), np.zeros(2, np.int64))
    feed = Feed(key=FeedKey("f", SourcePartition("r", 1, 0)), offsets=places, targets=(FeedTarget(tp=tp(0)),))
    fetched = {tp(0): FetchedPart(span=OffsetRange(0, 7))}
    merge = StreamComparison([feed], fetched, rows=lambda _: iter([batch(rows)]), fed_is_source=True)
    merge.take(tp(0), batch([*rows[:3], (3, 5, b"x", b"x", None)]), 4)
    merge.take(tp(0), batch([(o + 1, *row) for o, *row in rows[3:]]), 7)  # type: ignore[misc]
    merge.finish()
    assert [found.offset for found in merge.mismatches] == [3]
    assert merge.by_feed[0].suspects.offsets == {3}, "the next verification looks there again"


@pytest.mark.law("C")
def test_law_c_the_digest_tells_null_from_empty_and_one_place_from_another() -> None:
    def text(*rows: Row) -> str:
        digest = Digest()
        digest.add(np.array([row[0] for row in rows]), content_of(batch(rows)))
        return digest.text()

    plain: Row = (0, 5, b"", b"", None)
    others: list[Row] = [
        (1, 5, b"", b"", None),
        (0, 6, b"", b"", None),
        (0, 5, None, b"", None),
        (0, 5, b"", None, None),
        (0, 5, b"", b"", (("h", None),)),
        (0, 5, b"", b"", (("h", b""),)),
        (0, 5, b"", b"", (("h", b""), ("h", b""))),
    ]
    assert len({text(plain), *map(text, others)}) == len(others) + 1
    assert text((0, 5, b"a", b"bc", None)) != text((0, 5, b"ab", b"c", None))
