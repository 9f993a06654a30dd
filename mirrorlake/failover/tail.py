"""The divergent tail: records of the old source that never arrived on the target before it was failed over.

Law E (accounted for): they are landed as all records are, kept in the table `divergent`, and then sent, or stepped over with a
row of `withheld` for each. None is decided about without a person.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import islice
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa

from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.lake import DIVERGENT, Lake, RelayPart
from mirrorlake.model.flow import RecordRange, SourcePartition
from mirrorlake.model.loops.hops import hops
from mirrorlake.model.withheld import FILTERED, Withheld, ranges_of
from mirrorlake.render import Table, headers, table
from mirrorlake.rules import View, Viewed

RULE = "failback"
"""The rule under which records of a tail are withheld."""

_BATCH_SIZE = 20_000
# A report shows some records; the table has all.
MAX_SHOWN = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class TailRecord:
    """A record of the tail, with its coordinates on the old source; `been_on` are clusters that its headers name."""

    topic: str
    generation: int
    partition: int
    offset: int
    timestamp: datetime | None = None
    key: bytes | None = None
    value: bytes | None = None
    headers: str = ""
    been_on: tuple[str, ...] = ()
    json_exclude: ClassVar[tuple[str, ...]] = ("been_on",)


def _record(source: SourcePartition, pairs: Sequence[tuple[str, bytes | None]], **content: Any) -> TailRecord:
    return TailRecord(
        topic=source.topic,
        generation=source.generation,
        partition=source.partition,
        headers=headers(pairs),
        been_on=tuple(hop.source for hop in hops(pairs)),
        **content,
    )


def records_table(title: str, records: Iterable[TailRecord]) -> Table:
    """Show records with their coordinates and their content."""
    columns = ["topic", "partition", "offset", "timestamp", "key", "value", "headers"]
    rows = [
        (r.topic, str(r.partition), str(r.offset), r.timestamp, _cell(r.key), _cell(r.value), r.headers)
        for r in records
    ]
    return table(title, columns, rows)


def _cell(data: bytes | None) -> bytes | str:
    # A dash would not tell null from an unknown value.
    return "‹null›" if data is None else data


def read_divergent_tail(
    lake: Lake,
    alias: str,
    topics: Sequence[str],
    cut: Mapping[SourcePartition, int],
    *,
    been_on: str | None = None,
) -> Iterator[list[Any]]:
    """Yield batches of the landed records of some topics at or past a cut, in offset order.

    Where clusters mirror each other, records that have `been_on` the target came from there: they are left out.
    """
    positions = dict(cut)
    while True:
        part = RelayPart(positions)
        rows = lake.query_rows(
            _TAIL,
            relay=alias,
            part=part,
            tables={"known": part.known()},
            topics=list(topics),
            most=_BATCH_SIZE,
        )
        if not rows:
            return
        for row in rows:
            positions[SourcePartition(row.topic, row.generation, row.partition)] = row.offset + 1
        yield [row for row in rows if been_on not in {hop.source for hop in hops(_pairs(row.headers))}]


def archive_tail(
    lake: Lake,
    alias: str,
    topics: Sequence[str],
    cut: Mapping[SourcePartition, int],
    *,
    flow: str,
    failover: str,
    been_on: str | None = None,
    now: datetime,
) -> tuple[RecordRange, ...]:
    """Copy the tail into the table `divergent`, and return its ranges; a second call adds only new records (law F).

    `been_on` is that of `read_divergent_tail`.
    """
    lake.create_side_table(DIVERGENT)
    kept = {
        SourcePartition(row.topic, row.generation, row.partition): int(row.last) + 1
        for row in lake.query_rows(_ARCHIVED, failover=failover)
    }
    done = {source: max(kept.get(source, 0), cut.get(source, 0)) for source in {*kept, *cut}}
    for rows in read_divergent_tail(lake, alias, topics, done, been_on=been_on):
        lake.append_rows(
            DIVERGENT,
            [
                {
                    "failover": failover,
                    "flow": flow,
                    "source": alias,
                    **{name: getattr(row, name) for name in _COLUMNS},
                    "kept_at": now,
                }
                for row in rows
            ],
        )
    return tuple(
        RecordRange(
            topic=row.topic,
            generation=row.generation,
            partition=row.partition,
            first=int(row.first),
            end=int(row.last) + 1,
            records=int(row.records),
        )
        for row in lake.query_rows(_ARCHIVED, failover=failover)
    )


def read_unarrived(
    context: Context,
    flow: FlowConfig,
    ends: Mapping[SourcePartition, int],
    cut: Mapping[SourcePartition, int],
    *,
    at_most: int,
) -> tuple[TailRecord, ...]:
    """Read the source's first records past a cut, up to its ends."""
    found: list[TailRecord] = []
    with closing(context.reader(flow.source)) as reader:
        for source, end in sorted(ends.items()):
            first = cut.get(source, 0)
            if first < end and len(found) < at_most:
                records = reader.read(source.topic, source.partition, first)
                for one in islice(records, at_most - len(found)):
                    at = None if one.timestamp_ms < 0 else datetime.fromtimestamp(one.timestamp_ms / 1000, timezone.utc)
                    content = {"offset": one.offset, "timestamp": at, "key": one.key, "value": one.value}
                    found.append(_record(source, one.headers, **content))
    # If clusters mirror each other, records that visited the target came from there.
    return tuple(one for one in found if not flow.adds_hops or flow.target not in one.been_on)


def archived_tail_records(lake: Lake, failover: str) -> tuple[TailRecord, ...]:
    """Return the first records of a divergent tail in the table `divergent`."""
    found = []
    for row in lake.query_rows(_FIRST, failover=failover, most=MAX_SHOWN, missing_ok=True):
        source = SourcePartition(row.topic, row.generation, row.partition)
        content = {"offset": int(row.offset), "timestamp": row.timestamp, "key": row.key, "value": row.value}
        found.append(_record(source, _pairs(row.headers), **content))
    return tuple(found)


@dataclass(frozen=True)
class SkipTailView:
    """A view that withholds a divergent tail, and passes all other records through the flow's own view.

    Picklable, because it runs in Spark's workers. `bounds` are first offset and end of the tail, by source partition.
    """

    inner: View | None
    bounds: Mapping[SourcePartition, tuple[int, int]]
    reason: str

    @property
    def version(self) -> str:
        """The fingerprint of the flow's own view, which sent records go through."""
        return "" if self.inner is None else self.inner.version

    def __call__(self, source: SourcePartition, records: pa.RecordBatch) -> Viewed:
        """Return the view of records of one source partition."""
        first, end = self.bounds.get(source, (0, 0))
        # The flow's view comes first, because it accounts for records that came from the target.
        viewed = Viewed(records=records) if self.inner is None else self.inner(source, records)
        offsets = viewed.records.column("offset").to_numpy(zero_copy_only=False)
        is_tail = (offsets >= first) & (offsets < end)
        if not is_tail.any():
            return viewed
        held = Withheld(
            source=source,
            kind=FILTERED,
            rule=RULE,
            version="",
            ranges=ranges_of(offsets[is_tail].tolist()),
            reason=self.reason,
        )
        goes = np.logical_not(is_tail)
        return Viewed(
            records=viewed.records.filter(pa.array(goes)),
            withheld=(*viewed.withheld, held),
            partitions=None if viewed.partitions is None else viewed.partitions[goes],
        )


def _pairs(stored: Any) -> list[tuple[str, bytes | None]]:
    return [(one["key"], one["value"]) for one in stored or ()]


def count_by_topic(parts: Sequence[RecordRange]) -> dict[str, int]:
    """Count the records of a tail by topic."""
    found: Counter[str] = Counter()
    for part in parts:
        found[part.topic] += part.records
    return dict(sorted(found.items()))


_COLUMNS = ("topic", "generation", "partition", "offset", "timestamp", "key", "value", "headers")
_TAIL = """
    SELECT r.topic, r.generation, r.partition, r.`offset`, r.timestamp, r.key, r.value, r.headers
    FROM {relay} AS r LEFT JOIN {known} AS k
        ON r.topic = k.topic AND r.generation = k.generation AND r.partition = k.partition
    WHERE r.`offset` >= coalesce(k.position, 0) AND array_contains(:topics, r.topic)
    ORDER BY r.topic, r.generation, r.partition, r.`offset` LIMIT :most
"""
_FIRST = """
    SELECT topic, generation, partition, `offset`, timestamp, key, value, headers FROM {divergent}
    WHERE failover = :failover ORDER BY topic, generation, partition, `offset` LIMIT :most
"""
_ARCHIVED = """
    SELECT topic, generation, partition, min(`offset`) AS first, max(`offset`) AS last, count(*) AS records
    FROM {divergent} WHERE failover = :failover GROUP BY topic, generation, partition
    ORDER BY topic, generation, partition
"""
