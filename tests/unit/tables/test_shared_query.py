"""A table that shares a query: which batches it writes, and when it catches up."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from mirrorlake.tables.shared_query import Subscriber

TABLE: Any = None


def subscriber_of(write: Callable[[Any], None], cancel: Callable[[], object] = lambda: None) -> Subscriber:
    return Subscriber(TABLE, write, cancel=cancel, stop=threading.Event())


def test_law_f_a_table_writes_no_batch_of_a_query_that_may_have_begun_past_its_positions() -> None:
    written: list[Any] = []
    subscriber = subscriber_of(written.append)
    subscriber.take("before it has joined", 1, 0)  # type: ignore[arg-type]
    subscriber.join(1, lambda: written.append("caught up"))
    subscriber.take("first", 1, 1)  # type: ignore[arg-type]
    subscriber.take("of another query", 2, 0)  # type: ignore[arg-type]
    assert written == ["caught up", "first"]


def test_a_table_that_missed_nothing_does_not_read_the_relays_again() -> None:
    subscriber = subscriber_of(print)
    subscriber.join(1, lambda: pytest.fail("nothing was missed"))


def test_a_table_that_failed_takes_no_further_batch_and_says_why() -> None:
    written: list[Any] = []

    def write(frame: Any) -> None:
        written.append(frame)
        raise ValueError("no room")

    subscriber = subscriber_of(write)
    subscriber.join(1, lambda: None)
    for frame in ("first", "second"):
        subscriber.take(frame, 1, 0)  # type: ignore[arg-type]
    assert written == ["first"]
    with pytest.raises(ValueError, match="no room"):
        subscriber.leave()


def test_a_batch_that_does_not_end_is_cancelled_when_its_table_is_to_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MIRRORLAKE_TIMING", "grace_s=0.05")
    begun, cancelled = threading.Event(), threading.Event()

    def write(_: Any) -> None:
        begun.set()
        assert cancelled.wait(60)
        raise ValueError("cancelled")

    subscriber = subscriber_of(write, cancelled.set)
    subscriber.join(1, lambda: None)
    batch = threading.Thread(target=subscriber.take, args=("a batch", 1, 0))
    batch.start()
    assert begun.wait(60)
    subscriber.stop.set()
    subscriber.leave()
    batch.join()
    with pytest.raises(ValueError, match="cancelled"):
        subscriber.raise_failure()
