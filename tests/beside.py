"""Run a part of a mirror in a thread of the test, beside a block."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def beside(run: Callable[[threading.Event], object]) -> Iterator[list[BaseException]]:
    """Run a call until the block ends, which sets its event; gives the list into which its failure is put, if it fails."""
    stop, failures = threading.Event(), list[BaseException]()

    def call() -> None:
        try:
            run(stop)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=call)
    thread.start()
    try:
        yield failures
    finally:
        stop.set()
        thread.join()
    assert not failures, failures
