"""Replace a relay's broken files: land their records again. Records that have left the source become a gap (laws C and E)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any, NamedTuple

import pyarrow as pa

from mirrorlake.errors import StoreError
from mirrorlake.kafka import ClusterAdmin, PositionGone, TopicState
from mirrorlake.lake import (
    GAPS,
    BrokenFile,
    FileSpan,
    KnownTopic,
    Lake,
    SourceTopics,
    erased_from,
    gap_row,
    land_rows,
    relay_schema,
    write_files,
)
from mirrorlake.landing.ranges import read_ranges
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.gaps import Gap
from mirrorlake.model.ranges import Ranges
from mirrorlake.model.removed import Removed

log = logging.getLogger(__name__)

_EXPLAINED = """
    SELECT sum(missing) AS missing FROM {gaps} WHERE source = :source AND topic = :topic AND generation = :generation
    AND partition = :partition AND first_offset = :low AND last_offset = :high AND kind = 'expired'
"""
_REMOVABLE, _APPEND_ONLY = {"delta.appendOnly": "false"}, {"delta.appendOnly": "true"}


class MendedSpan(NamedTuple):
    """The records of one source partition in a mended file: how many were landed again, and how many have left the source."""

    span: FileSpan
    landed: int
    lost: int


@dataclass(frozen=True, slots=True)
class Mended:
    broken: BrokenFile
    spans: tuple[MendedSpan, ...]

    @property
    def lost(self) -> int:
        return sum(one.lost for one in self.spans)


class Mending:
    """Mend the relay of one source. A lander may run meanwhile."""

    def __init__(
        self, lake: Lake, source: ClusterAdmin, options: Mapping[str, Any], *, alias: str, now: Callable[[], datetime]
    ) -> None:
        self._lake = lake
        self._source = source
        self._options = options
        self._alias = alias
        self._now = now
        self._topics = SourceTopics(lake, alias)

    def mend(self, broken: BrokenFile) -> Mended:
        """Replace a broken file by one with the same records.

        Raises:
            ClusterUnreachable: the source does not answer; the file stays as it is.
            StoreError: the relay was rewritten meanwhile; the file stays as it is.
        """
        location = self._lake.relay_location(self._alias)
        table = self._lake.open_maintenance(location)
        assert table is not None  # noqa: S101  broken files are found where upkeep reaches the table
        found = self._records(broken.spans)
        mended = []
        for span in broken.spans:
            landed = len(found[span.source]) if span.source in found else 0
            mended.append(MendedSpan(span, landed, max(0, span.records - landed)))
            # Before the file leaves the log: after a death in between both are there.
            self._explain(broken, mended[-1])
        counts, parts = list(map(len, found.values())), list(found.values())
        rows = land_rows(relay_schema(), [*found], counts, pa.concat_tables(parts), broken.landed_at) if found else []
        files = list(write_files(table.path, relay_schema(), rows, apart=True))
        table.ensure_properties(_REMOVABLE)
        try:
            is_done = table.replace([broken.file], files, data_change=True, why="repair")
        finally:
            table.ensure_properties(_APPEND_ONLY)
        if not is_done:
            for file in files:
                table.delete(file.path)
            raise StoreError(
                f"{broken.file.path} in the relay of {self._alias} was rewritten during its repair",
                consequence="the relay was not changed",
                remedy=f"mirrorlake repair --source {self._alias}",
                alias=self._alias,
            )
        for span, landed, lost in mended:
            log.warning(
                "land.mended source=%s file=%s partition=%s offsets=%s..%s landed=%s lost=%s",
                *(self._alias, broken.file.path, span.source, span.first_offset, span.last_offset, landed, lost),
            )
        return Mended(broken, tuple(mended))

    def _explain(self, broken: BrokenFile, mended: MendedSpan) -> None:
        """Record how many records have left the source, once, even if several processes mend the file (law F)."""
        span, _, lost = mended
        if not lost:
            return
        gap = Gap(
            source=span.source,
            first_offset=span.first_offset,
            last_offset=span.last_offset,
            missing=lost,
            kind="expired",
        )
        place = {**asdict(gap.source), "low": gap.first_offset, "high": gap.last_offset}
        [known] = self._lake.query(_EXPLAINED, source=self._alias, missing_ok=True, **place) or [None]
        explained = int(known.missing or 0) if known is not None else 0
        if lost > explained:
            # More may have left the source since a repair that died.
            row = gap_row(self._alias, replace(gap, missing=lost - explained), self._now())
            one = "" if len(broken.spans) == 1 else f".{span.source}"
            self._lake.append(GAPS, [row], app_id=f"mirrorlake.repair.{broken.file.path}{one}", version=lost)

    def _records(self, spans: Iterable[FileSpan]) -> dict[SourcePartition, pa.Table]:
        wanted = self._find_on_source(spans)
        if not wanted:
            return {}
        found: dict[SourcePartition, list[pa.Table]] = {}
        ranges = {tp: (first, until) for tp, (_, first, until) in wanted.items()}
        # The records may have left the source since its offsets were read.
        with suppress(PositionGone):
            for tp, rows in read_ranges(self._alias, self._options, ranges):
                source = wanted[tp][0]
                # The source may still hold records that were erased from the relay.
                erased = Ranges.union([one.ranges for one in self._erased if one.source == source])
                rows = rows.filter(pa.array(~erased.contains(rows["offset"].to_numpy())))
                if len(rows):
                    found.setdefault(source, []).append(rows)
        return {source: pa.concat_tables(several) for source, several in found.items()}

    def _find_on_source(self, spans: Iterable[FileSpan]) -> dict[TopicPartition, tuple[SourcePartition, int, int]]:
        """Return source partition, first offset and end of what the source may still hold, by topic partition."""
        known = self._topics.load()
        topics = {span.source.topic for span in spans} & known.keys()
        if not topics:
            return {}
        states = self._source.describe(topics)
        same = {
            span.source.tp: span
            for span in spans
            if span.source.topic in states
            and _is_same(span.source, known[span.source.topic], states[span.source.topic])
        }
        earliest, latest = self._source.log_start_offsets([*same]), self._source.last_stable_offsets([*same])
        found = {
            tp: (
                span.source,
                max(span.first_offset, earliest.get(tp, 0)),
                min(span.last_offset + 1, latest.get(tp, 0)),
            )
            for tp, span in same.items()
        }
        return {tp: one for tp, one in found.items() if one[1] < one[2]}

    @cached_property
    def _erased(self) -> list[Removed]:
        return erased_from(self._lake, self._alias)


def _is_same(source: SourcePartition, known: KnownTopic, state: TopicState) -> bool:
    """Return whether a topic still has the generation of a file's partition."""
    return (
        state.topic_id == known.topic_id
        and source.partition < state.partitions
        and known.generation_of(source.partition) == source.generation
    )
