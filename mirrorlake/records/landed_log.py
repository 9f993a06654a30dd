"""Read a source topic in the relay, without Spark if the lake is a folder."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from datetime import datetime
from operator import attrgetter
from typing import Any

from mirrorlake.errors import UsageError
from mirrorlake.lake import Lake, RelayPart, landed_positions, micros, removed_between
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.gaps import GAP_KINDS
from mirrorlake.model.ranges import Ranges
from mirrorlake.model.removed import LEFT
from mirrorlake.records.log import HeldOffsets
from mirrorlake.records.page import Side
from mirrorlake.records.record import BrowsedRecord, Missing

_FIRST_WINDOW = 1000  # offsets; file statistics skip the rest of the partition
_WIDEST_WINDOW = 1_000_000
# The limits of one query result: a few records of 1 MB at a time.
_ANSWER_BYTES = 4 * 2**20
_ANSWER_RECORDS = 2000


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
        low, width = start, _FIRST_WINDOW
        while low < stop:
            high = min(stop, low + width)
            sizes = [(int(row.offset), int(row.size)) for row in self._ask(_SIZES, partition, low, high)]
            for first, last in _answers(sizes):
                known = -1
                for row in self._ask(_RECORDS, partition, first, last + 1):
                    if row.offset > known:
                        known = row.offset
                        # The engines round differently.
                        row.timestamp_ms, row.landed_at_ms = row.timestamp_us // 1000, row.landed_at_us // 1000
                        yield landed_record(row)
            # Compacted topics and long transactions leave wide ranges without a record.
            low, width = high, min(width * 10, _WIDEST_WINDOW)

    def from_time(self, partitions: Iterable[int], at: datetime) -> dict[int, int]:
        """Return exactly the offsets of records."""
        wanted = {self._source(one): 0 for one in partitions}
        part = RelayPart(wanted, others=False)
        rows = self._lake.query_rows(
            _FROM_TIME, relay=self.cluster, part=part, tables={"known": part.known()}, at=micros(at)
        )
        found = {row.partition: int(row.first) for row in rows}
        return {one.partition: found.get(one.partition, self.held[one.partition].end) for one in wanted}

    def explain(self, partition: int, stretches: list[tuple[int, int]]) -> tuple[Missing, ...]:
        """Explain as `Log.explain` does, from the tables `gaps` and `removed`."""
        return tuple(explain(self._lake, self.cluster, self._source(partition), stretches))

    def _source(self, partition: int) -> SourcePartition:
        return SourcePartition(self.topic, self.held[partition].generation or 1, partition)

    def _ask(self, text: str, partition: int, low: int, high: int) -> list[Any]:
        source = self._source(partition)
        part = RelayPart({source: low}, others=False, ends={source: high})
        return self._lake.query_rows(text, relay=self.cluster, part=part, low=low, high=high, **asdict(source))


def explain(lake: Lake, alias: str, source: SourcePartition, stretches: list[tuple[int, int]]) -> list[Missing]:
    """Return the reasons of upstream offset ranges without a landed record (law E); each offset gets the best one."""
    left, found = Ranges((first, last + 1) for first, last in stretches), list[Missing]()
    if not left:
        return found
    known = defaultdict[str, list[tuple[int, int]]](list)
    for one in removed_between(lake, alias, source, left.first, left.end - 1):
        known[one.word] += Ranges.from_pairs(one.all_ranges)
    for row in lake.query_rows(
        _GAPS, source=alias, first=left.first, last=left.end - 1, missing_ok=True, **asdict(source)
    ):
        known[row.kind].append((row.first_offset, row.last_offset + 1))
    for kind in (*LEFT.values(), *GAP_KINDS):
        ranges = Ranges(known[kind])
        found += [Missing(first=first, last=end - 1, kind=kind) for first, end in left & ranges]
        left -= ranges
    found += [Missing(first=first, last=end - 1, kind="unexplained") for first, end in left]
    return sorted(found, key=attrgetter("first"))


def landed_record(row: Any) -> BrowsedRecord:
    return BrowsedRecord(
        topic=row.topic,
        generation=row.generation,
        partition=row.partition,
        offset=row.offset,
        timestamp_ms=row.timestamp_ms,
        landed_at_ms=row.landed_at_ms,
        key=_bytes(row.key),
        value=_bytes(row.value),
        headers=tuple((header["key"], _bytes(header["value"])) for header in row.headers or ()),
    )


def _answers(sizes: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield the offset ranges of a window, each within the limits of one query result."""
    first, held, records, last = -1, 0, 0, -1
    for offset, size in sizes:
        if records and (held + size > _ANSWER_BYTES or records == _ANSWER_RECORDS):
            yield first, last
            records = held = 0
        if not records:
            first = offset
        last, held, records = offset, held + size, records + 1
    if records:
        yield first, last


def _bytes(data: Any) -> bytes | None:
    return None if data is None else bytes(data)


_MINE = "topic = :topic AND generation = :generation AND partition = :partition"
_SIZES = f"""
    SELECT `offset`, sum(coalesce(octet_length(key), 0) + coalesce(octet_length(value), 0)) AS size
    FROM {{relay}} WHERE {_MINE} AND `offset` >= :low AND `offset` < :high GROUP BY `offset` ORDER BY `offset`
"""  # noqa: S608 - no value enters the text
_RECORDS = f"""
    SELECT topic, generation, partition, `offset`, unix_micros(timestamp) AS timestamp_us, key, value, headers,
        unix_micros(landed_at) AS landed_at_us
    FROM {{relay}} WHERE {_MINE} AND `offset` >= :low AND `offset` < :high ORDER BY `offset`
"""  # noqa: S608 - likewise
_FROM_TIME = """
    SELECT r.partition, min(r.`offset`) AS first FROM {relay} AS r JOIN {known} AS k
        ON r.topic = k.topic AND r.generation = k.generation AND r.partition = k.partition
    WHERE unix_micros(r.timestamp) >= :at GROUP BY r.partition
"""
_GAPS = f"""
    SELECT first_offset, last_offset, kind FROM {{gaps}}
    WHERE source = :source AND {_MINE} AND first_offset <= :last AND last_offset >= :first
"""  # noqa: S608 - likewise
