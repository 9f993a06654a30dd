"""Find where a source's log was truncated: an unclean election, a lost disk, a broker restored from an older copy.

A truncated log may end before what was landed. It may also have grown past it again, with other records at landed offsets.
The leader epoch grows with every election (KIP-320), and a log only grows while it stays: comparing epochs costs one request.
Where an epoch has changed, the last landed record is compared with the source's record there. If they differ, the first
differing offset is searched.

Law E (accounted for): what the source holds from the truncation on is landed as a generation of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from itertools import chain
from operator import or_
from typing import TYPE_CHECKING, Any, TypeVar

from mirrorlake.kafka import SMALL_QUEUES, RawRecord, RecordReader
from mirrorlake.lake import KnownTopic, Lake, last_rows
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.gaps import Gap, LogTruncation
from mirrorlake.model.late_times import relay_us

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

log = logging.getLogger(__name__)
_T = TypeVar("_T")

# Records compared in a round: 2^20 landed records take five rounds.
_PROBES = 16
# Partitions in one query, each a condition of it: Java compiles no query with 200 of them.
_BATCH_SIZE = 50
# A partition's last row is read from so many last offsets; one that ends in more aborted records is searched.
_TAIL_OFFSETS = 100_000
# Headers are not compared: clients return header keys that are not UTF-8 differently.
_COMPARED_COLUMNS = ("offset", "unix_millis(timestamp) AS ms", "key", "value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """What a source holds of a partition now, and the next offset to land."""

    log_start_offset: int
    end: int
    landed: int


def partitions_to_compare(
    known: Mapping[str, KnownTopic],
    ends: Mapping[TopicPartition, tuple[int, int]],
    landed: Mapping[TopicPartition, int],
) -> list[TopicPartition]:
    """Return the partitions whose log may have been truncated since the last start.

    `ends` are high watermark and leader epoch of each partition now, `landed` the next offsets to land.
    """
    return [
        tp
        for tp, position in sorted(landed.items())
        if tp in ends
        and (
            ends[tp][0] < position or ends[tp][1] < 0 or known[tp.topic].leader_epochs.get(tp.partition) != ends[tp][1]
        )
    ]


def truncation_gap(topic: KnownTopic, truncation: LogTruncation, landed: int) -> Gap:
    """Return the range that the relay holds and the source has lost by a truncation."""
    old = SourcePartition(topic.name, topic.generation_of(truncation.partition), truncation.partition)
    return Gap(source=old, first_offset=truncation.first_offset, last_offset=landed - 1, missing=0, kind="truncated")


def find_truncations(
    lake: Lake,
    alias: str,
    reader_options: Mapping[str, Any],
    known: Mapping[str, KnownTopic],
    extents: Mapping[TopicPartition, Extent],
    *,
    default_cleanup: str,
) -> dict[str, list[LogTruncation]]:
    """Compare a relay with its source, and return the log truncations by topic.

    `extents` are of the partitions to compare, `default_cleanup` is the policy of topics that set none themselves.
    """
    truncations: dict[str, list[LogTruncation]] = {}
    if not extents:
        return truncations
    # A broker's restart changes the epochs of all its partitions: their last records are read together, on either side.
    newest = _newest_rows(lake, alias, known, extents)
    may_be_held = {
        tp: row.offset
        for tp, row in newest.items()
        if extents[tp].log_start_offset <= row.offset and extents[tp].landed <= extents[tp].end
    }
    relay = partial(lake.relay, alias)
    with RecordReader(alias, {**reader_options, **SMALL_QUEUES}, committed=False) as reader:
        held = reader.read_each(may_be_held)
        unchanged = {tp for tp, record in held.items() if _is_equal(newest[tp], record)}
        # These have no landed record that the source still holds.
        unchanged |= {tp for tp, extent in extents.items() if extent.landed <= min(extent.log_start_offset, extent.end)}
        log.info("land.logs_compared source=%s partitions=%s unchanged=%s", alias, len(extents), len(unchanged))
        for tp in sorted(extents.keys() - unchanged):
            topic = known[tp.topic]
            compacts = topic.may_compact(default_cleanup)
            offset = _TruncationSearch(relay, reader, topic, tp.partition, extents[tp], compacts=compacts).find()
            log.info("land.log_compared source=%s topic_partition=%s cut=%s", alias, tp, offset)
            if offset is not None:
                generation = topic.generation_of(tp.partition) + 1
                truncation = LogTruncation(partition=tp.partition, generation=generation, first_offset=offset)
                truncations.setdefault(tp.topic, []).append(truncation)
    return truncations


def _newest_rows(
    lake: Lake, alias: str, known: Mapping[str, KnownTopic], extents: Mapping[TopicPartition, Extent]
) -> dict[TopicPartition, Any]:
    """Return the last record that the relay holds of each partition, in the generations that the source still holds."""
    if (relay_log := lake.relay_log(alias)) is not None:
        rows = last_rows(
            relay_log, dict(chain.from_iterable(_comparable_ranges(known, *each) for each in extents.items()))
        )
        # Sorted by generation: the newest one has the last offset.
        return {source.tp: row for source, row in sorted(rows.items())}
    relay = lake.relay(alias)
    newest = _rows_at(relay, known, {tp: extent.landed - 1 for tp, extent in extents.items()})
    # A partition that ends in a transaction marker has no row there. Two jobs find the last rows of all such partitions; a search
    # would take two jobs for each of them.
    lacking = {tp: extent for tp, extent in extents.items() if tp not in newest}
    return newest | _rows_at(relay, known, _last_offsets(relay, known, lacking))


def _comparable_ranges(
    known: Mapping[str, KnownTopic], tp: TopicPartition, extent: Extent
) -> Iterable[tuple[SourcePartition, tuple[int, int]]]:
    for generation, start, end in _generation_ranges(known[tp.topic], tp.partition):
        low, high = max(start, extent.log_start_offset), extent.landed if end is None else min(end, extent.landed)
        if low < high:
            yield SourcePartition(tp.topic, generation, tp.partition), (low, high)


def _rows_at(
    relay: DataFrame, known: Mapping[str, KnownTopic], offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Any]:
    """Return each partition's row at one offset; omit partitions with a control record there."""
    from pyspark.sql import functions as F

    found: dict[TopicPartition, Any] = {}
    for part in _batches(offsets):
        places = [
            (F.col("topic") == tp.topic)
            & (F.col("generation") == known[tp.topic].generation_at(tp.partition, offset))
            & (F.col("partition") == tp.partition)
            & (F.col("offset") == offset)
            for tp, offset in part
        ]
        rows = relay.where(reduce(or_, places)).selectExpr("topic", "partition", *_COMPARED_COLUMNS)
        found |= {TopicPartition(row.topic, row.partition): row for row in rows.collect()}
    return found


def _last_offsets(
    relay: DataFrame, known: Mapping[str, KnownTopic], extents: Mapping[TopicPartition, Extent]
) -> dict[TopicPartition, int]:
    """Return each partition's last landed offset within the last 100 000; omit the others."""
    from pyspark.sql import functions as F

    found: dict[TopicPartition, int] = {}
    for part in _batches(extents):
        tails = [
            (F.col("topic") == tp.topic)
            & (F.col("partition") == tp.partition)
            & _in_generation_ranges(known[tp.topic], tp.partition)
            & (F.col("offset") >= max(extent.log_start_offset, extent.landed - _TAIL_OFFSETS))
            & (F.col("offset") < extent.landed)
            for tp, extent in part
        ]
        last = relay.where(reduce(or_, tails)).groupBy("topic", "partition").agg(F.max("offset").alias("last"))
        found |= {TopicPartition(row.topic, row.partition): row.last for row in last.collect()}
    return found


def _batches(items: Mapping[TopicPartition, _T]) -> Iterable[Sequence[tuple[TopicPartition, _T]]]:
    wanted = list(items.items())
    return (wanted[at : at + _BATCH_SIZE] for at in range(0, len(wanted), _BATCH_SIZE))


class _TruncationSearch:
    """Search one partition for the first offset at which source and relay hold different records."""

    def __init__(
        self,
        relay: Callable[[], DataFrame],
        reader: RecordReader,
        topic: KnownTopic,
        partition: int,
        extent: Extent,
        *,
        compacts: bool,
    ) -> None:
        self._relay = relay
        self._reader = reader
        self._topic = topic
        self._partition = partition
        self._extent = extent
        # A missing record proves nothing where the log cleaner runs.
        self._compacts = compacts

    @cached_property
    def _rows(self) -> DataFrame:
        from pyspark.sql import functions as F

        mine = (F.col("topic") == self._topic.name) & (F.col("partition") == self._partition)
        return self._relay().where(mine & _in_generation_ranges(self._topic, self._partition))

    def find(self) -> int | None:
        """Return the first offset of the source's new history, or None if the log was not truncated."""
        extent = self._extent
        low, high = extent.log_start_offset, extent.landed
        while offsets := self._spread(low, high):
            same = self._compare(offsets)
            if high == extent.landed and same[offsets[-1]] is True:
                # The newest comparable record is equal; only markers past it may be gone.
                return None if extent.end >= extent.landed else max(offsets[-1] + 1, extent.end)
            first_other = next((offset for offset in offsets if same[offset] is False), None)
            equal = [o for o in offsets if same[o] is True and (first_other is None or o < first_other)]
            if first_other is None and not equal:
                # No record of the range can be compared.
                break
            low = max([low, *(offset + 1 for offset in equal)])
            if first_other is None:
                if high == extent.landed:
                    return None if extent.end >= extent.landed else max(low, extent.end)
                continue
            high = first_other
        if high == extent.landed:
            return None if extent.end >= extent.landed else extent.end
        return low

    def _spread(self, low: int, high: int) -> list[int]:
        """Return some landed offsets in `[low, high)`, the newest one included."""
        from pyspark.sql import functions as F

        if low >= high:
            return []
        bucket = F.floor((F.col("offset") - low) * _PROBES / (high - low))
        found = self._rows.where((F.col("offset") >= low) & (F.col("offset") < high))
        return sorted(int(row.newest) for row in found.groupBy(bucket).agg(F.max("offset").alias("newest")).collect())

    def _compare(self, offsets: Sequence[int]) -> dict[int, bool | None]:
        """Return for each offset whether the source holds the same record, or None if that cannot be known."""
        from pyspark.sql import functions as F

        held = self._rows.where(F.col("offset").isin(list(offsets))).selectExpr(*_COMPARED_COLUMNS)
        rows = {row.offset: row for row in held.collect()}
        return {offset: self._is_same(rows[offset]) for offset in offsets}

    def _is_same(self, row: Any) -> bool | None:
        if row.offset >= self._extent.end:
            return False
        record = next(iter(self._reader.read(self._topic.name, self._partition, row.offset)), None)
        if record is None or record.offset != row.offset:
            low, _ = self._reader.ends(self._topic.name, self._partition)
            return None if self._compacts or low > row.offset else False
        return _is_equal(row, record)


def _is_equal(row: Any, record: RawRecord) -> bool:
    content = None if row.key is None else bytes(row.key), None if row.value is None else bytes(row.value)
    if row.offset != record.offset or content != (record.key, record.value):
        return False
    return row.ms is None or row.ms < 0 or record.timestamp_ms < 0 or row.ms == relay_us(record.timestamp_ms) // 1000


def _in_generation_ranges(topic: KnownTopic, partition: int) -> Column:
    """Return the condition for rows at offsets where the source holds their generation."""
    from pyspark.sql import functions as F

    parts = []
    for generation, start, end in _generation_ranges(topic, partition):
        part = (F.col("generation") == generation) & (F.col("offset") >= start)
        parts.append(part if end is None else part & (F.col("offset") < end))
    return reduce(or_, parts)


def _generation_ranges(topic: KnownTopic, partition: int) -> Iterable[tuple[int, int, int | None]]:
    """Yield generation, first offset and end of a partition's histories on the source; the last one has no end (None)."""
    starts = sorted({0, *(cut.first_offset for cut in topic.truncations if cut.partition == partition)})
    ends = [*starts[1:], None]
    return ((topic.generation_at(partition, start), start, end) for start, end in zip(starts, ends, strict=True))
