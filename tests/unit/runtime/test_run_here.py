"""Work that this process does itself, without Spark: answers and errors are those of a task."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from mirrorlake.errors import StoreError
from mirrorlake.runtime import GoesOn, LiveTasks, TaskAnswer, failure_of, run_here
from mirrorlake.runtime.tasks import TaskFailed


def each(item: str) -> Iterator[TaskAnswer]:
    yield TaskAnswer("begun", item.encode())
    if item == "full":
        raise StoreError("a disk is full", consequence="nothing was written", remedy="make room")
    if item == "broken":
        raise OSError(28, "No space left on device")


def test_all_items_come_to_their_end_and_an_own_error_is_an_answer() -> None:
    answers = run_here(["full", "a", "b"], each, stop=threading.Event(), grace_s=0.0)
    assert sorted(one.body for one in answers if one.kind == "begun") == [b"a", b"b", b"full"]
    failure = failure_of(answers)
    assert isinstance(failure, StoreError)
    assert (failure.cause, failure.remedy) == ("a disk is full", "make room")


def test_what_is_unforeseen_is_raised() -> None:
    with pytest.raises(OSError, match="No space left"):
        run_here(["a", "broken"], each, stop=threading.Event(), grace_s=0.0)


def test_a_stop_waits_for_the_grace_and_for_nobody_after_it() -> None:
    stop, ended = threading.Event(), threading.Event()

    def hangs(_: str) -> Iterator[TaskAnswer]:
        stop.set()
        ended.wait(60)
        yield TaskAnswer("ended")

    with pytest.raises(TaskFailed, match="a stop was asked for"):
        run_here(["a"], hangs, stop=stop, grace_s=0.1)
    ended.set()


def test_live_tasks_of_this_process_end_when_they_are_asked_to(tmp_path: Path) -> None:
    goes_on = GoesOn(tmp_path / "live", 1)

    def lives(_: str) -> Iterator[TaskAnswer]:
        while goes_on():
            threading.Event().wait(0.01)
        yield TaskAnswer("ended")

    with LiveTasks(None, ["a", "b"], lives, goes_on=goes_on, name="test", grace_s=30.0) as tasks:
        assert not tasks.wait(0.1)
    assert tasks.answers() == [TaskAnswer("ended")] * 2
