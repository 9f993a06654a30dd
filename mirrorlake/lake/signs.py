"""Signs that streams run: the time of each stream's last turn, in a small file next to the checkpoint locations.

An idle source leaves no trace in the relay, and processes do not call each other.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable

from mirrorlake.errors import StoreError
from mirrorlake.lake.lake import Lake
from mirrorlake.model.flow import transactional_id
from mirrorlake.progress import ProgressCallback
from mirrorlake.runtime import open_folder
from mirrorlake.timing import timing

log = logging.getLogger(__name__)

# The errors of a store that does not answer, and of an address without a known store.
_AWAY = (OSError, ValueError, StoreError)


class StreamSign:
    """Write and read the sign of one stream, named by a source's alias for landing, or by `flow_sign`.

    One process runs the stream, any may read. `now_ms` is milliseconds since 1970.
    """

    def __init__(self, lake: Lake, name: str, *, now_ms: Callable[[], int] = lambda: int(time.time() * 1000)) -> None:
        self._name = name
        self._address = _folder(lake)
        self._now_ms = now_ms
        self._due = 0.0
        self._is_done = self._has_failed = False

    def write(self) -> bool:
        """Record that the stream runs now, and return whether that was written.

        A failed write is only logged, once, because the stream continues.
        """
        try:
            open_folder(self._address).write(self._name, str(self._now_ms()))
        except _AWAY as error:
            if not self._has_failed:
                log.warning("stream.no_sign what=%s why=%s", self._name, str(error)[:200])
            self._has_failed = True
            return False
        return True

    def read(self) -> int | None:
        """Return when the stream last ran, in milliseconds since 1970, or None if unknown."""
        try:
            return int(open_folder(self._address).read(self._name) or 0) or None
        except _AWAY:
            return None

    def signing(self, tell: ProgressCallback, *, interval_s: float | None = None) -> ProgressCallback:
        """Return a callback that passes each turn of a stream to `tell`, and writes the sign at an interval."""
        between_s = interval_s or timing().stream_sign_interval_s

        def turn(phase: str, done: int, total: int | None, unit: str = "records") -> None:
            # Equal numbers mean that a drain is done: its last turn always writes the sign.
            is_done = done == total
            began = time.monotonic()
            if began >= self._due or (is_done and not self._is_done):
                wrote, ended = self.write(), time.monotonic()
                # A store may be slow to refuse: without credentials, S3's client searches for them for seconds.
                self._due = ended + (between_s if wrote else max(between_s, 20 * (ended - began)))
            self._is_done = is_done
            tell(phase, done, total, unit)

        return turn


def flow_sign(flow: str) -> str:
    return f"republish.{transactional_id(flow, 0)}"


def _folder(lake: Lake) -> str:
    return f"{lake.checkpoint_root()}/signs"
