"""Find the relay's records in a range: by file statistics, then by timestamps in the files that remain."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import pyarrow as pa

from mirrorlake.lake import Lake, RelayFile, RelayPart
from mirrorlake.model.flow import SOURCE_KEY, SourcePartition
from mirrorlake.model.replay import Span
from mirrorlake.runtime import open_address

_EVER = 2**62
_ASKED = pa.schema(
    {
        "topic": pa.string(),
        "generation": pa.int32(),
        "partition": pa.int32(),
        "begins": pa.int64(),
        "stops": pa.int64(),
    }
)
_COUNTED = """
    SELECT topic, generation, partition, count(*) AS records, min(offset) AS first, max(offset) AS last,
        min(unix_micros(timestamp)) AS oldest, max(unix_micros(timestamp)) AS newest
    FROM {relay} JOIN {asked} USING (topic, generation, partition)
    WHERE offset >= begins AND offset < stops
        AND unix_micros(timestamp) >= :since AND unix_micros(timestamp) < :until
    GROUP BY topic, generation, partition
"""
_HELD = """
    SELECT topic, generation, partition, min(offset) AS first, max(offset) AS last
    FROM {relay} GROUP BY topic, generation, partition
"""

Limits = Callable[[SourcePartition], tuple[int, int | None] | None]
"""Returns the chosen offsets `[first, end)` of a source partition (end None: unbounded), or None for none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelayExtent:
    """The source partitions of a relay with their first and last offset, and its files, or None if they cannot be listed."""

    ends: Mapping[SourcePartition, tuple[int, int]]
    files: tuple[RelayFile, ...] | None

    @property
    def topics(self) -> list[str]:
        """The topics."""
        return sorted({source.topic for source in self.ends})

    def of(self, topics: Iterable[str]) -> RelayExtent:
        """Return the extent of some topics."""
        names = set(topics)
        files = None if self.files is None else tuple(file for file in self.files if file.source.topic in names)
        return RelayExtent(ends={s: ends for s, ends in self.ends.items() if s.topic in names}, files=files)


def look_at_relay(lake: Lake, alias: str) -> RelayExtent:
    """Return the extent of a relay; reads no record if the relay is in a folder."""
    log = lake.relay_log(alias)
    if log is None:
        rows = lake.query_rows(_HELD, relay=alias)
        return RelayExtent(
            ends={SourcePartition(r.topic, r.generation, r.partition): (r.first, r.last) for r in rows}, files=None
        )
    files = tuple(log.files({}))
    ends: dict[SourcePartition, tuple[int, int]] = {}
    for file in files:
        first, last = ends.get(file.source, (file.first_offset, file.last_offset))
        ends[file.source] = min(first, file.first_offset), max(last, file.last_offset)
    return RelayExtent(ends=ends, files=files)


def spans_of(
    lake: Lake,
    alias: str,
    held: RelayExtent,
    limits: Limits,
    *,
    since_ms: int | None = None,
    until_ms: int | None = None,
) -> list[Span]:
    """Return the spans within limits, each with its record count and timestamps; omit partitions without a record."""
    asked: dict[SourcePartition, tuple[int, int]] = {}
    for source, (first, last) in held.ends.items():
        limit = limits(source)
        if limit is not None:
            begins = max(first, limit[0])
            stops = last + 1 if limit[1] is None else min(last + 1, limit[1])
            if begins < stops:
                asked[source] = begins, stops
    if not asked:
        return []
    columns = {name: [getattr(source, name) for source in asked] for name in SOURCE_KEY}
    begins_at, stops_at = ([ends[place] for ends in asked.values()] for place in (0, 1))
    rows = lake.query_rows(
        _COUNTED,
        relay=alias,
        part=RelayPart(
            {source: begins for source, (begins, _) in asked.items()},
            others=False,
            ends={source: stops for source, (_, stops) in asked.items()},
        ),
        tables={"asked": pa.table({**columns, "begins": begins_at, "stops": stops_at}, schema=_ASKED)},
        since=-_EVER if since_ms is None else since_ms * 1000,
        until=_EVER if until_ms is None else until_ms * 1000,
    )
    return sorted(
        Span(
            topic=row.topic,
            generation=row.generation,
            partition=row.partition,
            first=int(row.first),
            end=int(row.last) + 1,
            records=int(row.records),
            oldest_ms=int(row.oldest) // 1000,
            newest_ms=int(row.newest) // 1000,
        )
        for row in rows
    )


def files_in(held: RelayExtent, spans: Iterable[Span]) -> list[RelayFile]:
    """List the files that hold records of the spans, in upstream order; [] if files are unknown."""
    asked = {span.source: span for span in spans}
    return sorted(
        file
        for file in held.files or ()
        if file.source in asked
        and file.first_offset < asked[file.source].end
        and file.last_offset >= asked[file.source].first
    )


def size_of(files: Iterable[RelayFile], spans: Iterable[Span]) -> int:
    """Estimate the bytes of the spans in these files, by the share of each file's offsets."""
    asked = {span.source: span for span in spans}
    sharing = Counter(file.uri for file in files)
    total = 0.0
    for file in files:
        span = asked[file.source]
        inside = min(file.last_offset + 1, span.end) - max(file.first_offset, span.first)
        share = inside / (file.last_offset + 1 - file.first_offset) / sharing[file.uri]
        filesystem, path = open_address(file.uri)
        total += int(filesystem.get_file_info(path).size) * share
    return round(total)
