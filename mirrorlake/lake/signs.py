"""The sign that landing works: the time of its last turn, in a small file next to the checkpoint locations.

A source that nobody writes to leaves no trace in the relay, and processes do not ask each other.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from mirrorlake.lake.lake import Lake
from mirrorlake.progress import Tell
from mirrorlake.runtime import open_place

log = logging.getLogger(__name__)


class LandingSign:
    """Write and read the sign of one source; one process lands it, any may read. `now_ms` is milliseconds since 1970."""

    def __init__(self, lake: Lake, alias: str, *, now_ms: Callable[[], int] = lambda: int(time.time() * 1000)) -> None:
        self._alias = alias
        self._folder = f"{lake.checkpoint_root()}/signs"
        self._uri = f"{self._folder}/{alias}"
        self._now_ms = now_ms
        self._due = 0.0

    def write(self) -> None:
        """Record that landing works now; a store that cannot be written to is logged, since landing itself goes on."""
        try:
            filesystem, path = open_place(self._uri)
            filesystem.create_dir(path.rpartition("/")[0], recursive=True)
            with filesystem.open_output_stream(path) as file:
                file.write(str(self._now_ms()).encode())
        except (OSError, ValueError) as error:
            log.warning("land.no_sign source=%s why=%s", self._alias, str(error)[:200])

    def read(self) -> int | None:
        """Tell when landing last worked, in milliseconds since 1970; None where that is not known."""
        try:
            filesystem, path = open_place(self._uri)
            with filesystem.open_input_file(path) as file:
                return int(file.read().decode() or 0) or None
        except (OSError, ValueError):
            return None

    def signing(self, tell: Tell, *, every_s: float) -> Tell:
        """Pass each turn of a lander on to `tell`, and write the sign at an interval."""

        def turn(phase: str, done: int, total: int | None, unit: str = "records") -> None:
            # A drain says by equal numbers that it is done: its last turn always counts.
            if time.monotonic() >= self._due or done == total:
                self.write()
                self._due = time.monotonic() + every_s
            tell(phase, done, total, unit)

        return turn
