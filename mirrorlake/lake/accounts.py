"""Account for every offset of a source partition: landed, or missing with its reason (law E).

Offsets are missing where control records and aborted records stand, where compaction removed records, and where
retention was faster than the lander. Whatever lies between two landed offsets goes to `gaps` with its kind; how far
landing has come goes to `positions`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from types import MappingProxyType
from typing import NamedTuple

from mirrorlake.lake.lake import Lake
from mirrorlake.lake.landing_state import LandedPositions, summarize_landed_after
from mirrorlake.lake.metadata import SourceTopics
from mirrorlake.lake.relay_files import newest_timestamp
from mirrorlake.lake.relay_log import RelayLog
from mirrorlake.lake.rows import gap_row, position_row
from mirrorlake.lake.schema import GAPS, POSITIONS
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.gaps import Gap

# Where the relay is no folder, accounting reads the small columns of what was landed since the last time: 0.4 CPU-s a million.
ACCOUNT_INTERVAL_S = 5.0
_RECORDED = """
    SELECT topic, generation, partition, first_offset, last_offset, missing, kind FROM {gaps}
    WHERE source = :source AND array_contains(:kinds, kind) ORDER BY first_offset, last_offset DESC
"""


class _Span(NamedTuple):
    """What was landed of a partition since the last account: its last offset, how many records, the newest timestamp."""

    last: int
    records: int
    newest: datetime


class OffsetAccounts:
    """Keep the accounts of one source cluster; its topics know where compaction is at work."""

    def __init__(self, lake: Lake, topics: SourceTopics, *, alias: str, now: Callable[[], datetime]) -> None:
        self._lake = lake
        self._topics = topics
        self._alias = alias
        self._now = now
        self._expected: dict[SourcePartition, int] = {}
        self._explained: dict[SourcePartition, tuple[int, int]] = {}
        self._flushed_until: datetime | None = None
        self._log: RelayLog | None = None
        # Whether somebody landed what is not accounted for, and died: the source may be silent from then on.
        self.is_due = False
        self.records = 0

    def resume(self, landed: LandedPositions, lost: Sequence[Gap]) -> None:
        """Go on where the last account ended; what was lost meanwhile is stepped over."""
        self._expected = {**landed.accounted, **{gap.source: gap.last_offset + 1 for gap in lost}}
        self._explained = {}
        if not landed.is_accounted:
            # Who died between a gap and the position past it has explained these offsets.
            for gap in self._recorded(("transactional", "compacted")):
                if gap.first_offset >= self._explained_to(gap.source)[0]:
                    self._explain(gap)
        self._flushed_until = None
        self._log = self._lake.relay_log(self._alias)
        self.is_due = not landed.is_accounted

    def remaining_offsets(self, ends: Mapping[TopicPartition, int] | None) -> int | None:
        """Count the offsets between what is accounted for and these ends; None where they are not known."""
        if ends is None:
            return None
        newest: dict[TopicPartition, SourcePartition] = {}
        for source in self._expected:
            tp = TopicPartition(source.topic, source.partition)
            newest[tp] = max(source, newest.get(tp, source))
        return sum(max(0, end - self._expected.get(newest[tp], 0) if tp in newest else end) for tp, end in ends.items())

    def open_accounts(self, offsets: Mapping[SourcePartition, int]) -> None:
        """Open the account of partitions that have none yet at the offset where landing them begins."""
        opened = {source: offset for source, offset in offsets.items() if source not in self._expected}
        self._expected |= opened
        self.write_positions({source: (offset, None) for source, offset in opened.items()})

    def flush_accounts(self, until: datetime, newest: Callable[[], datetime | None] = lambda: None) -> None:
        """Write the gaps between the offsets that were landed since the last time, and how far landing came.

        `until` is the time of the newest batch in the relay, `newest` reads it once more: a relay without that batch has gone
        back (law C). Law E: an account that could not be written is settled from where the last one ended, or its gaps would
        be stepped over.
        """
        if self._flushed_until == until:
            return
        spans, self._flushed_until = self._spans(until), None
        # After the files were listed: they may hold a batch that came after `until`.
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
        for gap in gaps:
            self._explain(gap)
        self.write_positions(reached, landed_at=landed_at)
        self._explained.clear()
        self._expected |= {source: position for source, (position, _) in reached.items()}
        self.records += records
        self._flushed_until, self.is_due = until, False

    def _spans(self, until: datetime) -> dict[SourcePartition, _Span]:
        """Find what was landed since the last time, by partition; where the relay is a folder, files tell it unread."""
        if self._log is None:
            # After a resumption offsets tell old from new, later the times of this lander's own batches, which only grow.
            already = self._expected if self._flushed_until is None else {}
            return _read_spans(self._lake, self._alias, already, self._flushed_until, until)
        look = self._log.files if self._flushed_until is None else self._log.new_files
        files = [file for file in look(self._expected) if file.last_offset >= self._expected.get(file.source, 0)]
        if any(file.first_offset < self._expected.get(file.source, 0) for file in files):
            # Rewritten since the last account: only its rows tell which of them are new.
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
        """Append to `gaps`."""
        self._lake.append_rows(GAPS, [gap_row(self._alias, gap, self._now()) for gap in gaps])

    def record_new_gaps(self, gaps: Sequence[Gap]) -> None:
        """Append to `gaps` what a start found, but for what one that died before has written of it (law F)."""
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
                # More has left the source since.
                missing = min(gap.missing, gap.last_offset - last)
                fresh.append(replace(gap, first_offset=last + 1, missing=missing))
        self.record(fresh)

    def _explained_to(self, source: SourcePartition) -> tuple[int, int]:
        """Return up to where gaps explain what the account does not hold yet, and how many offsets they do."""
        return self._explained.get(source, (self._expected.get(source, 0), 0))

    def _explain(self, gap: Gap) -> None:
        _, explained = self._explained_to(gap.source)
        self._explained[gap.source] = gap.last_offset + 1, explained + gap.missing

    def _recorded(self, kinds: Collection[str]) -> list[Gap]:
        if not kinds:
            return []
        rows = self._lake.query_rows(_RECORDED, source=self._alias, kinds=sorted(kinds))
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

        `opened` says where partitions began that have no account yet; one commit records both, so that no death between two
        leaves an account that says less than the relay holds (law F). No batch that it accounts for is newer than `landed_at`.
        """
        begins = [(source, (offset, None)) for source, offset in opened.items()]
        self._lake.append_rows(
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
