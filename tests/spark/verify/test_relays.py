"""A relay at one version, by the files of a folder and through a session: the same counts, offsets and rows; and a job."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mirrorlake.config.schema import LakeConfig
from mirrorlake.errors import ClusterError
from mirrorlake.lake import RELAY, Lake, arrow_table
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.runtime import TaskResult
from mirrorlake.verify import runners
from mirrorlake.verify.content import content_of, joined, values_of
from mirrorlake.verify.feeds import Feed, FetchedPart
from mirrorlake.verify.offset_ranges import OffsetRange
from mirrorlake.verify.relays import FolderRelay, Relay, SessionRelay, open_relay, rows_of_files
from mirrorlake.verify.runners import RunnerChoice, SparkJobRunner
from mirrorlake.verify.unit import ComparisonUnit, UnitResult

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
        assert [rows.column("offset").to_pylist() for rows in rows_of_files(session.files(zero, span), span)] == [
            rows.column("offset").to_pylist() for rows in folder.rows(zero, span)
        ], "a task reads the files itself"
    assert read(folder, OffsetRange(0, 99))[0] == [1, 2, 5, 6, 7, 9]
    assert [file.shared for file in session.files(zero, OffsetRange(0, 99))].count(True) == 1


def test_a_job_gives_back_what_each_unit_found_and_an_error_of_ours_as_such(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(spark, LakeConfig(root=str(tmp_path)))
    lake.create_all(["east"])
    relay = open_relay(lake, "east")
    units = [
        ComparisonUnit(
            alias="east",
            options={"sasl.password": "secret"},
            fetched={TopicPartition("t", number): FetchedPart(span=OffsetRange(0, 0))},
            feeds=(Feed.identity(SourcePartition("t", 1, number), ()),),
            fed_is_source=True,
        )
        for number in range(3)
    ]
    monkeypatch.setattr(runners, "JOB_RECORDS", 0)
    job = RunnerChoice(session=spark).choose([OffsetRange(0, 0)] * 3)
    assert isinstance(job, SparkJobRunner)
    told: list[int] = []

    def compared() -> list[UnitResult]:
        return job.compare(units, fed_by=lambda _: relay, admin=None, tell=told.append)  # type: ignore[arg-type]

    found = compared()
    assert [one.unit.spans for one in found] == [unit.spans for unit in units], "in their order"
    assert [one.unit.options for one in found] == [unit.options for unit in units]
    assert [[each.matched for each in one.by_feed] for one in found] == [[0]] * 3

    def fails(_: tuple[int, ComparisonUnit]) -> Iterator[TaskResult]:
        raise ClusterError("east is on fire", consequence="nothing was compared", remedy="put it out")
        yield

    monkeypatch.setattr(runners, "_compare_in_task", fails)
    with pytest.raises(ClusterError, match="on fire") as failure:
        compared()
    assert failure.value.remedy == "put it out"
