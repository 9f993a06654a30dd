"""Rates: the limit of a flow per second, as a token bucket of one second that starts empty."""

from __future__ import annotations

from dataclasses import dataclass

# Unused rate carries over up to this much, because the time that sending itself takes must not count twice.
BURST_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Rate:
    """A limit in records and in bytes a second; None means no limit.

    >>> Rate(records_per_second=5000.0).share(2)
    Rate(records_per_second=2500.0, bytes_per_second=None)
    """

    records_per_second: float | None = None
    bytes_per_second: float | None = None

    def __bool__(self) -> bool:
        return self.records_per_second is not None or self.bytes_per_second is not None

    def share(self, parts: int) -> Rate:
        """Return one of equal parts."""
        return Rate(
            records_per_second=None if self.records_per_second is None else self.records_per_second / parts,
            bytes_per_second=None if self.bytes_per_second is None else self.bytes_per_second / parts,
        )

    def chunk(self, records: int, size: int) -> tuple[int, int]:
        """Return how many records and bytes a chunk may hold: the given ones, and at most a second's worth.

        >>> Rate(bytes_per_second=1000.0).chunk(100, 2**20)
        (100, 1000)
        """
        if self.records_per_second is not None:
            records = min(records, max(1, int(self.records_per_second)))
        if self.bytes_per_second is not None:
            size = min(size, max(1, int(self.bytes_per_second)))
        return records, size

    def cost_s(self, records: int, size: int) -> float:
        """Return how many seconds of the rate these records and bytes take."""
        return max(records / (self.records_per_second or float("inf")), size / (self.bytes_per_second or float("inf")))


NO_LIMIT = Rate()


def due(paid_until: float, now: float, cost_s: float) -> float:
    """Return the time at which a chunk of this cost may be sent, which is the next `paid_until`.

    In any time of length t at most the rate of t + `BURST_S` is sent, and one chunk.

    Args:
        paid_until: the result of the last call; the present at first.
        now: the present, in seconds of the same clock.
        cost_s: seconds of the rate that are to be spent.
    """
    return max(paid_until, now - BURST_S) + cost_s
