"""Work that this process does itself, without Spark: answers and errors are those of a task."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mirrorlake.errors import StoreError
from mirrorlake.runtime import LiveTasks, RunMarker, TaskResult, find_failure
from mirrorlake.runtime.tasks import run_in_threads


def each(item: str) -> Iterator[TaskResult]:
    yield TaskResult("begun", item.encode())
    if item == "full":
        raise StoreError("a disk is full", consequence="nothing was written", remedy="make room")
    if item == "broken":
        raise OSError(28, "No space left on device")


def test_all_items_come_to_their_end_and_an_own_error_is_an_answer() -> None:
    answers = run_in_threads(["full", "a", "b"], each)
    assert sorted(one.body for one in answers if one.kind == "begun") == [b"a", b"b", b"full"]
    failure = find_failure(answers)
    assert isinstance(failure, StoreError)
    assert (failure.cause, failure.remedy) == ("a disk is full", "make room")


def test_what_is_unforeseen_is_raised() -> None:
    with pytest.raises(OSError, match="No space left"):
        run_in_threads(["a", "broken"], each)


def test_live_tasks_of_this_process_end_when_they_are_asked_to(tmp_path: Path) -> None:
    run_marker = RunMarker(tmp_path / "live", 1)

    def lives(_: str) -> Iterator[TaskResult]:
        while run_marker.exists():
            threading.Event().wait(0.01)
        yield TaskResult("ended")

    with LiveTasks(None, ["a", "b"], lives, run_marker=run_marker, name="test", grace_s=30.0) as tasks:
        assert not tasks.wait(0.1)
    assert tasks.results() == [TaskResult("ended")] * 2


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
