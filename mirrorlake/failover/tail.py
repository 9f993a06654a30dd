"""The divergent tail: records of the old source that never arrived on the target before it was failed over.

Law E (accounted for): they are landed as all records are, and then sent, or stepped over with a row of `withheld` for each. None is
decided about without a person.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import ClassVar

import numpy as np
import pyarrow as pa

from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.lake import Lake, RelayPart
from mirrorlake.model.flow import RecordRange, SourcePartition
from mirrorlake.model.late_times import moment_of
from mirrorlake.model.loops.hops import hops
from mirrorlake.model.withheld import FILTERED, Withheld, ranges_of
from mirrorlake.render import headers
from mirrorlake.rules import View, Viewed

RULE = "failback"
"""The rule under which records of a tail are withheld."""

_BATCH_SIZE = 20_000
_MAX_SHOWN = 20


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


def find_tail(
    lake: Lake,
    alias: str,
    topics: Sequence[str],
    cut: Mapping[SourcePartition, int],
    *,
    been_on: str | None = None,
) -> tuple[RecordRange, ...]:
    """Return the ranges of the landed records of some topics at or past a cut.

    Where clusters mirror each other, records that have `been_on` the target came from there: they are left out.
    """
    positions, found = dict(cut), dict[SourcePartition, tuple[int, int, int]]()
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
            break
        for row in rows:
            source = SourcePartition(row.topic, row.generation, row.partition)
            positions[source] = row.offset + 1
            if been_on not in {hop.source for hop in hops([(one["key"], one["value"]) for one in row.headers or ()])}:
                first, _, records = found.get(source, (row.offset, 0, 0))
                found[source] = first, row.offset + 1, records + 1
    return tuple(
        RecordRange(
            topic=source.topic,
            generation=source.generation,
            partition=source.partition,
            first=first,
            end=end,
            records=records,
        )
        for source, (first, end, records) in sorted(found.items())
    )


def read_unarrived(
    context: Context,
    flow: FlowConfig,
    ends: Mapping[SourcePartition, int],
    cut: Mapping[SourcePartition, int],
) -> tuple[TailRecord, ...]:
    found: list[TailRecord] = []
    with closing(context.reader(flow.source)) as reader:
        for source, end in sorted(ends.items()):
            first = cut.get(source, 0)
            if first < end and len(found) < _MAX_SHOWN:
                records = reader.read(source.topic, source.partition, first)
                for one in islice(records, _MAX_SHOWN - len(found)):
                    at = None if one.timestamp_ms < 0 else moment_of(one.timestamp_ms)
                    record = TailRecord(
                        topic=source.topic,
                        generation=source.generation,
                        partition=source.partition,
                        offset=one.offset,
                        timestamp=at,
                        key=one.key,
                        value=one.value,
                        headers=headers(one.headers),
                        been_on=tuple(hop.source for hop in hops(one.headers)),
                    )
                    found.append(record)
    # If clusters mirror each other, records that visited the target came from there.
    return tuple(one for one in found if not flow.adds_hops or flow.target not in one.been_on)


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


_TAIL = """
    SELECT r.topic, r.generation, r.partition, r.`offset`, r.headers
    FROM {relay} AS r LEFT JOIN {known} AS k
        ON r.topic = k.topic AND r.generation = k.generation AND r.partition = k.partition
    WHERE r.`offset` >= coalesce(k.position, 0) AND array_contains(:topics, r.topic)
    ORDER BY r.topic, r.generation, r.partition, r.`offset` LIMIT :most
"""
