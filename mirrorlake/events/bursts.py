"""Rows that belong together, such as the partitions of a topic or the records of a burst, are one event."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime, timedelta
from itertools import groupby
from typing import Any

_SAME_BURST = timedelta(minutes=5)
_LOOK_BACK = timedelta(hours=1)

Key = Callable[[Any], tuple[str, ...]]


def bursts_since(read: Callable[[datetime], Iterable[Any]], since: datetime, key: Key) -> list[list[Any]]:
    """Return the bursts that lasted into the time since `since`, each from its first row on, by key and time.

    Args:
        read: returns the rows since a time; each has the time `at`.
        since: the time.
        key: rows of one burst have the same.
    """
    back = _LOOK_BACK
    while True:
        start = since - back
        bursts = [burst for burst in _bursts(read(start), key) if burst[-1].at >= since]
        if all(burst[0].at - start > _SAME_BURST for burst in bursts):
            return bursts
        # Its first row may be older: then it seems to begin later at each read.
        back *= 4


def _bursts(rows: Iterable[Any], key: Key) -> Iterator[list[Any]]:
    """Yield rows of the same key in bursts, between which nothing came for a while."""
    for _, several in groupby(sorted(rows, key=lambda row: (key(row), row.at)), key=key):
        burst: list[Any] = []
        for row in several:
            if burst and row.at - burst[-1].at > _SAME_BURST:
                yield burst
                burst = []
            burst.append(row)
        yield burst
