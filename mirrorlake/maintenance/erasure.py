"""Erase records from a relay for good: chosen by content, taken out by offset, gone from the disk.

The plan reads the topic; `removal.py` carries it out. Offsets, maps and ledgers remain: they name records, and hold none.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import KW_ONLY, asdict, dataclass, field, replace
from datetime import datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from mirrorlake.errors import SafetyError, UsageError
from mirrorlake.lake import (
    BAD_RECORDS,
    RELAY_ROWS,
    Lake,
    accounted_positions,
    read_rows,
)
from mirrorlake.maintenance.compaction import SentUpTo
from mirrorlake.maintenance.erasure_results import ErasedPart, Erasure, OnTarget
from mirrorlake.maintenance.removal import OutOfTables, Removals
from mirrorlake.maintenance.selector import Selector
from mirrorlake.model.flow import SOURCE_KEY, SourcePartition
from mirrorlake.model.ranges import Ranges
from mirrorlake.model.removed import ERASED, Removed

_ROWS = 10_000
_SENT = """
    SELECT DISTINCT m.flow, m.target_topic FROM {offset_map} AS m JOIN {erased} AS e
    ON m.source_topic = e.topic AND m.generation = e.generation AND m.source_partition = e.partition
        AND m.first_upstream <= e.last AND m.last_upstream >= e.first
    WHERE m.kind = 'sent' ORDER BY 1, 2
"""


@dataclass(slots=True)
class _Found:
    """The matches in the tables: offsets to erase by source partition, and counts of records that stay."""

    offsets: dict[SourcePartition, set[int]] = field(default_factory=dict)
    files: int = 0
    bytes: int = 0
    undecided: int = 0
    waiting: int = 0

    @property
    def records(self) -> int:
        return sum(len(several) for several in self.offsets.values())


@dataclass(eq=False, repr=False)
class Eraser:
    """Erase records of one topic from a source's data in the lake.

    `flows` are the positions up to which each flow of the source has sent. `on_target` returns how long a flow's target retains its
    copy of a topic. `foreign_flows` have sent records of other sources, whose topics may have the same names.
    """

    lake: Lake
    alias: str
    flows: Sequence[SentUpTo]
    _: KW_ONLY
    on_target: Callable[[SentUpTo, str], str]
    now: Callable[[], datetime]
    foreign_flows: Collection[str] = ()
    out_of_tables: OutOfTables = lambda _alias, _removed: {}

    def __post_init__(self) -> None:
        table = self.lake.open_maintenance(self.lake.relay_location(self.alias))
        if table is None:
            raise UsageError(
                f"the relay of {self.alias} can only be written by Spark",
                consequence="nothing was erased",
                remedy="in Spark SQL: DELETE FROM the relay, then VACUUM it; see docs/erasure.md",
            )
        self._table = table
        self._removals = Removals(self.lake, self.alias, table, self.out_of_tables)

    def plan(self, topic: str, selector: Selector, reason: str) -> Erasure:
        """Return which records would be erased, and where; changes nothing."""
        found = self._find(topic, selector)
        return self._told(topic, selector, reason, found)

    def erase(self, topic: str, selector: Selector, reason: str) -> Erasure:
        """Erase the records; a run after a killed one ends the same.

        Raises:
            UsageError: nothing of the topic was landed.
            SafetyError: a flow streams the relay and has not read the records yet.
            StoreError: other maintenance rewrote the files again and again.
        """
        finished = self._removals.finish()
        found = self._find(topic, selector)
        told = self._told(topic, selector, reason, found)
        self._refuse_streams(found)
        at, removal = self.now(), str(uuid.uuid4())
        evidence = {"by": selector.by, "files": found.files}
        announced = [
            Removed(
                removal=removal,
                source=source,
                ranges=Ranges.of(offsets),
                records=len(offsets),
                kind=ERASED,
                reason=reason,
                evidence=evidence,
                removed_at=at,
            )
            for source, offsets in sorted(found.offsets.items())
        ]
        done = self._removals.take_out(announced)
        # Records landed meanwhile.
        left = self._find(topic, selector)
        return replace(
            told,
            planned=False,
            finished=sum(one.records for one in finished if one.kind == ERASED),
            removal=removal if done else "",
            relay_version=max((one.relay_version or 0 for one in done), default=None),
            rows_of_tables=done[0].evidence["tables"] if done else {},
            deleted_files=tuple(done[0].evidence["deleted_files"]) if done else (),
            sent_to=self._sent_to(found),
            left=left.records + left.waiting,
        )

    def _sent_to(self, found: _Found) -> tuple[str, ...]:
        """Return the topics that got erased records, each with its flow; also renamed and retired flows, and replays."""
        rows = [
            {**asdict(source), "first": min(offsets), "last": max(offsets)} for source, offsets in found.offsets.items()
        ]
        if not rows:
            return ()
        sent = self.lake.query(_SENT, tables={"erased": pa.Table.from_pylist(rows)}, missing_ok=True)
        return tuple(f"{row.target_topic} by {row.flow}" for row in sent if row.flow not in self.foreign_flows)

    def _find(self, topic: str, selector: Selector) -> _Found:
        found = _Found()
        accounted = accounted_positions(self.lake, self.alias)
        is_known = False
        for path, size in self._files(topic):
            is_known = True
            chosen = 0
            for source, offsets in self._chosen(path, topic, selector, found):
                end = accounted.get(source, 0)
                known = {offset for offset in offsets if offset < end}
                # Accounting reads files: a record missing there would count as a marker (law E).
                found.waiting += len(offsets) - len(known)
                found.offsets.setdefault(source, set()).update(known)
                chosen += len(known)
            if chosen:
                found.files += 1
                found.bytes += size
        self._find_copies(topic, selector, found)
        found.offsets = {source: offsets for source, offsets in found.offsets.items() if offsets}
        if not is_known and not found.offsets:
            raise UsageError(
                f"the relay of {self.alias} holds nothing of {topic}",
                consequence="nothing was erased",
                remedy="give the topic's name on the source; its earlier names count as other topics",
                alias=self.alias,
            )
        return found

    def _files(self, topic: str) -> Iterator[tuple[str, int]]:
        live = self._table.live()
        names = [name for name in ("min.topic", "max.topic") if name in live.column_names]
        found, several = [], []
        for row in live.select(["path", "size_bytes", *names]).to_pylist():
            least, most = row.get("min.topic"), row.get("max.topic")
            if least is None or most is None or least <= topic <= most:
                found.append((row["path"], row["size_bytes"]))
                several += [] if least == most else [row["path"]]
        spans = self._table.spans(several)
        for path, size in found:
            # Another tool wrote the file: only its rows name the topics.
            if path not in spans or any(span.source.topic == topic for span in spans[path]):
                yield path, size

    def _chosen(
        self, path: str, topic: str, selector: Selector, found: _Found
    ) -> Iterator[tuple[SourcePartition, list[int]]]:
        columns = list(dict.fromkeys([*SOURCE_KEY, "offset", *selector.columns]))
        with self._table.open(path) as file, pq.ParquetFile(file, coerce_int96_timestamp_unit="us") as parquet:
            for batch in parquet.iter_batches(batch_size=_ROWS, columns=columns, use_threads=False):
                yield from _matches(batch, topic, selector, found)

    def _find_copies(self, topic: str, selector: Selector, found: _Found) -> None:
        """Add matches in `bad_records`: the relay's copy may have left by its retention."""
        table = self.lake.open_maintenance(self.lake.meta_location(BAD_RECORDS))
        if table is None:
            return
        headers = RELAY_ROWS.field("headers")
        for path in table.live().column("path").to_pylist():
            rows = read_rows(table, [path])
            rows = rows.filter(pc.equal(rows.column("source"), self.alias))
            rows = rows.append_column(headers, pa.nulls(len(rows), headers.type))
            for batch in rows.combine_chunks().to_batches():
                for source, offsets in _matches(batch, topic, selector, found):
                    found.offsets.setdefault(source, set()).update(offsets)

    def _refuse_streams(self, found: _Found) -> None:
        for standing in self.flows:
            for source, offsets in found.offsets.items():
                if standing.flow.execution != "streaming" or not standing.flow.carries(source.topic):
                    continue
                position = (standing.positions or {}).get(source, 0)
                if max(offsets) >= position:
                    raise SafetyError(
                        f"{standing.flow.name} streams the relay (execution: streaming) and has read {source} up to {position}",
                        consequence=f"the erasure reaches offset {max(offsets)}, so the stream would fail at a missing file; nothing "
                        "was erased",
                        remedy=f"let it catch up (mirrorlake republish --flow '{standing.flow.name}' --once), then erase again",
                        flow=standing.flow.name,
                    )

    def _told(self, topic: str, selector: Selector, reason: str, found: _Found) -> Erasure:
        return Erasure(
            source=self.alias,
            topic=topic,
            by=selector.by,
            reason=reason,
            planned=True,
            parts=tuple(
                ErasedPart(source=source, records=len(offsets), first_offset=min(offsets), last_offset=max(offsets))
                for source, offsets in sorted(found.offsets.items())
            ),
            files=found.files,
            bytes=found.bytes,
            undecided=found.undecided,
            waiting=found.waiting,
            targets=tuple(
                self._target(standing, topic, found) for standing in self.flows if standing.flow.carries(topic)
            ),
        )

    def _target(self, standing: SentUpTo, topic: str, found: _Found) -> OnTarget:
        flow, positions = standing.flow, standing.positions
        passed = None
        if positions is not None:
            passed = sum(
                sum(offset < positions.get(source, 0) for offset in offsets)
                for source, offsets in found.offsets.items()
            )
        return OnTarget(
            flow=flow.name,
            target=flow.target,
            topic=flow.remote_topic(topic),
            passed=passed,
            unsent=None if passed is None else found.records - passed,
            keeps=self.on_target(standing, topic),
        )


def _matches(
    batch: pa.RecordBatch, topic: str, selector: Selector, found: _Found
) -> Iterator[tuple[SourcePartition, list[int]]]:
    mine = pc.equal(batch.column("topic"), topic)
    rows = batch.filter(mine)
    if not len(rows):
        return
    for source, part in _by_life(rows, topic):
        chosen, undecided = selector.chosen(source, part)
        found.undecided += int(undecided.sum())
        if chosen.any():
            yield source, part.column("offset").filter(pa.array(chosen)).to_pylist()


def _by_life(rows: pa.RecordBatch, topic: str) -> Iterator[tuple[SourcePartition, pa.RecordBatch]]:
    lives = np.stack([rows.column(name).to_numpy(zero_copy_only=False) for name in ("generation", "partition")])
    for generation, partition in np.unique(lives, axis=1).T.tolist():
        here = (lives[0] == generation) & (lives[1] == partition)
        yield SourcePartition(topic, generation, partition), rows.filter(pa.array(here))
