"""Write the end of a lake cluster's relay to `positions` now and then, so that no reader must scan the relay for it."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from datetime import datetime

from mirrorlake.lake import Lake, OffsetAccounts, SourceTopics, Tail, accounted_positions
from mirrorlake.model.causes import root_cause
from mirrorlake.model.flow import SourcePartition
from mirrorlake.timing import timing

log = logging.getLogger(__name__)


class PublishedEnds:
    """The ends of the partitions as `positions` has them.

    A sample covers all commits up to its time, also those of other publishers.
    """

    def __init__(self, lake: Lake, alias: str, topics: SourceTopics) -> None:
        self._lake = lake
        self._alias = alias
        self._topics = topics
        self._newest: dict[SourcePartition, datetime | None] = {}
        self._accounted: Mapping[SourcePartition, int] | None = None
        self._next_sample = 0.0

    def published(self, newest: Mapping[SourcePartition, datetime | None]) -> None:
        self._newest |= newest

    def sample(self, tail: Tail) -> None:
        if time.monotonic() < self._next_sample:
            return
        accounts = OffsetAccounts(self._lake, self._topics, alias=self._alias, now=lambda: tail.landed_at)
        try:
            if self._accounted is None:
                self._accounted = accounted_positions(self._lake, self._alias)
            moved = {s: offset for s, offset in tail.reached.items() if offset != self._accounted.get(s)}
            accounts.write_positions(
                {source: (offset, self._newest.get(source)) for source, offset in moved.items()},
                opened={source: 0 for source in moved if source not in self._accounted},
            )
        except Exception as error:
            # The records are published, and the next sample covers them.
            log.warning("publish.not_sampled cluster=%s why=%s", self._alias, root_cause(str(error)))
            return
        self._accounted = dict(tail.reached)
        self._next_sample = time.monotonic() + timing().account_interval_s
