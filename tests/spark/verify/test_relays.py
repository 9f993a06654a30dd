"""A relay at one version, by the files of a folder and through a session: the same counts, offsets and rows."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

from mirrorlake.config.schema import LakeConfig
from mirrorlake.lake import RELAY, Lake, arrow_table
from mirrorlake.model.flow import SourcePartition
from mirrorlake.verify.content import content_of, joined, values_of
from mirrorlake.verify.offset_ranges import OffsetRange
from mirrorlake.verify.relays import FolderRelay, Relay, SessionRelay, open_relay

AT = datetime(2026, 11, 22, 9, 30, tzinfo=timezone.utc)


def rows(partition: int, offsets: list[int], landed_at: datetime) -> list[dict[str, Any]]:
    return [
        {
            "topic": "t",
            "generation": 1,
            "partition": partition,
            "offset": offset,
            "timestamp": AT + timedelta(milliseconds=offset),
            "timestamp_type": 0,
            "key": None if offset % 3 else b"k",
            "value": b"%d" % offset,
            "headers": [{"key": "h", "value": None}] if offset % 2 else None,
            "landed_at": landed_at,
        }
        for offset in offsets
    ]


def test_both_ways_to_read_a_relay_agree(spark: SparkSession, tmp_path: Path) -> None:
    lake = Lake(spark, LakeConfig(root=str(tmp_path)))
    lake.create_all(["east"])
    parts = [
        rows(0, [1, 2, 5, 6], AT),
        rows(0, [7, 9], AT + timedelta(seconds=1)),
        # Landed once more, and two partitions in one file.
        [*rows(0, [5, 9], AT + timedelta(seconds=2)), *rows(1, [0, 1], AT + timedelta(seconds=2))],
    ]
    for part in parts:
        frame = spark.createDataFrame(arrow_table(RELAY, part)).coalesce(1)
        lake.append(frame, lake.relay_location("east"))
    folder = open_relay(lake, "east")
    session = SessionRelay(lake, "east")
    assert isinstance(folder, FolderRelay)
    assert folder.version == session.version
    assert folder.landed == session.landed
    zero = SourcePartition("t", 1, 0)
    assert (folder.landed[zero].rows, folder.landed[zero].records) == (8, 6)
    assert list(folder.doubled()) == list(session.doubled()) == [zero]

    def read(relay: Relay, span: OffsetRange) -> Any:
        batches = list(relay.rows(zero, span))
        offsets = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
        return offsets, values_of(joined([content_of(batch) for batch in batches])) if batches else []

    for span in (OffsetRange(0, 99), OffsetRange(2, 9), OffsetRange(3, 5), OffsetRange(5, 6)):
        assert read(folder, span) == read(session, span), span
        assert folder.offsets(zero, span).tolist() == session.offsets(zero, span).tolist()
        assert folder.count(zero, span) == session.count(zero, span)
    assert read(folder, OffsetRange(0, 99))[0] == [1, 2, 5, 6, 7, 9]
