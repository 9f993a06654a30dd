"""Limit a lane to its rate by waiting between two chunks, outside of any transaction."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from mirrorlake.kafka.lane.batch import Batch
from mirrorlake.model.rate import Rate, due


class Throttle:
    """Wait until a chunk may be sent."""

    def __init__(
        self, *, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._clock = clock
        self._sleep = sleep
        self._paid_until: float | None = None

    def wait(self, rate: Rate, chunk: Iterable[Batch]) -> None:
        """Wait until the rate allows the chunk; return at once without a rate."""
        if not rate:
            return
        records, size = 0, 0
        for batch in chunk:
            records += len(batch.records)
            size += batch.nbytes
        now = self._clock()
        self._paid_until = due(now if self._paid_until is None else self._paid_until, now, rate.cost_s(records, size))
        if self._paid_until > now:
            self._sleep(self._paid_until - now)


def slices(batches: Iterable[Batch], rate: Rate) -> Iterator[Batch]:
    """Yield batches of at most as many bytes as the rate allows in a second, but of at least one record."""
    for batch in batches:
        rows, limit = len(batch.records), rate.bytes_per_second
        if limit is None or rows < 2 or batch.nbytes <= limit:
            yield batch
        else:
            halves = (batch.records.slice(0, rows // 2), batch.records.slice(rows // 2))
            yield from slices((replace(batch, records=half) for half in halves), rate)
