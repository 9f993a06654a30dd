"""A relay at one version, by the files of a folder and through a session: the same counts, offsets and rows."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from mirrorlake.config.schema import LakeConfig
from mirrorlake.lake import Lake
from mirrorlake.model.flow import SourcePartition
from mirrorlake.verify.content import content_of, joined, values_of
from mirrorlake.verify.offset_ranges import OffsetRange
from mirrorlake.verify.relays import FolderRelay, Relay, SessionRelay, open_relay
from tests.kit.lake import LakeBuilder, rows


def test_both_ways_to_read_a_relay_agree(spark: SparkSession, built: LakeBuilder) -> None:
    built.land("t", 0, [1, 2, 5, 6]).land("t", 0, [7, 9])
    # Landed once more, and two partitions in one file.
    built.turn(rows("t", 0, 5, 9), rows("t", 1, 0, 1))
    lake = Lake(spark, LakeConfig(root=str(built.root)))
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
