"""Checks of positions that the offset map alone does not decide, with one read of relay and source for all of them."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass

import pyarrow as pa

from mirrorlake.config.schema import FlowConfig
from mirrorlake.kafka import those_led
from mirrorlake.lake import RelayPart, left_before, ranges_of, read_landing_positions
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.groups import PositionCheck
from mirrorlake.model.ranges import Ranges
from mirrorlake.offsets.maps import OffsetMaps
from mirrorlake.offsets.neighbours import SOURCE_COLUMNS, ReadPosition
from mirrorlake.topics import TopicSource

_SPANS = pa.schema({**SOURCE_COLUMNS, **dict.fromkeys(("at", "low", "high"), pa.int64())})
_BEGUN = """
    SELECT topic, generation, partition, min(position) AS begun FROM {positions}
    WHERE source = :source AND kind = 'landed' GROUP BY topic, generation, partition
"""
_LANDED = """
    SELECT s.topic, s.generation, s.partition, s.at,
        coalesce(max(CASE WHEN r.`offset` >= s.low THEN r.`offset` END), -1) AS newest,
        sum(CASE WHEN r.`offset` >= s.low AND r.`offset` < s.high THEN 1 ELSE 0 END) AS records,
        min(CASE WHEN r.`offset` >= s.at THEN r.`offset` END) AS unread,
        min(CASE WHEN unix_micros(r.timestamp) >= :start THEN r.`offset` END) AS begins
    FROM {relay} AS r JOIN {spans} AS s
        ON r.topic = s.topic AND r.generation = s.generation AND r.partition = s.partition
    GROUP BY s.topic, s.generation, s.partition, s.at
"""
_WITHHELD = """
    SELECT s.topic, s.generation, s.partition, s.at, s.low, s.high, f.first_upstream, f.last_upstream, f.holes
    FROM {fates} AS f JOIN {spans} AS s
        ON f.source_topic = s.topic AND f.generation = s.generation AND f.source_partition = s.partition
        AND f.last_upstream >= s.low AND f.first_upstream < s.high
    WHERE f.flow = :flow AND f.kind <> 'sent'
"""


@dataclass(frozen=True, slots=True)
class _Landed:
    """Landed records at a position: `between` it and the republished range, the `newest` offset (-1 without one).

    `is_left_out` is whether the flow's `start` leaves out a record that the reader has not read.
    """

    between: int = 0
    newest: int = -1
    is_left_out: bool = False


@dataclass
class PositionChecker:
    """Check positions on the source of one flow.

    `unsure` is the first republished upstream offset by position (None: nothing was republished). `source` is None if
    the source is lost. `paired` are topics that come back from the target, whose records before the flow's first
    still unsent one may be copies.
    """

    maps: OffsetMaps
    flow: FlowConfig
    unsure: Mapping[ReadPosition, int | None]
    source: TopicSource | None
    paired: Collection[str] = ()

    def __post_init__(self) -> None:
        self._republished = self.maps.positions[self.flow.name]
        self._earliest: Mapping[TopicPartition, int] = {}
        if not self.unsure:
            return
        self._read_to = read_landing_positions(self.maps.lake, self.flow.source)
        self._begun = self._landing_begun()
        if self.source is not None:
            # Without log start offsets, a position counts as readable itself, which is never ahead (law A).
            asked = {partition.tp for partition, _ in self.unsure}
            self._earliest = self.source.log_start_offsets(those_led(self.source, asked))
        self._landed = self._read_landed()

    def check(self, source: SourcePartition, offset: int) -> PositionCheck:
        first = self.unsure[source, offset]
        if blocker := self.maps.resume_blocker(self.flow.name, source, offset, first):
            return PositionCheck(is_safe=False, reason=blocker)
        landed = self._landed.get((source, offset), _Landed())
        begun = self._begun.get(source)
        readable_from = max(offset, self._earliest.get(source.tp, offset))
        if offset < self._sent_from(source, first):
            # Safe if the reader could still read no record that is skipped.
            is_safe = landed.between == 0 and begun is not None and readable_from >= begun
            return PositionCheck() if is_safe else _never_sent(offset)
        if self._begins_late(source, first) and (readable_from < (begun or 0) or landed.is_left_out):
            return _never_sent(offset)
        # At or past the end of the republished records, a reader waits on the target for records that it has read.
        landed_to = max(self._read_to.get(source, 0), landed.newest + 1)
        if offset <= max(landed_to, self._republished.get(source, 0)) and landed.between == 0:
            return PositionCheck()
        what, again = ("landed", None) if offset > landed_to else ("republished", landed.between)
        reason = f"past what was {what}; it waits at the last republished position"
        return PositionCheck(exact=False, again=again, reason=reason)

    def _begins_late(self, source: SourcePartition, first: int | None) -> bool:
        """Return whether the records before the flow's first, still unsent record count."""
        return first is None and source.topic not in self.paired

    def _sent_from(self, source: SourcePartition, first: int | None) -> int:
        """Return the first offset that the flow sent or, before it sent any, the first that it will send."""
        if first is not None:
            return first
        return self._republished.get(source, 0) if self._begins_late(source, first) else 0

    def _landing_begun(self) -> dict[SourcePartition, int]:
        """Return the first offsets of the relay, or the first that retention left in it: the flow sends nothing before them."""
        rows = self.maps.lake.query(_BEGUN, source=self.flow.source)
        begun = {SourcePartition(row.topic, row.generation, row.partition): int(row.begun) for row in rows}
        left = left_before(self.maps.lake, self.flow.source)
        return {source: max(position, left.get(source, 0)) for source, position in begun.items()}

    def _read_landed(self) -> dict[ReadPosition, _Landed]:
        """Read what was landed around each position, without records that the flow's rules withheld: no reader waits for those.

        Past the republished range, the reader has read the records between and the target lacks them. Before it, the
        reader has not read them and never will on the target.
        """
        start, left_out = self.flow.start.timestamp_ms, set[ReadPosition]()
        spans, lowest = [], dict[SourcePartition, int]()
        for (source, at), first in self.unsure.items():
            sent_from = self._sent_from(source, first)
            low, high = (at, sent_from) if at < sent_from else (self._republished.get(source, 0), at)
            spans.append({**asdict(source), "at": at, "low": low, "high": high})
            # A flow with a time as its `start` leaves out earlier records of partitions of which it has sent nothing yet.
            if start is not None and self._begins_late(source, first) and source not in self._republished:
                left_out.add((source, at))
                low = 0
            lowest[source] = min(low, lowest.get(source, low))
        tables, part = {"spans": pa.Table.from_pylist(spans, _SPANS)}, RelayPart(lowest, others=False)
        rows = self.maps.lake.query(
            _LANDED, relay=self.flow.source, part=part, tables=tables, start=(start or 0) * 1000, missing_ok=True
        )
        withheld: dict[ReadPosition, int] = {}
        for row in self.maps.ask(_WITHHELD, flow=self.flow.name, tables=tables) if rows else ():
            one = SourcePartition(row.topic, row.generation, row.partition), int(row.at)
            withheld[one] = withheld.get(one, 0) + (ranges_of(row) & Ranges([(row.low, row.high)])).count
        landed = {}
        for row in rows:
            one = SourcePartition(row.topic, row.generation, row.partition), int(row.at)
            is_left_out = one in left_out and row.unread is not None and (row.begins is None or row.unread < row.begins)
            landed[one] = _Landed(int(row.records) - withheld.get(one, 0), int(row.newest), is_left_out)
        return landed


def _never_sent(offset: int) -> PositionCheck:
    reason = f"records between {offset} and the first republished one were never republished by this flow"
    return PositionCheck(is_safe=False, reason=reason)
