"""Compare the records that a replay sent with the relay, by count and by content (law C).

The offset map lists the replay's own downstream offsets; records of others between them are skipped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import groupby

import numpy as np
import pyarrow as pa

from mirrorlake.kafka import RecordReader
from mirrorlake.lake import Lake, LakeQuery, read_in_order, removed_from
from mirrorlake.model.flow import SOURCE_KEY, SourcePartition, TopicPartition
from mirrorlake.model.offset_map import MappedRange
from mirrorlake.model.replay import Definition
from mirrorlake.model.verify import MAX_DIFFERENCES, Difference, PartitionProof, VerifyReport
from mirrorlake.offsets import to_mapped_range
from mirrorlake.progress import ProgressCallback, ignore_progress
from mirrorlake.replay.define import files_in, look_at_relay
from mirrorlake.rules import View

_ROWS = """
    SELECT offset, timestamp, key, value, headers FROM {relay}
    WHERE topic = :topic AND generation = :generation AND partition = :partition AND offset >= :first AND offset < :end
    ORDER BY offset
"""
_RUNS = "SELECT * FROM {offset_map} WHERE flow = :flow"
_Content = tuple[bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...], int]
_Placed = tuple[SourcePartition, int, _Content]


def runs_of(lake: Lake, flow: str) -> dict[TopicPartition, list[MappedRange]]:
    """Return the mapped ranges of a replay by target partition, in downstream order."""
    found: dict[TopicPartition, list[MappedRange]] = {}
    for row in lake.query_rows(_RUNS, flow=flow):
        run = to_mapped_range(row)
        found.setdefault(run.target, []).append(run)
    return {target: sorted(runs, key=lambda run: run.first_downstream) for target, runs in sorted(found.items())}


def prove(
    lake: Lake,
    definition: Definition,
    view: View | None,
    reader: RecordReader,
    *,
    compacts: Callable[[str], bool] = lambda _: False,
    tell: ProgressCallback = ignore_progress,
) -> VerifyReport:
    """Compare all records that a replay sent with the relay.

    Only for a replay whose records keep their partition number. `landed` counts the relay's records of the replay. Not compared
    are records that the target's retention has deleted, and those that its log cleaner may remove if the topic `compacts`: an
    older value of a key that has a newer one, or a deletion.
    """
    verified, differences = Counter[SourcePartition](), list[Difference]()
    wanted, seen = Counter[SourcePartition](), 0
    removed = removed_from(lake, definition.source)
    by_place: dict[tuple[str, int], list[SourcePartition]] = {}
    for span in definition.spans:
        by_place.setdefault((span.topic, span.partition), []).append(span.source)
    by_target = runs_of(lake, definition.name)
    sent = Counter[SourcePartition]()
    for run in (run for each in by_target.values() for run in each):
        sent[run.source] += run.count
    runs = {(each[0].source.topic, each[0].source.partition): each for each in by_target.values()}

    def beside(source: SourcePartition, offset: int) -> list[Difference]:
        # A record that left the relay after it was sent is not extra.
        if any(one.source == source and one.holds(offset) for one in removed):
            return []
        return [Difference.at(source, offset, where="target", problem="extra")]

    for place, sources in sorted(by_place.items()):
        left = _Left(reader, runs.get(place, []), compacts)
        arrived = left.records()
        record = next(arrived, None)
        for source, offset, content in _wanted(lake, definition, view, frozenset(sources)):
            wanted[source] += 1
            while record is not None and record[:2] < (source, offset):
                differences += beside(*record[:2])
                record = next(arrived, None)
            if record is None or record[:2] != (source, offset):
                differences += left.lacks(source, offset, content)
            else:
                if record[2] == content:
                    verified[source] += 1
                else:
                    differences.append(Difference.at(source, offset, where="target", problem="altered"))
                record = next(arrived, None)
            if len(differences) >= MAX_DIFFERENCES:
                return _report(definition, wanted, sent, verified, differences)
            seen += 1
            if not seen % 10_000:
                tell(f"verify {definition.name}", seen, definition.records)
        while record is not None:
            differences += beside(*record[:2])
            record = next(arrived, None)
        differences += left.lost()
    tell(f"verify {definition.name}", verified.total(), verified.total())
    return _report(definition, wanted, sent, verified, differences)


def _report(
    definition: Definition,
    wanted: Mapping[SourcePartition, int],
    sent: Mapping[SourcePartition, int],
    verified: Mapping[SourcePartition, int],
    differences: Sequence[Difference],
) -> VerifyReport:
    wrong = {(one.topic, one.partition) for one in differences}
    partitions = tuple(
        PartitionProof(
            topic=source.topic,
            generation=source.generation,
            partition=source.partition,
            landed=wanted[source],
            republished=sent[source],
            withheld=0,
            verified=0 if (source.topic, source.partition) in wrong else verified[source],
            not_compared=0 if (source.topic, source.partition) in wrong else wanted[source] - verified[source],
        )
        for source in sorted(span.source for span in definition.spans)
    )
    return VerifyReport(
        flow=definition.name, equal=not differences, partitions=partitions, differences=tuple(differences)
    )


def _wanted(
    lake: Lake, definition: Definition, view: View | None, sources: frozenset[SourcePartition]
) -> Iterator[_Placed]:
    for source, batch in _batches_of(lake, definition, view, sources):
        stamps = batch.column("timestamp").cast(pa.timestamp("ms", tz="UTC"), safe=False).cast(pa.int64()).to_pylist()
        columns = [batch.column(name).to_pylist() for name in ("offset", "key", "value", "headers")]
        for offset, key, value, headers, stamp in zip(*columns, stamps, strict=True):
            pairs = tuple((one["key"], one["value"]) for one in headers or ())
            yield source, offset, (key, value, pairs, stamp)


def _batches_of(
    lake: Lake, definition: Definition, view: View | None, only: Collection[SourcePartition]
) -> Iterator[tuple[SourcePartition, pa.RecordBatch]]:
    """Yield the records of some source partitions of a replay, each once and in upstream order (law D)."""
    held = look_at_relay(lake, definition.source)
    by_source = {source: list(files) for source, files in groupby(files_in(held, definition.spans), lambda f: f.source)}
    for span in definition.spans:
        if span.source not in only:
            continue
        if held.files is None:
            values = {name: getattr(span, name) for name in (*SOURCE_KEY, "first", "end")}
            found = lake.query_frame(LakeQuery(_ROWS, {"relay": (definition.source, None)}, values=values))
            batches = iter(found.toArrow().to_batches())
        else:
            batches = read_in_order(by_source.get(span.source, []), position=span.first)
        for batch in batches:
            offsets = batch.column("offset").to_numpy(zero_copy_only=False)
            records = batch.slice(0, int(np.searchsorted(offsets, span.end)))
            if view is not None and len(records):
                records = view(span.source, records).records
            if len(records):
                yield span.source, records


class _Left:
    """The records of a replay in a target partition, and those that its retention or compaction removed."""

    def __init__(self, reader: RecordReader, runs: list[MappedRange], compacts: Callable[[str], bool]) -> None:
        self._reader = reader
        self._runs = runs
        self._compacts = bool(runs) and compacts(runs[0].target.topic)
        self._newest: dict[bytes | None, int] = {}
        self._lacking: list[tuple[SourcePartition, int, int, bytes, bool]] = []

    def records(self) -> Iterator[_Placed]:
        """Yield the replay's own records by source partition and offset, in upstream order."""
        if not self._runs:
            return
        target, waiting = self._runs[0].target, iter(self._runs)
        run: MappedRange | None = next(waiting)
        for record in self._reader.read(target.topic, target.partition, self._runs[0].first_downstream):
            if self._compacts:
                # The newer value may come from another producer.
                self._newest[record.key] = record.offset
            while run is not None and record.offset > run.last_downstream:
                run = next(waiting, None)
            if run is None and not self._compacts:
                return
            if run is not None and record.offset >= run.first_downstream:
                yield (
                    run.source,
                    run.upstream_of(record.offset),
                    (record.key, record.value, record.headers, record.timestamp_ms),
                )

    def lacks(self, source: SourcePartition, offset: int, content: _Content) -> list[Difference]:
        """Return the difference of an absent record, or []; a compacted log is judged after all was read (`lost`)."""
        found = (run.downstream_of(offset) for run in self._runs if run.source == source)
        at = next((one for one in found if one is not None), None)
        if at is not None and at < self._first:
            return []
        key, value, *_ = content
        if at is None or not self._compacts or key is None:
            return [_missing(source, offset)]
        self._lacking.append((source, offset, at, key, value is None))
        return []

    def lost(self) -> list[Difference]:
        """List the records that a compacted log lacks without explanation; call it after all was read."""
        for _, _, at, key, _ in self._lacking:
            # Only the newest known record of a key can be a loss.
            self._newest[key] = max(at, self._newest.get(key, -1))
        return [
            _missing(source, offset)
            for source, offset, at, key, is_deletion in self._lacking
            if not is_deletion and at == self._newest[key]
        ]

    @cached_property
    def _first(self) -> int:
        if not self._runs:
            return 0
        target = self._runs[0].target
        return self._reader.ends(target.topic, target.partition)[0]


def _missing(source: SourcePartition, offset: int) -> Difference:
    return Difference.at(source, offset, where="target", problem="missing")
