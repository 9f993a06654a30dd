"""Read a topic of a cluster or a relay in offset order.

Law H: reading joins no group and commits nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Protocol

from mirrorlake.config import closest
from mirrorlake.errors import UsageError
from mirrorlake.kafka import SMALL_QUEUES, ClusterAdmin, RawRecord, RecordReader
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.ranges import Ranges
from mirrorlake.records.page import Side
from mirrorlake.records.record import BrowsedRecord, Missing
from mirrorlake.render import plural


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldOffsets:
    """The offsets of a partition: from `first` (None if unknown) up to `end`, the next offset."""

    first: int | None
    end: int
    generation: int | None = None


class Log(Protocol):
    cluster: str
    side: Side
    topic: str

    @property
    def held(self) -> Mapping[int, HeldOffsets]:
        """The offsets of each partition when the log was opened."""

    def read(self, partition: int, start: int, stop: int) -> Iterator[BrowsedRecord]:
        """Yield the records of offsets `start..stop-1` in order."""

    def from_time(self, partitions: Iterable[int], at: datetime) -> dict[int, int]:
        """Return for each partition an offset before which all records are earlier than `at`; the end if all are."""

    def explain(self, partition: int, absent: Ranges) -> tuple[Missing, ...]:
        """Return the reasons of offset ranges without a record (law E)."""


class ClusterLog:
    """A topic of a cluster, read as `read_committed`; close it."""

    side: Side = "cluster"

    def __init__(
        self, admin: ClusterAdmin, options: Mapping[str, Any], topic: str, partition: int | None = None
    ) -> None:
        self.cluster = admin.alias
        self.topic = topic
        self._admin = admin
        self._is_whole = partition is None
        state = admin.describe([topic]).get(topic)
        if state is None or (partition is not None and partition >= state.partitions):
            held = (
                f"it has {plural(state.partitions, 'partition')}"
                if state
                else "there is no such topic, or it may not be seen"
            )
            named = topic if partition is None else TopicPartition(topic, partition)
            meant = "" if state else closest(topic, admin.topic_names())
            raise UsageError(
                f"{admin.alias} has no {named}: {held}",
                remedy=f"{meant}name a topic and a partition that {admin.alias} has",
                alias=admin.alias,
            )
        chosen = range(state.partitions) if partition is None else [partition]
        places = [TopicPartition(topic, one) for one in chosen]
        first, end = admin.log_start_offsets(places), admin.last_stable_offsets(places)
        self.held = {tp.partition: HeldOffsets(first=first[tp], end=end[tp]) for tp in places}
        self._reader = RecordReader(admin.alias, {**options, **SMALL_QUEUES})

    def __enter__(self) -> ClusterLog:
        return self

    def __exit__(self, *_: object) -> None:
        self._reader.close()

    def read(self, partition: int, start: int, stop: int) -> Iterator[BrowsedRecord]:
        """Yield records as `Log.read` does."""
        if start >= stop:
            return
        for one in self._reader.read(self.topic, partition, start):
            # A busy partition grows during the read.
            if one.offset >= stop:
                return
            yield _seen(self.topic, one)

    def follow(self, positions: Mapping[int, int], *, stopped: Callable[[], bool]) -> Iterator[BrowsedRecord]:
        """Yield new records from these positions, and of new partitions, until `stopped` returns True."""
        for one in self._reader.follow(self.topic, positions, stopped=stopped, grows=self._is_whole):
            yield _seen(self.topic, one)

    def from_time(self, partitions: Iterable[int], at: datetime) -> dict[int, int]:
        """Return offsets as `Log.from_time` does.

        The cluster's index includes transaction markers, which have the time of their commit. So the first record at or long
        after the offset may be older than `at`.
        """
        places = [TopicPartition(self.topic, one) for one in partitions]
        # A negative timestamp has another meaning in ListOffsets.
        found = self._admin.offsets_for_time(places, max(0, round(at.timestamp() * 1000)))
        return {tp.partition: offset for tp, offset in found.items()}

    def explain(self, partition: int, absent: Ranges) -> tuple[Missing, ...]:
        """Explain as `Log.explain` does; a cluster only shows that offsets were removed or are absent."""
        removed = absent & Ranges([(0, self.held[partition].first or 0)])
        return tuple(
            Missing(first=first, last=end - 1, kind=kind)
            for kind, ranges in (("removed", removed), ("absent", absent - removed))
            for first, end in ranges
        )


def _seen(topic: str, raw: RawRecord) -> BrowsedRecord:
    return BrowsedRecord(
        topic=topic,
        partition=raw.partition,
        offset=raw.offset,
        timestamp_ms=raw.timestamp_ms,
        key=raw.key,
        value=raw.value,
        headers=raw.headers,
    )
