"""How many bytes a lane puts into one transaction: what the target takes in a few seconds.

A transaction that outlasts its time-out is aborted and sent again, for ever where each attempt is as large as the last. At a
quota of 400 kB/s a chunk of 64 MiB took 164 s, and the time-out is 60 s: nothing was ever committed.
"""

from __future__ import annotations

AIM_S = 3.0
"""Seconds that a transaction shall take."""

# 21 s at 50 kB/s, so the first transaction to a very slow target ends before its time-out of 60 s.
_START = 2**20
# Less would cost more for the transaction than for the records.
_MIN = 2**14
# A fast target gets chunks of 64 MiB in its fourth transaction.
_MAX_GROWTH = 4


class ChunkSize:
    """Follow the measured rate of a target; `bytes` is the size of the next chunk, between 16 KiB and `max_bytes`.

    Example:
        >>> size = ChunkSize(2**26)
        >>> size.record_commit(2**20, seconds=10.0)
        >>> size.bytes
        314572
    """

    def __init__(self, max_bytes: int) -> None:
        self._max = max_bytes
        self.bytes = min(_START, max_bytes)

    def record_commit(self, sent: int, *, seconds: float) -> None:
        """Take a committed transaction into account. A fast small one says nothing of a large one."""
        wanted = self._max if seconds <= 0 else int(sent / seconds * AIM_S)
        if seconds > AIM_S:
            self._set(min(wanted, self.bytes))
        elif 2 * sent >= self.bytes:
            self._set(min(max(wanted, self.bytes), self.bytes * _MAX_GROWTH))

    def record_failure(self) -> None:
        """Halve the size: an attempt timed out or was cut off."""
        self._set(self.bytes // 2)

    def _set(self, size: int) -> None:
        self.bytes = min(self._max, max(size, _MIN))
