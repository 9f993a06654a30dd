"""Account for every offset of a source partition: landed, or missing with its reason (law E).

Offsets are missing for control records, aborted records, records that compaction removed, and records that expired before the
lander read them. Offsets between two landed ones go to `gaps` with their kind. The next offset to land goes to `positions`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple

from mirrorlake.crash_points import crash_point
from mirrorlake.lake.lake import Lake
from mirrorlake.lake.landing_state import LandedPositions, summarize_landed_after
from mirrorlake.lake.metadata import SourceTopics
from mirrorlake.lake.relay_files import newest_timestamp
from mirrorlake.lake.relay_log import RelayLog
from mirrorlake.lake.rows import gap_row, position_row
from mirrorlake.lake.schema import GAPS, POSITIONS
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.gaps import Gap

_RECORDED = """
    SELECT topic, generation, partition, first_offset, last_offset, missing, kind FROM {gaps}
    WHERE source = :source AND array_contains(:kinds, kind) ORDER BY first_offset, last_offset DESC
"""


class _Span(NamedTuple):
    """The records of a partition landed since the last account: last offset, count, newest timestamp."""

    last: int
    records: int
    newest: datetime


class OffsetAccounts:
    """Write the gaps and positions of one source cluster; `topics` has the cleanup policies."""

    def __init__(self, lake: Lake, topics: SourceTopics, *, alias: str, now: Callable[[], datetime]) -> None:
        self._lake = lake
        self._topics = topics
        self._alias = alias
        self._now = now
        self._expected: dict[SourcePartition, int] = {}
        self._explained: dict[SourcePartition, tuple[int, int]] = {}
        self._flushed_until: datetime | None = None
        self._log: RelayLog | None = None
        # A lander that died may leave landed records without an account, and no new record may ever trigger one.
        self.is_due = False
        self.records = 0

    def resume(self, landed: LandedPositions, lost: Sequence[Gap]) -> None:
        """Resume after the last account, and skip the offsets that were lost since."""
        self._expected = {**landed.accounted, **{gap.source: gap.last_offset + 1 for gap in lost}}
        self._explained = {}
        if not landed.is_accounted:
            # A lander may have died after writing a gap, before its position.
            for gap in self._recorded(("transactional", "compacted")):
                if gap.first_offset >= self._explained_to(gap.source)[0]:
                    self._explain(gap)
        self._flushed_until = None
        self._log = self._lake.relay_log(self._alias)
        self.is_due = not landed.is_accounted

    def remaining_offsets(self, ends: Mapping[TopicPartition, int] | None) -> int | None:
        """Return the number of offsets between the accounted positions and these ends, or None without ends."""
        if ends is None:
            return None
        newest: dict[TopicPartition, SourcePartition] = {}
        for source in self._expected:
            tp = source.tp
            newest[tp] = max(source, newest.get(tp, source))
        return sum(max(0, end - self._expected.get(newest[tp], 0) if tp in newest else end) for tp, end in ends.items())

    def open_accounts(self, offsets: Mapping[SourcePartition, int]) -> None:
        """Open the account of each new partition at the offset where landing it begins."""
        opened = {source: offset for source, offset in offsets.items() if source not in self._expected}
        self._expected |= opened
        self.write_positions({source: (offset, None) for source, offset in opened.items()})

    def flush_accounts(self, until: datetime, newest: Callable[[], datetime | None] = lambda: None) -> None:
        """Write the gaps between newly landed offsets, and the next offsets to land.

        `until` is the time of the newest batch in the relay, and `newest` reads that time again: a relay that lacks the batch was
        restored to an older version (law C). Law E: after a failed write the next account starts at the end of the last written
        one, so that it skips no gap.
        """
        if self._flushed_until == until:
            return
        spans, self._flushed_until = self._spans(until), None
        # Read after the files were listed, because they may include a batch later than `until`.
        landed_at = newest()
        # A partition that appears while the query runs starts at 0, or Spark would have called it a loss.
        self.open_accounts(dict.fromkeys(spans, 0))
        gaps, reached, records = [], {}, 0
        for source, span in spans.items():
            expected, (upto, explained) = self._expected[source], self._explained_to(source)
            missing = span.last + 1 - expected - span.records - explained
            if missing > 0:
                compacts = self._topics.known[source.topic].may_compact(self._topics.default_cleanup)
                gaps.append(
                    Gap(
                        source=source,
                        first_offset=upto,
                        last_offset=span.last,
                        missing=missing,
                        kind="compacted" if compacts else "transactional",
                    )
                )
            reached[source] = (span.last + 1, span.newest)
            records += span.records
        self.record(gaps)
        crash_point("land.gaps_recorded")
        for gap in gaps:
            self._explain(gap)
        self.write_positions(reached, landed_at=landed_at)
        crash_point("land.accounted")
        self._explained.clear()
        self._expected |= {source: position for source, (position, _) in reached.items()}
        self.records += records
        self._flushed_until, self.is_due = until, False

    def _spans(self, until: datetime) -> dict[SourcePartition, _Span]:
        """Return the records landed since the last account, by partition; in a folder the file statistics suffice."""
        if self._log is None:
            # New records are those past known offsets after a resumption, later those of later batches, whose times only increase.
            already = self._expected if self._flushed_until is None else {}
            return _read_spans(self._lake, self._alias, already, self._flushed_until, until)
        look = self._log.files if self._flushed_until is None else self._log.new_files
        files = [file for file in look(self._expected) if file.last_offset >= self._expected.get(file.source, 0)]
        if any(file.first_offset < self._expected.get(file.source, 0) for file in files):
            # A file was rewritten since the last account, so its rows must be read for the new ones.
            return _read_spans(self._lake, self._alias, self._expected, None, None)
        found: dict[SourcePartition, _Span] = {}
        for file in files:
            here = _Span(file.last_offset, file.records, newest_timestamp(file))
            before = found.get(file.source, here._replace(records=0))
            found[file.source] = _Span(
                max(before.last, here.last), before.records + here.records, max(before.newest, here.newest)
            )
        return found

    def record(self, gaps: Sequence[Gap]) -> None:
        self._lake.append(GAPS, [gap_row(self._alias, gap, self._now()) for gap in gaps])

    def record_new_gaps(self, gaps: Sequence[Gap]) -> None:
        """Append the gaps of a start to `gaps`, without those that an earlier, killed start has written (law F)."""
        known: dict[tuple[SourcePartition, str, int], int] = {}
        for one in self._recorded({gap.kind for gap in gaps}):
            key = (one.source, one.kind, one.first_offset)
            known[key] = max(one.last_offset, known.get(key, -1))
        fresh = []
        for gap in gaps:
            last = known.get((gap.source, gap.kind, gap.first_offset))
            if last is None:
                fresh.append(gap)
            elif last < gap.last_offset:
                # More records expired on the source since.
                missing = min(gap.missing, gap.last_offset - last)
                fresh.append(replace(gap, first_offset=last + 1, missing=missing))
        self.record(fresh)

    def _explained_to(self, source: SourcePartition) -> tuple[int, int]:
        """Return the end of the gaps written past the account's position, and the number of offsets they explain."""
        return self._explained.get(source, (self._expected.get(source, 0), 0))

    def _explain(self, gap: Gap) -> None:
        _, explained = self._explained_to(gap.source)
        self._explained[gap.source] = gap.last_offset + 1, explained + gap.missing

    def _recorded(self, kinds: Collection[str]) -> list[Gap]:
        if not kinds:
            return []
        rows = self._lake.query(_RECORDED, source=self._alias, kinds=sorted(kinds))
        return [
            Gap(
                source=SourcePartition(row.topic, row.generation, row.partition),
                first_offset=int(row.first_offset),
                last_offset=int(row.last_offset),
                missing=int(row.missing),
                kind=row.kind,
            )
            for row in rows
        ]

    def write_positions(
        self,
        reached: Mapping[SourcePartition, tuple[int, datetime | None]],
        *,
        opened: Mapping[SourcePartition, int] = MappingProxyType({}),
        landed_at: datetime | None = None,
    ) -> None:
        """Append the next offset to land of each partition, and its newest record's timestamp, to `positions`.

        `opened` are the first offsets of partitions without an account. One commit records both, so that a lander killed between
        two commits cannot leave an account behind the relay (law F). No batch that it accounts for is newer than `landed_at`.
        """
        begins = [(source, (offset, None)) for source, offset in opened.items()]
        self._lake.append(
            POSITIONS,
            [
                position_row(
                    self._alias,
                    source,
                    "landed",
                    position,
                    self._now(),
                    record_timestamp=newest,
                    landed_at=landed_at,
                )
                for source, (position, newest) in [*begins, *reached.items()]
            ],
        )


def _read_spans(
    lake: Lake,
    alias: str,
    positions: Mapping[SourcePartition, int],
    since: datetime | None,
    until: datetime | None,
) -> dict[SourcePartition, _Span]:
    return {
        SourcePartition(row.topic, row.generation, row.partition): _Span(int(row.last), int(row.records), row.newest)
        for row in summarize_landed_after(lake, alias, positions, since, until)
    }
