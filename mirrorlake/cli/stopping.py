"""Run a stream beside the main thread until it ends or a signal arrives; then stop it within 19 s."""

from __future__ import annotations

import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any

log = logging.getLogger(__name__)

# Schedulers kill after thirty seconds.
STOP_DEADLINE_S = 19.0
# A driver without its JVM cannot finish its batch; another one may run by now.
_HOST_POLL_S, _WITHOUT_HOST_S = 2.0, 10.0


@contextmanager
def _stop_on_signal() -> Iterator[threading.Event]:
    """Yield an event that SIGTERM and the first Ctrl-C set; a second one ends the process at once (law F permits it)."""
    stop = threading.Event()

    def handler(number: int, _: FrameType | None) -> None:
        if stop.is_set():
            os._exit(128 + number)
        # Interrupted calls now also fail in threads of libraries.
        threading.excepthook = _to_log
        stop.set()

    before = {number: signal.signal(number, handler) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield stop
    finally:
        for number, old in before.items():
            signal.signal(number, old)


def run_until_signal(
    call: Callable[[threading.Event], Any],
    *,
    note: Callable[[str], None] | None = None,
    describe_progress: Callable[[], str] = str,
    leave: Callable[[], None] = lambda: None,
) -> Any:
    """Run a stream beside the main thread, which must stay free for signals; `call` ends soon after its event is set.

    Without `note`, stopping has no deadline. If the process ends before the stream does, `describe_progress` describes the progress,
    and `leave` prints the one document of `--json`, since the stream cannot. Raises StoreError if the JVM of the stream has ended.
    """
    from mirrorlake import runtime

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
        deadline, next_look, lost = None, 0.0, None
        while thread.is_alive():
            thread.join(0.2)
            if time.monotonic() >= next_look:
                next_look = time.monotonic() + _HOST_POLL_S
                if runtime.is_host_gone():
                    # A requested stop may end the JVM first, which is not a failure.
                    lost = lost or (None if stop.is_set() else runtime.spark_gone_error())
                    _end_without_host(thread, stop)
            if note is None or not stop.is_set():
                continue
            if deadline is None:
                deadline = time.monotonic() + STOP_DEADLINE_S
                note(f"stopping: finishing the batch (up to {STOP_DEADLINE_S:.0f} s); press Ctrl-C again to stop now")
            if time.monotonic() > deadline and thread.is_alive():
                done = describe_progress()
                left = "stopped in the middle of a batch, which the next start finishes: nothing is lost or doubled"
                note(f"{done}; {left}" if done else left)
                leave()
                sys.stdout.flush()
                sys.stderr.flush()
                os._exit(0)
    if failure:
        raise failure[0]
    if lost is not None:
        # The stream ended well, but only on request: a scheduler must start another one.
        raise lost
    return result[0]


def _end_without_host(thread: threading.Thread, stop: threading.Event) -> None:
    """Let the stream end by itself, else end the process: its threads may wait for an answer for ever."""
    stop.set()
    thread.join(_WITHOUT_HOST_S)
    if thread.is_alive():
        from mirrorlake.runtime import spark_gone_error

        error = spark_gone_error()
        sys.stderr.write(f"error: {error}\n")
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(error.exit_code)


def _to_log(failed: threading.ExceptHookArgs) -> None:
    log.info("thread.failed name=%s", failed.thread and failed.thread.name, exc_info=failed.exc_value)
