"""The size of a chunk in bytes: what a cluster or a store transfers in a few seconds.

A chunk that outlasts its time-out is begun again, for ever if each attempt is as large as the last. At a quota of 400
kB/s a transaction of 64 MiB took 164 s, and its time-out is 60 s: nothing was ever committed. Over a link of 50 kB/s
an answer of 8 MiB takes 168 s, and a request may take 60 s: nothing was ever landed.
"""

from __future__ import annotations

AIM_S = 3.0
"""The target time of one chunk, in seconds."""

# 21 s at 50 kB/s, so the first chunk of a very slow cluster ends before a time-out of 60 s.
_START = 2**20
# The round trip of a smaller chunk would cost more than its records.
_MIN_SIZE = 2**14
# A fast cluster gets chunks of 64 MiB from the fourth on.
_MAX_GROWTH = 4


class ChunkSize:
    """Follow a measured rate; `limit` is the size of the next chunk, in bytes unless the caller uses another unit."""

    def __init__(self, max_size: int, *, start: int = _START, min_size: int = _MIN_SIZE, aim_s: float = AIM_S) -> None:
        self._most = max_size
        self._least = min_size
        self._aim_s = aim_s
        self.limit = min(start, max_size)

    @property
    def is_minimal(self) -> bool:
        """Whether a failure no longer reduces the size."""
        return self.limit <= self._least

    def record_success(self, moved: int, *, seconds: float) -> None:
        """Adjust the size to a finished chunk. A fast small chunk proves nothing for a large one."""
        wanted = self._most if seconds <= 0 else int(moved / seconds * self._aim_s)
        if seconds > self._aim_s:
            self._set(min(wanted, self.limit))
        elif 2 * moved >= self.limit:
            self._set(min(max(wanted, self.limit), self.limit * _MAX_GROWTH))

    def record_failure(self, *, at_most: int | None = None) -> None:
        """Halve the size after a time-out or a broken connection, or reduce it to `at_most` if that is less."""
        half = self.limit // 2
        self._set(half if at_most is None else min(half, at_most))

    def _set(self, size: int) -> None:
        self.limit = min(self._most, max(size, self._least))
