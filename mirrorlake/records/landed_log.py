"""Read a source topic in the relay, without Spark if the lake is a folder."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import datetime
from operator import attrgetter

import pyarrow as pa

from mirrorlake.errors import UsageError
from mirrorlake.lake import COLUMNS, Lake, RelayPart, landed_positions, micros, removed_between
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.gaps import GAP_KINDS
from mirrorlake.model.ranges import Ranges
from mirrorlake.model.removed import LEFT
from mirrorlake.records.log import HeldOffsets
from mirrorlake.records.page import Side
from mirrorlake.records.record import BrowsedRecord, Missing

_COLUMNS = (*COLUMNS, "landed_at")
_MS = pa.timestamp("ms", "UTC")
# Rows that become Python objects at once.
_SLICE = 500


class LandedLog:
    """A topic of a relay, in its newest generation unless `generation` is given; refused if none of its records was landed."""

    side: Side = "relay"

    def __init__(
        self, lake: Lake, alias: str, topic: str, partition: int | None = None, *, generation: int | None = None
    ) -> None:
        self.cluster = alias
        self.topic = topic
        self._lake = lake
        ends = landed_positions(lake, alias).reached if lake.exists(lake.relay_location(alias)) else {}
        self.held: dict[int, HeldOffsets] = {}
        for source in sorted(one for one in ends if one.topic == topic and generation in (None, one.generation)):
            if partition in (None, source.partition):
                # The sort lets the newest generation win.
                self.held[source.partition] = HeldOffsets(first=None, end=ends[source], generation=source.generation)
        if not self.held:
            where = topic if partition is None else TopicPartition(topic, partition)
            named = f"{where}" if generation is None else f"{where} of generation {generation}"
            raise UsageError(
                f"nothing of {named} was landed from {alias}",
                remedy=f"name a source topic of {alias} that a flow carries, or mirrorlake land --source {alias} --once",
                alias=alias,
            )

    def read(self, partition: int, start: int, stop: int) -> Iterator[BrowsedRecord]:
        """Yield records as `Log.read` does; of an offset that the relay holds twice, the first row."""
        yield from read_landed(self._lake, self.cluster, self._source(partition), Ranges([(start, stop)]))

    def from_time(self, partitions: Iterable[int], at: datetime) -> dict[int, int]:
        """Return exactly the offsets of records."""
        wanted = {self._source(one): 0 for one in partitions}
        part = RelayPart(wanted, others=False)
        rows = self._lake.query(
            _FROM_TIME, relay=self.cluster, part=part, tables={"known": part.known()}, at=micros(at)
        )
        found = {row.partition: int(row.first) for row in rows}
        return {one.partition: found.get(one.partition, self.held[one.partition].end) for one in wanted}

    def explain(self, partition: int, absent: Ranges) -> tuple[Missing, ...]:
        """Explain as `Log.explain` does, from the tables `gaps` and `removed`."""
        return tuple(explain(self._lake, self.cluster, self._source(partition), absent))

    def _source(self, partition: int) -> SourcePartition:
        return SourcePartition(self.topic, self.held[partition].generation or 1, partition)


def read_landed(lake: Lake, alias: str, source: SourcePartition, ranges: Ranges) -> Iterator[BrowsedRecord]:
    """Yield the records that the relay holds at some offsets, each offset once and in order."""
    for batch in lake.rows(alias, source, ranges, _COLUMNS):
        for at in range(0, len(batch), _SLICE):
            rows = batch.slice(at, _SLICE)
            times, landed = (
                rows.column(name).cast(_MS, safe=False).cast(pa.int64()).to_pylist()
                for name in ("timestamp", "landed_at")
            )
            columns = [rows.column(name).to_pylist() for name in ("offset", "key", "value", "headers")]
            for offset, key, value, headers, time, landed_at in zip(*columns, times, landed, strict=True):
                yield BrowsedRecord(
                    topic=source.topic,
                    generation=source.generation,
                    partition=source.partition,
                    offset=offset,
                    timestamp_ms=time,
                    landed_at_ms=landed_at,
                    key=key,
                    value=value,
                    headers=tuple((header["key"], header["value"]) for header in headers or ()),
                )


def explain(lake: Lake, alias: str, source: SourcePartition, absent: Ranges) -> list[Missing]:
    """Return the reasons of upstream offset ranges without a landed record (law E); each offset gets the best one."""
    left, found = absent, list[Missing]()
    if not absent:
        return found
    known = defaultdict[str, list[tuple[int, int]]](list)
    for one in removed_between(lake, alias, source, left.first, left.end - 1):
        known[one.word] += one.ranges
    for row in lake.query(_GAPS, source=alias, first=left.first, last=left.end - 1, missing_ok=True, **asdict(source)):
        known[row.kind].append((row.first_offset, row.last_offset + 1))
    for kind in (*LEFT.values(), *GAP_KINDS):
        ranges = Ranges(known[kind])
        found += [Missing(first=first, last=end - 1, kind=kind) for first, end in left & ranges]
        left -= ranges
    found += [Missing(first=first, last=end - 1, kind="unexplained") for first, end in left]
    return sorted(found, key=attrgetter("first"))


_MINE = "topic = :topic AND generation = :generation AND partition = :partition"
_FROM_TIME = """
    SELECT r.partition, min(r.`offset`) AS first FROM {relay} AS r JOIN {known} AS k
        ON r.topic = k.topic AND r.generation = k.generation AND r.partition = k.partition
    WHERE unix_micros(r.timestamp) >= :at GROUP BY r.partition
"""
_GAPS = f"""
    SELECT first_offset, last_offset, kind FROM {{gaps}}
    WHERE source = :source AND {_MINE} AND first_offset <= :last AND last_offset >= :first
"""  # noqa: S608 - likewise
