"""Long-lived tasks on a cluster, where a task may wait for a slot for ever, and where Spark tries again what failed."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.errors import StoreError
from mirrorlake.runtime import LiveTasks, RunMarker, TaskResult, live_tasks, task_heartbeats
from tests.unit.runtime.test_workers import Cluster, Shared

Each = Callable[[Any], Iterator[TaskResult]]


class Busy(Cluster):
    """A cluster with fewer slots than tasks; the rest wait until somebody interrupts their jobs."""

    def __init__(self, slots: int) -> None:
        super().__init__()
        self.slots = slots
        self.interrupted = threading.Event()

    def interruptAll(self) -> None:  # noqa: N802  as Spark's
        self.interrupted.set()

    def run(self, _: Any, work: Sequence[Any], each: Each) -> list[TaskResult]:
        def one(item: Any) -> None:
            for _ in each(item):
                pass

        for item in work[: self.slots]:
            threading.Thread(target=one, args=(item,), daemon=True).start()
        self.interrupted.wait(60)
        raise RuntimeError("Job 0 cancelled")


def live(spark: Cluster, run_marker: RunMarker, work: list[str], each: Each) -> LiveTasks:
    return LiveTasks(spark, work, each, run_marker=run_marker, name="test", grace_s=0.1)  # type: ignore[arg-type]


def test_a_task_without_a_slot_is_told_in_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spark, run_marker = Busy(slots=2), RunMarker(tmp_path / "live", 1)
    monkeypatch.setattr(live_tasks, "run_tasks", spark.run)
    # Two threads have begun by then, also on a busy machine.
    monkeypatch.setattr(live_tasks, "SLOT_TIMEOUT_S", 5.0)
    monkeypatch.setattr(task_heartbeats, "INTERVAL_S", 0.05)

    def each(_: str) -> Iterator[TaskResult]:
        while run_marker.exists():
            threading.Event().wait(0.02)
        yield TaskResult("ended")

    with live(spark, run_marker, ["a", "b", "c"], each) as running:
        while not running.wait(0.1):
            pass
    with pytest.raises(StoreError, match="1 of 3 long-lived tasks") as told:
        running.results()
    assert "spark.mirrorlake.liveSlots" in told.value.remedy


@pytest.mark.law("F")
def test_what_a_task_met_is_not_lost_when_spark_tries_it_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def tried_again(_: Any, work: Sequence[Any], each: Each) -> list[TaskResult]:
        for _ in range(4):
            try:
                return [answer for item in work for answer in each(item)]
            except OSError:
                continue
        raise RuntimeError("Task 0 failed 4 times")

    def each(_: str) -> Iterator[TaskResult]:
        if run_marker.exists():
            raise OSError(28, "No space left on device")
        yield TaskResult("ended")

    monkeypatch.setattr(live_tasks, "run_tasks", tried_again)
    run_marker = RunMarker(tmp_path / "live", 1)
    with live(Cluster(), run_marker, ["a"], each) as running:
        assert running.wait(30)
    with pytest.raises(live_tasks.TaskFailed, match="No space left on device"):
        running.results()


def test_a_worker_without_the_folder_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def elsewhere(_: Any, work: Sequence[Any], each: Each) -> list[TaskResult]:
        monkeypatch.chdir(tmp_path)
        return [answer for item in work for answer in each(item)]

    def each(_: str) -> Iterator[TaskResult]:
        yield TaskResult("ended")

    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(live_tasks, "run_tasks", elsewhere)
    with live(Cluster(), RunMarker("live", 1), ["a"], each) as running:
        assert running.wait(30)
    with pytest.raises(StoreError, match="does not see the lake's checkpoints"):
        running.results()


def test_over_connect_only_the_jobs_of_the_tasks_that_lack_a_slot_are_interrupted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark, run_marker, ended = Shared(), RunMarker(tmp_path / "live", 1), threading.Event()

    def run(*_: Any) -> list[TaskResult]:
        while not spark.interrupted:
            ended.wait(0.02)
        raise RuntimeError("Job 0 cancelled")

    monkeypatch.setattr(live_tasks, "run_tasks", run)
    monkeypatch.setattr(live_tasks, "SLOT_TIMEOUT_S", 0.2)
    monkeypatch.setattr(task_heartbeats, "INTERVAL_S", 0.05)
    with live(spark, run_marker, ["a"], lambda _: iter(())) as running:
        while not running.wait(0.1):
            pass
    with pytest.raises(StoreError, match="1 of 1 long-lived tasks"):
        running.results()
    assert len(set(spark.interrupted)) == 1
