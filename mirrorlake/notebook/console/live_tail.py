"""Live tail: a thread reads new records, and the kernel draws the newest."""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

from mirrorlake.notebook.console.error_panel import error_text
from mirrorlake.notebook.console.session import Session
from mirrorlake.records import BrowsedRecord

Open = Callable[[threading.Event], Iterator[BrowsedRecord]]
_DRAW_INTERVAL_S = 0.5
# The memory that kernel and browser spend on a busy topic.
_MAX_BYTES = 8 * 2**20


class LiveTail:
    """Follow a topic; `changed` gets the newest records, their total, and why it ended ("" while it runs).

    Law H: no group is joined and nothing is committed.
    """

    def __init__(self, session: Session, changed: Callable[[list[BrowsedRecord], int, str], None]) -> None:
        self._session = session
        self._changed = changed
        self._stop = threading.Event()
        self._stop.set()
        self._task: asyncio.Task[None] | None = None

    @property
    def is_running(self) -> bool:
        return not self._stop.is_set()

    def start(self, begin: Open, *, most: int) -> None:
        """Follow the records of `begin`, with the newest `most` in memory; stop following any other topic."""
        self.stop()
        # Its own event: a thread that ends late must not see the next tail's.
        stop = self._stop = threading.Event()
        held = _Newest(most)
        threading.Thread(target=_work, args=(begin, stop, held), name="mirrorlake-tail", daemon=True).start()
        self._task = self._session.runner.start(self._draw(stop, held))

    def stop(self) -> None:
        self._stop.set()

    async def _draw(self, stop: threading.Event, held: _Newest) -> None:
        seen = -1
        while True:
            ended = stop.is_set()
            records, came, problem = held.look()
            # Before it is open, records produced now may or may not arrive.
            if (came != seen and held.is_open) or ended:
                self._changed(records, came, problem or ("stopped" if ended else ""))
                seen = came
            if ended:
                return
            await asyncio.sleep(_DRAW_INTERVAL_S)


class _Newest:
    """The newest records, bounded by number and size; one thread writes, another reads."""

    def __init__(self, most: int) -> None:
        self._records: deque[BrowsedRecord] = deque()
        self._most = most
        self._size = 0
        self._came = 0
        self._problem = ""
        self.is_open = False
        self._lock = threading.Lock()

    def take(self, one: BrowsedRecord) -> None:
        with self._lock:
            self._came += 1
            self._records.append(one)
            self._size += one.size
            while len(self._records) > 1 and (len(self._records) > self._most or self._size > _MAX_BYTES):
                self._size -= self._records.popleft().size

    def fail(self, problem: str) -> None:
        with self._lock:
            self._problem = problem

    def look(self) -> tuple[list[BrowsedRecord], int, str]:
        with self._lock:
            return list(self._records), self._came, self._problem


def _work(begin: Open, stop: threading.Event, held: _Newest) -> None:
    found: Any = ()
    try:
        found = begin(stop)
        held.is_open = True
        for one in found:
            held.take(one)
    except Exception as error:  # shown where the records are: there is nobody above this thread
        held.fail(error_text(error))
    finally:
        stop.set()
