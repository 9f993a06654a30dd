"""Which schemas the records of a flow name: ids in the frames of the relay's keys and values."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from mirrorlake.config.schema import FlowConfig
from mirrorlake.lake import Audit, Lake, RelayPart, from_micros, landed_positions, micros
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.plan import Change

MARK = "schemas"
"""The kind of the change that records how far records were read for their ids."""

# Keys that are numbers look like frames, each with an id of its own.
_MAX_IDS = 1_000
# Landers on several machines go by clocks of their own, and a large batch is committed some time after its time.
_OVERLAP = timedelta(hours=1)
# A newer mark is worth a change only if much was read for it.
_MARK_AGE = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class SchemaUses:
    """The ids that a flow's records name, each with the subjects of its topics (`orders-value`), and the records read for them.

    An id need not be one: a value of another kind may begin with the same byte. `needs_mark`: much was read for it.
    """

    subjects: Mapping[int, frozenset[str]]
    records: Mapping[int, int]
    needs_mark: bool


class SchemaUseReader:
    """Read the ids that a flow's records name: past the last mark in `audit` at first, later past what it has read.

    Schemas named in a header are not read.

    Args:
        lake: the lake.
        flow: the flow.
        audit: holds the marks.
        newest: without a mark, the age up to which records are read; None for all of them.
    """

    def __init__(self, lake: Lake, flow: FlowConfig, audit: Audit, *, newest: timedelta | None = None) -> None:
        self._lake = lake
        self._flow = flow
        self._audit = audit
        self._newest = newest
        self._read_to: Mapping[SourcePartition, int] = {}
        self._subjects: defaultdict[int, set[str]] = defaultdict(set)

    def read(self, now: datetime) -> SchemaUses:
        """Return the ids of all records, as far as this reader and the mark know them; counts are of those just read."""
        mark = self._last_mark()
        first = None if self._newest is None else now - self._newest
        since = first if mark is None else from_micros(mark["until"]) - _OVERLAP
        for schema_id, names in (mark["ids"] if mark is not None else {}).items():
            self._subjects[int(schema_id)] |= set(names)
        records = Counter[int]()
        relay = self._lake.relay_location(self._flow.source)
        # Before the records: what lands meanwhile is read twice.
        ends = landed_positions(self._lake, self._flow.source).reached if self._lake.exists(relay) else {}
        for (topic, part), ids in self._framed(since).items() if ends else ():
            if len(ids) <= _MAX_IDS:
                records.update(ids)
                for schema_id in ids:
                    self._subjects[schema_id].add(f"{topic}-{part}")
        self._read_to = ends
        is_due = mark is None or from_micros(mark["until"]) < now - _MARK_AGE
        found = {schema_id: frozenset(names) for schema_id, names in self._subjects.items()}
        return SchemaUses(found, records, needs_mark=is_due and bool(ends))

    def mark(self, ids: Mapping[int, frozenset[str]], now: datetime) -> Change:
        """Return the change that records these ids and the time of the read, so that a later one reads newer records only."""
        named = {str(schema_id): sorted(names) for schema_id, names in sorted(ids.items())}
        return Change(
            where=self._flow.target,
            kind=MARK,
            name=self._flow.name,
            action="record",
            after={"until": micros(now), "topics": _selection(self._flow), "ids": named},
            reason="the next plan reads newer records only",
            flow=self._flow.name,
        )

    def _last_mark(self) -> dict[str, Any] | None:
        entries = [entry for entry in self._audit.entries(self._flow.target, MARK) if entry.object == self._flow.name]
        # Other topics may have older records.
        return entries[-1].after if entries and entries[-1].after["topics"] == _selection(self._flow) else None

    def _framed(self, since: datetime | None) -> dict[tuple[str, str], Counter[int]]:
        """Count the records of each id by topic and part (`key` or `value`)."""
        part = RelayPart(self._read_to, since=since)
        rows: list[Any] = self._lake.query_rows(
            _FRAMES, relay=self._flow.source, part=part, tables={"known": part.known()}, since=part.since
        )
        found: defaultdict[tuple[str, str], Counter[int]] = defaultdict(Counter)
        for row in rows:
            if self._flow.carries(row.topic):
                found[row.topic, row.part][int(row.frame[2:], 16)] += int(row.records)
        return found


def _selection(flow: FlowConfig) -> list[list[str]]:
    return [list(flow.topics.expressions), list(flow.exclude_topics.expressions)]


_FRAMES = " UNION ALL ".join(
    f"""
    SELECT r.topic, '{part}' AS part, hex(left(r.{part}, 5)) AS frame, count(*) AS records
    FROM {{relay}} AS r LEFT JOIN {{known}} AS k
        ON r.topic = k.topic AND r.generation = k.generation AND r.partition = k.partition
    WHERE (k.position IS NULL OR r.`offset` >= k.position) AND unix_micros(r.landed_at) > :since
        AND hex(left(r.{part}, 5)) LIKE '00________'
    GROUP BY r.topic, hex(left(r.{part}, 5))
    """  # noqa: S608 - the two names stand below
    for part in ("value", "key")
)
