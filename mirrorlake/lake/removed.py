"""The table `removed`: records that left a relay, by one row before they leave and a second one after that (law E)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from mirrorlake.lake.lake import Lake
from mirrorlake.lake.rows import Row
from mirrorlake.lake.schema import REMOVED
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.ranges import Ranges
from mirrorlake.model.removed import ERASED, EXPIRED, Removed


def removed_row(alias: str, removed: Removed) -> Row:
    return {
        "removal": removed.removal,
        "source": alias,
        "topic": removed.source.topic,
        "generation": removed.source.generation,
        "partition": removed.source.partition,
        "first_offset": removed.first_offset,
        "last_offset": removed.last_offset,
        "ranges": removed.ranges.structs if len(removed.ranges) > 1 else None,
        "record_count": removed.records,
        "kind": removed.kind,
        "reason": removed.reason,
        "evidence": json.dumps(removed.evidence),
        "relay_version": removed.relay_version,
        "removed_at": removed.removed_at,
    }


def removed_from(lake: Lake, alias: str) -> list[Removed]:
    """List the removals from a source's relay, oldest first; of a finished removal, its last row.

    Records of an unfinished removal (`is_done`) may still be in the relay.
    """
    return _read(lake.query(f"{_REMOVED} {_ORDERED}", source=alias, missing_ok=True, cache=True))


def erased_from(lake: Lake, alias: str) -> list[Removed]:
    """List the erasures from a source's relay, far fewer rows than those of retention."""
    return _read(
        lake.query(f"{_REMOVED} AND kind = :kind {_ORDERED}", source=alias, kind=ERASED, missing_ok=True, cache=True)
    )


def unfinished(lake: Lake, alias: str) -> list[Removed]:
    """List the removals that were announced and not confirmed."""
    return _read(lake.query(_UNFINISHED, source=alias, missing_ok=True))


def removed_between(lake: Lake, alias: str, source: SourcePartition, first: int, last: int) -> list[Removed]:
    """List the removals of one source partition that overlap the offsets `first` to `last`, both included."""
    here = (
        "AND topic = :topic AND generation = :generation AND partition = :partition "
        "AND first_offset <= :last AND last_offset >= :first"
    )
    text = f"{_REMOVED} {here} {_ORDERED}"
    return _read(lake.query(text, source=alias, missing_ok=True, first=first, last=last, **asdict(source)))


def _read(rows: Iterable[Any]) -> list[Removed]:
    found: dict[tuple[str, SourcePartition, int], Removed] = {}
    for row in rows:
        source = SourcePartition(row.topic, row.generation, row.partition)
        one = Removed(
            removal=row.removal,
            source=source,
            ranges=Ranges.from_structs(row.ranges) or Ranges([(row.first_offset, row.last_offset + 1)]),
            records=int(row.record_count),
            kind=row.kind,
            reason=row.reason,
            evidence=json.loads(row.evidence),
            relay_version=row.relay_version,
            removed_at=row.removed_at,
        )
        # Two maintenance runs may have announced the same oldest offsets at the same time; these left once.
        key = (one.kind if one.kind == EXPIRED else one.removal), source, one.first_offset
        if key not in found or one.last_offset >= found[key].last_offset:
            found[key] = one
    return sorted(found.values(), key=lambda one: (one.removed_at, one.source, one.first_offset))


def left_before(lake: Lake, alias: str) -> dict[SourcePartition, int]:
    """Return, by source partition, the offset before which retention removed every record; omit the others."""
    rows = lake.query(_LEFT_BEFORE, source=alias, kind=EXPIRED, missing_ok=True, cache=True)
    return {SourcePartition(row.topic, row.generation, row.partition): int(row.position) for row in rows}


def write_removed(lake: Lake, alias: str, removed: Iterable[Removed]) -> None:
    """Append rows to `removed`; create the table if it is missing."""
    lake.create_side_table(REMOVED)
    lake.append(REMOVED, [removed_row(alias, one) for one in removed])


# Of the two rows of a removal, the one with the relay's version is later.
_REMOVED = """
    SELECT removal, topic, generation, partition, first_offset, last_offset, ranges, record_count, kind, reason, evidence,
        relay_version, removed_at
    FROM {removed} WHERE source = :source
"""
_UNFINISHED = """
    SELECT * FROM {removed} AS r WHERE r.source = :source AND r.relay_version IS NULL AND NOT EXISTS (
        SELECT 1 FROM {removed} AS d
        WHERE d.removal = r.removal AND d.source = r.source AND d.topic = r.topic AND d.generation = r.generation
            AND d.partition = r.partition AND d.first_offset = r.first_offset AND d.relay_version IS NOT NULL)
"""
_ORDERED = "ORDER BY coalesce(relay_version, -1)"
_LEFT_BEFORE = """
    SELECT topic, generation, partition, max(last_offset) + 1 AS position
    FROM {removed} WHERE source = :source AND kind = :kind GROUP BY topic, generation, partition
"""
