"""Checks of positions that the offset map alone does not decide, with one read of relay and source for all of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict

import pyarrow as pa

from mirrorlake.config.schema import FlowConfig
from mirrorlake.kafka import describe_with_leaders, list_partitions
from mirrorlake.lake import Lake, RelayPart, left_before, read_landing_positions, spans_of
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.groups import PositionCheck
from mirrorlake.offsets.maps import OffsetMaps
from mirrorlake.offsets.neighbours import ReadPosition
from mirrorlake.topics import TopicSource

_SPANS = pa.schema(
    {
        "topic": pa.string(),
        "generation": pa.int32(),
        "partition": pa.int32(),
        **dict.fromkeys(("at", "low", "high"), pa.int64()),
    }
)
_BEGUN = """
    SELECT topic, generation, partition, min(position) AS begun FROM {positions}
    WHERE source = :source AND kind = 'landed' GROUP BY topic, generation, partition
"""
_LANDED = """
    SELECT r.topic, r.generation, r.partition, s.at, max(r.`offset`) AS newest,
        sum(CASE WHEN r.`offset` < s.high THEN 1 ELSE 0 END) AS records
    FROM {relay} AS r JOIN {spans} AS s
        ON r.topic = s.topic AND r.generation = s.generation AND r.partition = s.partition AND r.`offset` >= s.low
    GROUP BY r.topic, r.generation, r.partition, s.at
"""
# A flow with a time as its `start` leaves out the records before that time, in partitions of which it has sent nothing yet.
_LEFT_OUT = """
    SELECT r.topic, r.generation, r.partition, s.at
    FROM {relay} AS r JOIN {spans} AS s
        ON r.topic = s.topic AND r.generation = s.generation AND r.partition = s.partition
    GROUP BY r.topic, r.generation, r.partition, s.at
    HAVING min(CASE WHEN r.`offset` >= s.at THEN r.`offset` END)
        < coalesce(min(CASE WHEN unix_micros(r.timestamp) >= :start THEN r.`offset` END), 9223372036854775807)
"""
_WITHHELD = """
    SELECT s.topic, s.generation, s.partition, s.at, s.low, s.high, f.first_upstream, f.last_upstream, f.holes
    FROM {fates} AS f JOIN {spans} AS s
        ON f.source_topic = s.topic AND f.generation = s.generation AND f.source_partition = s.partition
        AND f.last_upstream >= s.low AND f.first_upstream < s.high
    WHERE f.flow = :flow AND f.kind <> 'sent'
"""


class PositionChecker:
    """Check positions on the source of one flow.

    `unsure` is the first republished upstream offset by position (None: nothing was republished). `source` is None if
    the source is lost. `paired` are topics that come back from the target, whose records before the flow's first
    still unsent one may be copies.
    """

    def __init__(
        self,
        lake: Lake,
        flow: FlowConfig,
        unsure: Mapping[ReadPosition, int | None],
        *,
        maps: OffsetMaps,
        source: TopicSource | None,
        paired: Collection[str] = (),
    ) -> None:
        self._lake = lake
        self._flow = flow
        self._unsure = unsure
        self._paired = paired
        self._maps = maps
        self._republished = maps.positions[flow.name]
        self._read_to = read_landing_positions(lake, flow.source) if unsure else {}
        self._begun = self._landing_begun() if unsure else {}
        self._earliest: Mapping[TopicPartition, int] = {}
        if unsure and source is not None:
            # Without log start offsets, a position counts as readable itself, which is never ahead (law A).
            existing, leaderless = describe_with_leaders(source, {partition.topic for partition, _ in unsure})
            asked = {TopicPartition(partition.topic, partition.partition) for partition, _ in unsure}
            self._earliest = source.log_start_offsets(asked.intersection(list_partitions(existing)) - leaderless)
        self._spans = self._landed_between()
        self._left_out = self._unread_and_left_out()

    def check(self, source: SourcePartition, offset: int) -> PositionCheck:
        first = self._unsure[source, offset]
        if resume_blocker := self._maps.resume_blocker(self._flow.name, source, offset, first):
            return PositionCheck(is_safe=False, reason=resume_blocker)
        if offset < self._sent_from(source, first):
            # Safe if the reader could still read no record that is skipped.
            waiting, _ = self._spans.get((source, offset), (0, -1))
            is_safe = waiting == 0 and self._readable_from(source, offset) >= self._begun.get(source, 2**63)
            return PositionCheck() if is_safe else _never_sent(offset)
        is_past_left_out = self._readable_from(source, offset) < self._begun.get(source, 0)
        if self._begins_late(source, first) and (is_past_left_out or (source, offset) in self._left_out):
            return _never_sent(offset)
        return self._check_past_last(source, offset)

    def _sent_from(self, source: SourcePartition, first: int | None) -> int:
        """Return the first offset that the flow sent or, before it sent any, the first that it will send."""
        if first is not None:
            return first
        return self._republished.get(source, 0) if self._begins_late(source, first) else 0

    def _begins_late(self, source: SourcePartition, first: int | None) -> bool:
        """Return whether the records before the flow's first, still unsent record count."""
        return first is None and source.topic not in self._paired

    def _readable_from(self, source: SourcePartition, offset: int) -> int:
        return max(offset, self._earliest.get(TopicPartition(source.topic, source.partition), offset))

    def _check_past_last(self, source: SourcePartition, offset: int) -> PositionCheck:
        """Check a reader at or past the end of the republished records: on the target it waits for records that it has read."""
        seen = self._read_to.get(source, 0)
        waiting, last = self._spans.get((source, offset), (0, -1))
        if waiting == 0 and offset <= max(seen, last + 1, self._republished.get(source, 0)):
            return PositionCheck()
        if offset > max(seen, last + 1):
            reason = "past what was landed; it waits at the last republished position"
            return PositionCheck(exact=False, again=None, reason=reason)
        reason = "past what was republished; it waits at the last republished position"
        return PositionCheck(exact=False, again=waiting, reason=reason)

    def _landing_begun(self) -> dict[SourcePartition, int]:
        """Return the first offsets of the relay, or the first that retention left in it: the flow sends nothing before them."""
        rows = self._lake.query_rows(_BEGUN, source=self._flow.source)
        begun = {SourcePartition(row.topic, row.generation, row.partition): int(row.begun) for row in rows}
        left = left_before(self._lake, self._flow.source)
        return {source: max(position, left.get(source, 0)) for source, position in begun.items()}

    def _landed_between(self) -> dict[ReadPosition, tuple[int, int]]:
        """Count the landed records between each position and the republished range, and find the last landed offset.

        Past the republished range, the reader has read these records and the target lacks them. Before it, the reader
        has not read them and never will on the target.
        """
        if not self._unsure:
            return {}
        spans, lowest = [], dict[SourcePartition, int]()
        for (source, at), first in self._unsure.items():
            sent_from = self._sent_from(source, first)
            low, high = (at, sent_from) if at < sent_from else (self._republished.get(source, 0), at)
            spans.append({**asdict(source), "at": at, "low": low, "high": high})
            lowest[source] = min(low, lowest.get(source, low))
        tables = {"spans": pa.Table.from_pylist(spans, _SPANS)}
        part = RelayPart(lowest, others=False)
        landed = self._lake.query_rows(_LANDED, relay=self._flow.source, part=part, tables=tables, missing_ok=True)
        withheld = self._withheld_between(tables) if landed else {}
        found = {}
        for row in landed:
            one = SourcePartition(row.topic, row.generation, row.partition), int(row.at)
            found[one] = int(row.records) - withheld.get(one, 0), int(row.newest)
        return found

    def _unread_and_left_out(self) -> set[ReadPosition]:
        """Return the positions before landed records that the flow's `start` leaves out."""
        start = self._flow.start.timestamp_ms
        none_sent = [
            one
            for one, first in self._unsure.items()
            if self._begins_late(one[0], first) and one[0] not in self._republished
        ]
        if start is None or not none_sent:
            return set()
        spans = [{**asdict(source), "at": at, "low": 0, "high": at} for source, at in none_sent]
        rows = self._lake.query_rows(
            _LEFT_OUT,
            relay=self._flow.source,
            part=RelayPart({source: 0 for source, _ in none_sent}, others=False),
            tables={"spans": pa.Table.from_pylist(spans, _SPANS)},
            start=start * 1000,
            missing_ok=True,
        )
        return {(SourcePartition(row.topic, row.generation, row.partition), int(row.at)) for row in rows}

    def _withheld_between(self, tables: Mapping[str, pa.Table]) -> dict[ReadPosition, int]:
        """Count the records of each span that the flow's rules withheld; no reader waits for those."""
        found: dict[ReadPosition, int] = {}
        for row in self._maps.ask(_WITHHELD, flow=self._flow.name, tables=tables):
            one = SourcePartition(row.topic, row.generation, row.partition), int(row.at)
            for first, end in spans_of(row):
                found[one] = found.get(one, 0) + max(0, min(row.high, end) - max(row.low, first))
        return found


def _never_sent(offset: int) -> PositionCheck:
    reason = f"records between {offset} and the first republished one were never republished by this flow"
    return PositionCheck(is_safe=False, reason=reason)
