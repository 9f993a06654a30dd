"""The scope of a verification: unproven records, all, or a time range."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from mirrorlake.lake import Lake, ProvenRange, RelayPart, left_before, micros, removed_from
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.ranges import UNBOUNDED, OffsetRange, Ranges
from mirrorlake.model.remotes import is_different_topic

_BETWEEN = """
    SELECT topic, generation, partition, min(`offset`) AS first, max(`offset`) + 1 AS end_at
    FROM {relay} WHERE unix_micros(timestamp) >= :since AND unix_micros(timestamp) < :until
    GROUP BY topic, generation, partition
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scope:
    """The records to compare; by default those not proven yet.

    With `full`, proven records too. `between` are the upstream offsets of a time range, by source; None for all.
    """

    full: bool = False
    between: Mapping[str, Mapping[SourcePartition, OffsetRange]] | None = None

    @property
    def is_whole(self) -> bool:
        return self.between is None

    def of(self, alias: str, source: SourcePartition, due: Ranges) -> Ranges:
        if self.between is not None:
            span = self.between.get(alias, {}).get(source)
            due &= Ranges([span] if span else [])
        return due


def read_time_ranges(
    lake: Lake, aliases: Iterable[str], since: datetime | None, until: datetime | None
) -> dict[str, dict[SourcePartition, OffsetRange]]:
    """Return the upstream offsets of records with a timestamp from `since` on, before `until`, by source."""
    found: dict[str, dict[SourcePartition, OffsetRange]] = {}
    for alias in aliases:
        rows = lake.query(
            _BETWEEN,
            relay=alias,
            part=RelayPart({}),
            since=-UNBOUNDED if since is None else micros(since),
            until=UNBOUNDED if until is None else micros(until),
        )
        found[alias] = {
            SourcePartition(row.topic, row.generation, row.partition): OffsetRange(int(row.first), int(row.end_at))
            for row in rows
        }
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownRanges:
    """The proven ranges of one hop, by source partition, and the ranges that could not be compared."""

    proven: Mapping[SourcePartition, Ranges] = field(default_factory=dict)
    gone: Mapping[SourcePartition, Ranges] = field(default_factory=dict)

    @classmethod
    def of(
        cls,
        ranges: Iterable[ProvenRange],
        kind: str,
        *,
        sources: Mapping[str, str],
        targets: Mapping[str, str],
    ) -> KnownRanges:
        """Build it from a hop's ranges on the present topics (their ids by name)."""
        found: dict[bool, dict[SourcePartition, list[tuple[int, int]]]] = {False: {}, True: {}}
        for one in ranges:
            ends = (
                (one.source_topic_id, sources.get(one.partition.topic)),
                (one.target_topic_id, targets.get(one.target_topic or "")),
            )
            if one.kind == kind and not any(is_different_topic(then or "", now or "") for then, now in ends):
                found[one.is_gone].setdefault(one.partition, []).append((one.first, one.end))
        proven, gone = ({source: Ranges(spans) for source, spans in found[which].items()} for which in (False, True))
        return cls(proven=proven, gone=gone)

    def unproven(self, source: SourcePartition, whole: Ranges, scope: Scope) -> Ranges:
        if scope.full:
            return whole
        return whole - self.proven.get(source, Ranges()) - self.gone.get(source, Ranges())


def read_removed_ranges(lake: Lake, alias: str) -> dict[SourcePartition, Ranges]:
    """Read the offsets that left the relay of a source, explained (law E)."""
    found = {source: [Ranges([(0, position)])] for source, position in left_before(lake, alias).items()}
    for one in removed_from(lake, alias):
        found.setdefault(one.source, []).append(one.ranges)
    return {source: Ranges.union(several) for source, several in found.items()}


def count_explained_offsets(lake: Lake, alias: str) -> Mapping[str, Counter[tuple[str, str]]]:
    """Count by topic the offsets of a source that were never landed, or left the relay, by where and kind."""
    found: dict[str, Counter[tuple[str, str]]] = {}
    rows = lake.query(
        "SELECT topic, kind, sum(missing) AS offsets FROM {gaps} WHERE source = :source GROUP BY topic, kind",
        missing_ok=True,
        cache=True,
        source=alias,
    )
    for row in rows:
        found.setdefault(row.topic, Counter())["source", row.kind] += int(row.offsets or 0)
    for one in removed_from(lake, alias):
        found.setdefault(one.source.topic, Counter())["relay", one.kind] += one.records
    return found
