"""Long-lived tasks: they end when they are asked to, together, and in time; and they leave slots to others."""

from __future__ import annotations

import json
import logging
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mirrorlake.errors import StoreError
from mirrorlake.progress import log_context
from mirrorlake.runtime import LiveTasks, LiveTaskSlots, RunMarker, TaskResult, log_file, run_tasks
from tests.kit.processes import wait_until


def live(spark: SparkSession, run_marker: RunMarker, *work: str, grace_s: float = 120.0) -> LiveTasks:
    def each(item: str) -> Iterator[TaskResult]:
        if item == "fails":
            raise StoreError("a disk is full", consequence="nothing was written", remedy="make room")
        while run_marker.exists() or item == "deaf":
            time.sleep(0.05)
        yield TaskResult(item, b"has ended")

    return LiveTasks(spark.newSession(), work, each, run_marker=run_marker, name="test", grace_s=grace_s)


def test_where_one_task_fails_the_others_end_and_its_error_is_raised(spark: SparkSession, tmp_path: Path) -> None:
    with live(spark, RunMarker(tmp_path, 1), "a", "fails", "b") as tasks:
        assert tasks.wait(120), "all have ended"
    with pytest.raises(StoreError, match="a disk is full") as failure:
        tasks.results()
    assert failure.value.remedy == "make room"


def test_a_task_that_does_not_end_is_interrupted(spark: SparkSession, tmp_path: Path) -> None:
    with live(spark, RunMarker(tmp_path, 1), "deaf", grace_s=1.0) as tasks:
        assert not tasks.wait(2)
    with pytest.raises(Exception, match=r"(?i)cancel"):
        tasks.results()


def test_what_a_task_says_is_in_the_log_from_info_on(spark: SparkSession, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIRRORLAKE_LOG", "json")
    mark = uuid.uuid4().hex

    def each(lane: int) -> Iterator[TaskResult]:
        with log_context(flow="a->b", lane=lane):
            logging.getLogger("mirrorlake.test").info("lane.restart why=%s", mark)
        yield TaskResult("done")

    run_tasks(spark, [0, 1], each)

    def said() -> list[str]:
        # Whole lines only: the last one may be under way.
        return [line for line in log_file().read_text(errors="replace").split("\n")[:-1] if mark in line]

    # A local session's workers write where their JVM does; it passes on what they say by a thread of its own.
    wait_until(lambda: len(said()) >= 2, "both lines are in the log")
    lines = [json.loads(line) for line in said()]
    assert sorted((one["flow"], one["lane"], one["event"]) for one in lines) == [
        ("a->b", 0, "lane.restart"),
        ("a->b", 1, "lane.restart"),
    ]


def test_live_tasks_hold_no_more_slots_than_they_may(spark: SparkSession) -> None:
    session = spark.newSession()
    session.conf.set("spark.mirrorlake.liveSlots", "3")
    with LiveTaskSlots(lambda: session, 2) as two:
        with LiveTaskSlots(lambda: session, 2) as more, LiveTaskSlots(lambda: session, 1) as one:
            assert (two.is_enough, more.is_enough, one.is_enough) == (True, False, True)
        with LiveTaskSlots(lambda: session, 1) as again:
            assert again.is_enough, "what was given back is free"
        with (
            LiveTaskSlots(lambda: session, 4, min_count=0) as some,
            LiveTaskSlots(lambda: session, 1, min_count=0) as nothing,
        ):
            assert (some.taken, some.is_enough, nothing.taken, nothing.is_enough) == (1, True, 0, True)
    with LiveTaskSlots(lambda: pytest.fail("no session is needed"), 0) as none:
        assert none.is_enough
