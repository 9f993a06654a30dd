"""A table that shares a query: which batches it writes, and when it catches up."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from mirrorlake.tables.shared_query import Subscriber

TABLE: Any = None


def test_law_f_a_table_writes_no_batch_of_a_run_that_may_have_begun_past_its_positions() -> None:
    written: list[Any] = []
    subscriber = Subscriber(TABLE, written.append, threading.Event())
    subscriber.take("before it is ready", 1)  # type: ignore[arg-type]
    subscriber.get_ready(1, lambda: written.append("caught up"))
    subscriber.take("first", 1)  # type: ignore[arg-type]
    subscriber.take("of another run", 2)  # type: ignore[arg-type]
    assert written == ["caught up", "first"]


def test_a_table_that_missed_nothing_does_not_read_the_relays_again() -> None:
    subscriber = Subscriber(TABLE, print, threading.Event())
    subscriber.get_ready(1, lambda: pytest.fail("nothing was missed"))


def test_a_table_that_failed_takes_no_further_batch_and_says_why() -> None:
    written: list[Any] = []

    def write(frame: Any) -> None:
        written.append(frame)
        raise ValueError("no room")

    subscriber = Subscriber(TABLE, write, threading.Event())
    subscriber.get_ready(1, lambda: None)
    for frame in ("first", "second"):
        subscriber.take(frame, 1)  # type: ignore[arg-type]
    assert written == ["first"]
    with pytest.raises(ValueError, match="no room"):
        subscriber.leave([subscriber])
