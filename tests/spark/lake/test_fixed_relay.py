"""A relay at one version, by the files of a folder and through a session: the same counts, offsets and rows."""

from __future__ import annotations

from typing import Any

from pyspark.sql import SparkSession

from mirrorlake.config.schema import LakeConfig
from mirrorlake.lake import FixedRelay, Lake
from mirrorlake.lake.fixed_relay import FolderRelay, SessionRelay
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.ranges import OffsetRange, Ranges
from mirrorlake.verify.content import content_of, joined, values_of
from tests.kit.lake import LakeBuilder, rows

ZERO = SourcePartition("t", 1, 0)


def test_both_ways_to_read_a_relay_agree(spark: SparkSession, built: LakeBuilder) -> None:
    built.land("t", 0, [1, 2, 5, 6]).land("t", 0, [7, 9])
    # Landed once more, and two partitions in one file.
    built.turn(rows("t", 0, 5, 9), rows("t", 1, 0, 1))
    lake = Lake(spark, LakeConfig(root=str(built.root)))
    folder = lake.fixed_relay("east")
    session = SessionRelay(lake.version(lake.relay_location("east")), lake.relay("east"))
    assert isinstance(folder, FolderRelay)
    assert folder.version == session.version
    assert folder.landed == session.landed
    assert (folder.landed[ZERO].rows, folder.landed[ZERO].records) == (8, 6)

    def read(relay: FixedRelay | Lake, *ranges: tuple[int, int]) -> Any:
        names = ("offset", "timestamp", "key", "value", "headers", "landed_at")
        asked = (ZERO, Ranges(ranges), names)
        batches = list(relay.rows("east", *asked) if isinstance(relay, Lake) else relay.rows(*asked))
        offsets = [offset for batch in batches for offset in batch.column("offset").to_pylist()]
        return offsets, values_of(joined([content_of(batch) for batch in batches])) if batches else []

    for span in (OffsetRange(0, 99), OffsetRange(2, 9), OffsetRange(3, 5), OffsetRange(5, 6)):
        assert read(folder, span) == read(session, span) == read(lake, span), span
        assert folder.offsets(ZERO, span).tolist() == session.offsets(ZERO, span).tolist()
        assert folder.count(ZERO, span) == session.count(ZERO, span)
    assert read(folder, (0, 99))[0] == [1, 2, 5, 6, 7, 9]
    assert read(folder, (0, 3), (6, 8)) == read(session, (0, 3), (6, 8)) == read(lake, (0, 3), (6, 8))
    assert read(lake, (0, 3), (6, 8))[0] == [1, 2, 6, 7]
    assert read(lake) == ([], [])
