"""A record of the divergent tail, with its coordinates and content."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import ClassVar

from mirrorlake.kafka import RawRecord
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.loops.hops import hops
from mirrorlake.render import Table, headers, table

# A report must fit into memory; the table `divergent` has all records after a failback.
MAX_READ = 1000


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


def raw_record(source: SourcePartition, record: RawRecord) -> TailRecord:
    """Build it from a record read from its source."""
    at = None if record.timestamp_ms < 0 else datetime.fromtimestamp(record.timestamp_ms / 1000, tz=timezone.utc)
    return TailRecord(
        topic=source.topic,
        generation=source.generation,
        partition=source.partition,
        offset=record.offset,
        timestamp=at,
        key=record.key,
        value=record.value,
        headers=headers(record.headers),
        been_on=tuple(hop.source for hop in hops(record.headers)),
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
