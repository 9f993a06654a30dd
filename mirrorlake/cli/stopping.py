"""Run a stream beside the main thread until it ends or a signal says so."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any


@contextmanager
def _stop_on_signal() -> Iterator[threading.Event]:
    """Give an event that SIGTERM and the first Ctrl-C set; a second one ends the process at once (law F allows it)."""
    stop = threading.Event()

    def handler(number: int, _: FrameType | None) -> None:
        if stop.is_set():
            os._exit(128 + number)
        stop.set()

    before = {number: signal.signal(number, handler) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def in_background(call: Callable[[threading.Event], Any]) -> Any:
    """Run a stream beside the main thread, which must stay free for signals."""
    result: list[Any] = []
    failure: list[BaseException] = []
    with _stop_on_signal() as stop:

        def work() -> None:
            try:
                result.append(call(stop))
            except BaseException as error:
                failure.append(error)

        thread = threading.Thread(target=work, name="mirrorlake", daemon=True)
        thread.start()
        while thread.is_alive():
            thread.join(0.2)
    if failure:
        raise failure[0]
    return result[0]
