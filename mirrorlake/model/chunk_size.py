"""How many bytes are moved at once: what the other side, a cluster or a store, takes or gives in a few seconds.

Whatever outlasts its time-out is begun again, for ever where each attempt is as large as the last. At a quota of 400 kB/s a
transaction of 64 MiB took 164 s, and its time-out is 60 s: nothing was ever committed. Over a link of 50 kB/s an answer of
8 MiB takes 168 s, and a request may take 60 s: nothing was ever landed.
"""

from __future__ import annotations

AIM_S = 3.0
"""Seconds that one chunk shall take."""

# 21 s at 50 kB/s, so the first chunk of a very slow cluster comes to its end before a time-out of 60 s.
_START = 2**20
# Less would cost more for the round trip than for the records.
_MIN_SIZE = 2**14
# A fast cluster gets chunks of 64 MiB from the fourth on.
_MAX_GROWTH = 4


class ChunkSize:
    """Follow a measured rate; `limit` is the size of the next chunk, in bytes where nothing else is said.

    Args:
        max_size: the largest size.
        start: the first one.
        min_size: the smallest one.
        aim_s: the seconds that a chunk shall take.

    Example:
        >>> size = ChunkSize(2**26)
        >>> size.record_success(2**20, seconds=10.0)
        >>> size.limit
        314572
    """

    def __init__(self, max_size: int, *, start: int = _START, min_size: int = _MIN_SIZE, aim_s: float = AIM_S) -> None:
        self._most = max_size
        self._least = min_size
        self._aim_s = aim_s
        self.limit = min(start, max_size)

    @property
    def is_minimal(self) -> bool:
        """Whether a failure makes it no smaller."""
        return self.limit <= self._least

    def record_success(self, moved: int, *, seconds: float) -> None:
        """Take a chunk that came to its end into account. A fast small one says nothing of a large one."""
        wanted = self._most if seconds <= 0 else int(moved / seconds * self._aim_s)
        if seconds > self._aim_s:
            self._set(min(wanted, self.limit))
        elif 2 * moved >= self.limit:
            self._set(min(max(wanted, self.limit), self.limit * _MAX_GROWTH))

    def record_failure(self, *, at_most: int | None = None) -> None:
        """Halve the size, or more than that where half is past `at_most`: an attempt timed out or was cut off."""
        half = self.limit // 2
        self._set(half if at_most is None else min(half, at_most))

    def _set(self, size: int) -> None:
        self.limit = min(self._most, max(size, self._least))
