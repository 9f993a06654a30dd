"""Land again what broken files of a relay held, under its old offsets; what has left the source is a gap (laws C and E)."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from datetime import datetime
from functools import cached_property
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from mirrorlake.errors import ClusterUnreachable, StoreError
from mirrorlake.kafka import ClusterAdmin, Fetcher, PositionGone
from mirrorlake.lake import (
    GAPS,
    BrokenFile,
    KnownTopic,
    Lake,
    SourceTopics,
    erased_from,
    gap_row,
    land_rows,
    relay_schema,
    write_files,
)
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.gaps import Gap
from mirrorlake.model.removed import Removed

log = logging.getLogger(__name__)

# A source that gives nothing for so long does not give what is missing.
_SILENT_S = 30.0
_STEP_S, _STEP_BYTES, _STEP_RECORDS = 2.0, 64 << 20, 1_000_000
_EXPLAINED = """
    SELECT sum(missing) AS missing FROM {gaps} WHERE source = :source AND topic = :topic AND generation = :generation
    AND partition = :partition AND first_offset = :low AND last_offset = :high AND kind = 'expired'
"""
_REMOVABLE, _KEPT = {"delta.appendOnly": "false"}, {"delta.appendOnly": "true"}


@dataclass(frozen=True, slots=True)
class Mended:
    """A mended file: how many of its records were landed again, and how many have left the source."""

    broken: BrokenFile
    landed: int
    lost: int


class Mending:
    """Mend the relay of one source while a lander may run."""

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
        """Put a file with the same records in the place of a broken one.

        Raises:
            ClusterUnreachable: the source does not answer; the file stays as it is.
            StoreError: the relay was rewritten again and again meanwhile.
        """
        location = self._lake.relay_location(self._alias)
        table = self._lake.upkeep(location)
        assert table is not None  # noqa: S101  broken files are found where upkeep reaches the table
        rows = [
            batch
            for part in self._records(broken)
            for batch in land_rows(relay_schema(), {broken.source: part}, broken.landed_at)
        ]
        landed = sum(map(len, rows))
        lost = broken.records - landed
        # Before the file is gone from the log: a death in between leaves both.
        self._explain(broken, lost)
        files = list(write_files(table.path, relay_schema(), rows, apart=True))
        table.settle(_REMOVABLE)
        try:
            is_done = table.replace([broken.file], files, data_change=True, why="repair")
        finally:
            table.settle(_KEPT)
        if not is_done:
            for file in files:
                table.delete(file.path)
            raise StoreError(
                f"{broken.file.path} in the relay of {self._alias} was rewritten while it was mended",
                consequence="the relay is as it was",
                remedy=f"mirrorlake repair --source {self._alias}",
                alias=self._alias,
            )
        log.warning(
            "land.mended source=%s file=%s offsets=%s..%s landed=%s lost=%s",
            *(self._alias, broken.file.path, broken.first_offset, broken.last_offset, landed, lost),
        )
        return Mended(broken, landed, max(0, lost))

    def _explain(self, broken: BrokenFile, lost: int) -> None:
        """Record how many records have left the source; once, whoever mends the file, also at the same moment (law F)."""
        gap = Gap(
            source=broken.source,
            first_offset=broken.first_offset,
            last_offset=broken.last_offset,
            missing=lost,
            kind="expired",
        )
        place = {**asdict(gap.source), "low": gap.first_offset, "high": gap.last_offset}
        [known] = self._lake.ask(_EXPLAINED, source=self._alias, missing_ok=True, **place) or [None]
        explained = int(known.missing or 0) if known is not None else 0
        if lost > explained:
            # More may have left the source since a repair that died.
            row = gap_row(self._alias, replace(gap, missing=lost - explained), self._now())
            self._lake.append_rows(GAPS, [row], app_id=f"mirrorlake.repair.{broken.file.path}", version=lost)

    def _records(self, broken: BrokenFile) -> Iterator[pa.Table]:
        """Read from the source what a file held, as far as the source still has it."""
        source, known = broken.source, self._topics.load().get(broken.source.topic)
        tp = TopicPartition(source.topic, source.partition)
        if known is None or not self._is_same(source, known):
            return
        first = max(broken.first_offset, self._source.earliest([tp]).get(tp, 0))
        until = min(broken.last_offset + 1, self._source.latest([tp]).get(tp, 0))
        if first >= until:
            return
        heard = time.monotonic()
        with Fetcher(self._alias, self._options, {tp: first}) as fetcher:
            while first < until:
                try:
                    found = fetcher.fetch(
                        _STEP_S, at_most_s=_STEP_S, most_bytes=_STEP_BYTES, most_records=_STEP_RECORDS
                    )
                except PositionGone:
                    # It has left the source since it was looked at.
                    return
                if tp in found.rows:
                    table = found.rows[tp].filter(pc.less(found.rows[tp]["offset"], until))
                    yield table.filter(self._not_erased(source, table["offset"]))
                if tp in found.read_to:
                    first, heard = found.read_to[tp], time.monotonic()
                elif time.monotonic() > heard + _SILENT_S:
                    raise ClusterUnreachable(
                        f"cluster {self._alias} gives nothing of {tp} from offset {first} on",
                        consequence="the broken file stays as it is",
                        remedy=f"bring {self._alias} back, then run the same command again",
                        alias=self._alias,
                    )

    @cached_property
    def _erased(self) -> list[Removed]:
        return erased_from(self._lake, self._alias)

    def _not_erased(self, source: SourcePartition, offsets: pa.ChunkedArray) -> pa.Array:
        """Mark the offsets that were not erased from the relay: the source may still hold erased ones."""
        erased = [one for one in self._erased if one.source == source]
        return pa.array([not any(one.holds(offset) for one in erased) for offset in offsets.to_pylist()], pa.bool_())

    def _is_same(self, source: SourcePartition, known: KnownTopic) -> bool:
        """Tell whether the source still has the generation of the partition that the file holds."""
        state = self._source.describe([source.topic]).get(source.topic)
        return (
            state is not None
            and state.topic_id == known.topic_id
            and source.partition < state.partitions
            and known.generation_of(source.partition) == source.generation
        )
