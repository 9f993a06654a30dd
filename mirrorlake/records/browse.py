"""Browse: read a few records of a partition by offset or time, from a cluster or from the relay.

Law H: reading joins no group and commits nothing. Whatever is read is bounded by a count and by bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice, pairwise, takewhile
from typing import Any

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as F

from mirrorlake.errors import UsageError
from mirrorlake.kafka import FEW, ClusterAdmin, RawRecord, RecordReader
from mirrorlake.lake import GAPS, Lake, landed_positions, removed_between
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.gaps import GAP_KINDS
from mirrorlake.model.removed import why_left
from mirrorlake.records.record import BrowsedRecord, Missing, Page, missing_between
from mirrorlake.topics import aware

MOST_RECORDS = 1000
_FIRST_WINDOW = 1000  # offsets; file statistics skip the rest of the partition
Read = Callable[[int], Page]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seek:
    """Where a page begins, at an offset or a time (without either it holds the newest records), and how much it holds at most.

    Raises:
        UsageError: the numbers do not fit.
    """

    offset: int | None = None
    at: datetime | None = None
    count: int = 20
    max_bytes: int = 2**20

    def __post_init__(self) -> None:
        if self.offset is not None and self.at is not None:
            raise UsageError("both an offset and a time are given", remedy="give one of them")
        if not 1 <= self.count <= MOST_RECORDS or self.max_bytes < 1 or (self.offset is not None and self.offset < 0):
            raise UsageError(
                "count, bytes or offset are out of range",
                remedy=f"ask for 1 to {MOST_RECORDS} records from an offset >= 0",
            )
        if self.at is not None:
            aware(self.at)


def browse_cluster(admin: ClusterAdmin, options: Mapping[str, Any], where: TopicPartition, seek: Seek) -> Page:
    """Read records of one partition of a cluster as a read_committed consumer sees them (see `Mirror.browse`).

    Raises:
        UsageError: there is no such partition, or the arguments do not fit.
        ClusterError: the cluster does not answer or refuses.
    """
    offset = seek.offset
    state = admin.describe([where.topic]).get(where.topic)
    if state is None or where.partition >= state.partitions:
        held = f"it has {state.partitions} partition(s)" if state else "there is no such topic, or it may not be seen"
        raise UsageError(
            f"{admin.alias} has no {where}: {held}",
            remedy=f"name a partition that {admin.alias} has",
            alias=admin.alias,
        )
    if seek.at is not None:
        offset = admin.at_time([where], round(seek.at.timestamp() * 1000))[where]
    with RecordReader(admin.alias, {**options, **FEW}) as reader:
        low, high = reader.ends(where.topic, where.partition)

        def read(start: int) -> Page:
            begin = min(max(start, low), high)
            found = reader.read(where.topic, where.partition, begin) if begin < high else iter(())
            # A busy partition grows while it is read: the page ends where the end was.
            held = takewhile(lambda one: one.offset < high, found)
            records = tuple(_bounded((_seen(where.topic, one) for one in held), seek))
            cut = len(records) == seek.count or sum(record.size for record in records) >= seek.max_bytes
            following = records[-1].offset + 1 if cut else high
            removed = [Missing(first=start, last=begin - 1, kind="removed")] if start < begin else []
            absent = missing_between((record.offset for record in records), begin, following)
            return Page(
                cluster=admin.alias,
                side="cluster",
                topic=where.topic,
                partition=where.partition,
                first=low,
                end=high,
                start=begin,
                next=following,
                records=records,
                missing=(*removed, *(Missing(first=a, last=b, kind="absent") for a, b in absent)),
            )

        return newest(read, low=low, end=high, count=seek.count) if offset is None else read(offset)


def browse_relay(lake: Lake, alias: str, where: TopicPartition, seek: Seek, *, generation: int | None = None) -> Page:
    """Read records of one source partition from the relay (see `Mirror.browse`).

    Law E (accounted for): what holds no record is explained from the table `gaps`.

    Raises:
        UsageError: nothing of it was landed, or the arguments do not fit.
    """
    offset = seek.offset
    ends = landed_positions(lake, alias).reached if lake.exists(lake.relay_location(alias)) else {}
    lives = [s for s in ends if (s.topic, s.partition) == (where.topic, where.partition)]
    if not lives or (generation is not None and generation not in {s.generation for s in lives}):
        named = f"{where}" if generation is None else f"{where} of generation {generation}"
        raise UsageError(
            f"nothing of {named} was landed from {alias}",
            remedy=f"name a source topic of {alias} that a flow carries, or mirrorlake land --source {alias} --once",
            alias=alias,
        )
    source = max(lives) if generation is None else SourcePartition(where.topic, generation, where.partition)
    mine = at_source(lake.relay(alias), source)
    end = ends[source]
    if seek.at is not None:
        [found] = mine.where(F.col("timestamp") >= F.lit(seek.at)).agg(F.min("offset").alias("offset")).collect()
        offset = end if found.offset is None else int(found.offset)

    def read(start: int) -> Page:
        begin = min(start, end)
        rows, following = _rows(mine, begin, end, seek)
        stretches = missing_between((row.offset for row in rows), begin, following)
        return Page(
            cluster=alias,
            side="relay",
            topic=source.topic,
            partition=source.partition,
            generation=source.generation,
            end=end,
            start=begin,
            next=following,
            records=tuple(map(landed_record, rows)),
            missing=tuple(explain(lake, alias, source, stretches)),
        )

    return newest(read, low=0, end=end, count=seek.count) if offset is None else read(offset)


def newest(read: Read, *, low: int, end: int, count: int) -> Page:
    """Return the last page that holds records: stretches without any at the end are passed over."""
    step = count
    page = read(max(low, end - step))
    while not page.records and page.start > low:
        step *= 8
        page = read(max(low, end - step))
    while not page.is_last and (following := read(page.next)).records:
        page = following
    return page


def explain(lake: Lake, alias: str, source: SourcePartition, stretches: list[tuple[int, int]]) -> Iterator[Missing]:
    """Say of stretches of upstream offsets without a landed record why they have none (law E)."""
    if not stretches:
        return
    first, last = stretches[0][0], stretches[-1][1]
    rows = (
        at_source(lake.meta(GAPS), source)
        .where((F.col("source") == alias) & (F.col("first_offset") <= last) & (F.col("last_offset") >= first))
        .collect()
    )
    removed = removed_between(lake, alias, source, first, last)
    known = [(row.first_offset, row.last_offset + 1) for row in rows]
    for one in removed:
        known += [(low, low + length) for low, length in one.ranges] or [(one.first_offset, one.last_offset + 1)]
    for begin, end in stretches:
        # A stretch may lie in several gaps; each offset takes what explains it most.
        cuts = {begin, end + 1}
        for places in known:
            cuts |= {edge for edge in places if begin < edge <= end}
        edges = sorted(cuts)
        for start, stop in pairwise(edges):
            kinds = {row.kind for row in rows if row.first_offset <= start <= row.last_offset}
            gap = next((kind for kind in GAP_KINDS if kind in kinds), "unexplained")
            kind = why_left(removed, start) or gap
            yield Missing(first=start, last=stop - 1, kind=kind)


def at_source(table: DataFrame, source: SourcePartition) -> DataFrame:
    """Return the rows of one source partition; file statistics skip the other files."""
    return table.where(
        (F.col("topic") == source.topic)
        & (F.col("generation") == source.generation)
        & (F.col("partition") == source.partition)
    )


def landed_record(row: Any) -> BrowsedRecord:
    """Read a row of the relay, with `timestamp_ms` and `landed_at_ms`, as a record."""
    return BrowsedRecord(
        topic=row.topic,
        generation=row.generation,
        partition=row.partition,
        offset=row.offset,
        timestamp_ms=row.timestamp_ms,
        landed_at_ms=row.landed_at_ms,
        key=_bytes(row.key),
        value=_bytes(row.value),
        headers=tuple((header.key, _bytes(header.value)) for header in row.headers or ()),
    )


def with_times(relay: DataFrame) -> DataFrame:
    """Add the times of relay rows in milliseconds since 1970 UTC, whatever the session's zone."""
    return relay.withColumns({"timestamp_ms": F.unix_millis("timestamp"), "landed_at_ms": F.unix_millis("landed_at")})


def _rows(mine: DataFrame, start: int, end: int, seek: Seek) -> tuple[list[Any], int]:
    """Collect the first rows from an offset on, and the offset at which the next page begins."""
    rows: list[Any] = []
    low, width, left = start, _FIRST_WINDOW, seek.max_bytes
    line = Window.partitionBy("topic", "generation", "partition").orderBy("offset")
    payload = F.coalesce(F.length("key"), F.lit(0)) + F.coalesce(F.length("value"), F.lit(0))
    while low < end:
        found = (
            with_times(mine.where((F.col("offset") >= low) & (F.col("offset") < min(end, low + width))))
            .withColumn("size", payload)
            .orderBy("offset")
            .limit(seek.count - len(rows))
            .withColumn(
                "before", F.coalesce(F.sum("size").over(line.rowsBetween(Window.unboundedPreceding, -1)), F.lit(0))
            )
            .where(F.col("before") < left)
            .orderBy("offset")
            .collect()
        )
        rows += found
        left -= sum(row.size for row in found)
        if len(rows) == seek.count or left <= 0:
            return rows, rows[-1].offset + 1
        # Compacted topics and long transactions leave wide stretches without a record.
        low, width = low + width, width * 10
    return rows, end


def _bounded(records: Iterator[BrowsedRecord], seek: Seek) -> Iterator[BrowsedRecord]:
    held = 0
    for record in islice(records, seek.count):
        yield record
        held += record.size
        if held >= seek.max_bytes:
            return


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


def _bytes(data: Any) -> bytes | None:
    return None if data is None else bytes(data)
