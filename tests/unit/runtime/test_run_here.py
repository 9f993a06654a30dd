"""Work that this process does itself, without Spark: answers and errors are those of a task."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mirrorlake.errors import StoreError
from mirrorlake.runtime import GoesOn, LiveTasks, TaskAnswer, failure_of
from mirrorlake.runtime.tasks import run_here


def each(item: str) -> Iterator[TaskAnswer]:
    yield TaskAnswer("begun", item.encode())
    if item == "full":
        raise StoreError("a disk is full", consequence="nothing was written", remedy="make room")
    if item == "broken":
        raise OSError(28, "No space left on device")


def test_all_items_come_to_their_end_and_an_own_error_is_an_answer() -> None:
    answers = run_here(["full", "a", "b"], each)
    assert sorted(one.body for one in answers if one.kind == "begun") == [b"a", b"b", b"full"]
    failure = failure_of(answers)
    assert isinstance(failure, StoreError)
    assert (failure.cause, failure.remedy) == ("a disk is full", "make room")


def test_what_is_unforeseen_is_raised() -> None:
    with pytest.raises(OSError, match="No space left"):
        run_here(["a", "broken"], each)


def test_live_tasks_of_this_process_end_when_they_are_asked_to(tmp_path: Path) -> None:
    goes_on = GoesOn(tmp_path / "live", 1)

    def lives(_: str) -> Iterator[TaskAnswer]:
        while goes_on():
            threading.Event().wait(0.01)
        yield TaskAnswer("ended")

    with LiveTasks(None, ["a", "b"], lives, goes_on=goes_on, name="test", grace_s=30.0) as tasks:
        assert not tasks.wait(0.1)
    assert tasks.answers() == [TaskAnswer("ended")] * 2


def test_tasks_that_end_apart_come_each_to_its_own_end_and_an_error_of_one_leaves_the_others_to_go_on(
    tmp_path: Path,
) -> None:
    goes_on, others = GoesOn(tmp_path / "live", 1), threading.Event()

    def ends(item: str) -> Iterator[TaskAnswer]:
        if item == "full":
            others.set()
            raise StoreError("a disk is full", consequence="nothing was written", remedy="make room")
        others.wait()
        yield TaskAnswer("goes on" if goes_on() else "asked to end")

    with LiveTasks(None, ["full", "a"], ends, goes_on=goes_on, name="test", grace_s=30.0, end_apart=True) as tasks:
        assert tasks.wait(30.0)
    assert [one.kind for one in tasks._answers if one.kind != "error"] == ["goes on"]
    with pytest.raises(StoreError, match="a disk is full"):
        tasks.answers()
