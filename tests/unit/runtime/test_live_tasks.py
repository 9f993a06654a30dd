"""Long-lived tasks, of a cluster and of this process: how they are told to go on, wait for slots, fail and end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.errors import StoreError
from mirrorlake.runtime import LiveTasks, RunMarker, TaskResult, find_failure, live_tasks
from mirrorlake.runtime.tasks import run_in_threads
from tests.unit.runtime.test_workers import Cluster

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
    monkeypatch.setenv("MIRRORLAKE_TIMING", "slot_timeout_s=5,heartbeat_interval_s=0.05")

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


@pytest.mark.law("F")
def test_law_f_an_owner_ends_the_tasks_of_owners_before_it_only(tmp_path: Path) -> None:
    first, second, again = (
        RunMarker(tmp_path / "live", 9),
        RunMarker(tmp_path / "live", 10),
        RunMarker(tmp_path / "live", 10),
    )
    assert not first.exists()
    first.create()
    assert first.exists()
    second.create()
    assert (first.exists(), second.exists()) == (False, True), "the newer owner has ended the older one's"
    first.create()
    assert second.exists(), "an owner that wakes leaves those after it alone"
    again.create()
    assert (second.exists(), again.exists()) == (False, True), "the next tasks of one owner end those before them"
    again.remove()
    again.remove()
    assert not again.exists()


def answered(item: str) -> Iterator[TaskResult]:
    yield TaskResult("begun", item.encode())
    if item == "full":
        raise StoreError("a disk is full", consequence="nothing was written", remedy="make room")
    if item == "broken":
        raise OSError(28, "No space left on device")


def test_all_items_come_to_their_end_an_own_error_is_an_answer_and_an_unforeseen_one_is_raised() -> None:
    answers = run_in_threads(["full", "a", "b"], answered)
    assert sorted(one.body for one in answers if one.kind == "begun") == [b"a", b"b", b"full"]
    failure = find_failure(answers)
    assert isinstance(failure, StoreError)
    assert (failure.cause, failure.remedy) == ("a disk is full", "make room")
    with pytest.raises(OSError, match="No space left"):
        run_in_threads(["a", "broken"], answered)


def test_tasks_that_end_apart_come_each_to_its_own_end_and_an_error_of_one_leaves_the_others_to_go_on(
    tmp_path: Path,
) -> None:
    run_marker, others = RunMarker(tmp_path / "live", 1), threading.Event()

    def ends(item: str) -> Iterator[TaskResult]:
        if item == "full":
            others.set()
            raise StoreError("a disk is full", consequence="nothing was written", remedy="make room")
        others.wait()
        yield TaskResult("goes on" if run_marker.exists() else "asked to end")

    with LiveTasks(
        None, ["full", "a"], ends, run_marker=run_marker, name="test", grace_s=30.0, end_apart=True
    ) as tasks:
        assert tasks.wait(30.0)
    assert [one.kind for one in tasks._results if one.kind != "error"] == ["goes on"]
    with pytest.raises(StoreError, match="a disk is full"):
        tasks.results()
