"""Find where a source's log went back: an unclean election, a lost disk, a broker restored from an older copy.

The end of such a log may lie before what was landed; or past it again, with other records at offsets that were landed. Two
things tell. The leader epoch grows with every election (KIP-320), and while it stays a log has only grown: that costs one
request. Where it has changed, what the relay holds is compared with what the source holds now, the last landed record first;
where that is another one, the first other one is searched.

Law E (accounted for): what the source holds from the cut on is landed as a generation of its own.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial, reduce
from itertools import chain
from operator import or_
from typing import Any, TypeVar

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from mirrorlake.kafka import SMALL_QUEUES, RawRecord, RecordReader
from mirrorlake.lake import KnownTopic, Lake, last_rows
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.gaps import Cut, Gap

log = logging.getLogger(__name__)
_T = TypeVar("_T")

# Each round looks at so many records; 2^20 landed records are searched in five rounds.
_PROBES = 16
# So many partitions are looked up in one query; each is a condition of it. Java compiles no query of 200 for any relay.
_BATCH_SIZE = 50
# So far before the end the last row of a partition is looked for; what ends in more aborted records is searched.
_TAIL_OFFSETS = 100_000
# Header keys that are not UTF-8 come differently from different clients.
_COMPARED_COLUMNS = ("offset", "unix_millis(timestamp) AS ms", "key", "value")


@dataclass(frozen=True, slots=True, kw_only=True)
class Extent:
    """What a source holds of a partition now, and up to where it was landed."""

    log_start_offset: int
    end: int
    landed: int


def partitions_to_compare(
    known: Mapping[str, KnownTopic],
    ends: Mapping[TopicPartition, tuple[int, int]],
    landed: Mapping[TopicPartition, int],
) -> list[TopicPartition]:
    """Return the partitions whose log may have gone back since it was looked at.

    `ends` are end and leader epoch of each partition now, `landed` the next offsets to land.
    """
    return [
        tp
        for tp, position in sorted(landed.items())
        if tp in ends
        and (
            ends[tp][0] < position or ends[tp][1] < 0 or known[tp.topic].leader_epochs.get(tp.partition) != ends[tp][1]
        )
    ]


def truncation_gap(topic: KnownTopic, truncation: Cut, landed: int) -> Gap:
    """Name what a cut explains: the range that the relay keeps and the source has lost."""
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
) -> dict[str, list[Cut]]:
    """Compare a relay with what its source holds now; return the cuts by topic, those of suspects that went back only.

    `default_cleanup` is the policy of topics that set none themselves.
    """
    truncations: dict[str, list[Cut]] = {}
    if not extents:
        return truncations
    # A restart of a broker makes all its partitions suspects: their last records are read together, on either side.
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
        # Nothing of these can be compared.
        unchanged |= {tp for tp, extent in extents.items() if extent.landed <= min(extent.log_start_offset, extent.end)}
        log.info("land.logs_compared source=%s partitions=%s unchanged=%s", alias, len(extents), len(unchanged))
        for tp in sorted(extents.keys() - unchanged):
            topic = known[tp.topic]
            compacts = topic.may_compact(default_cleanup)
            offset = _TruncationSearch(relay, reader, topic, tp.partition, extents[tp], compacts=compacts).find()
            log.info("land.log_compared source=%s topic_partition=%s cut=%s", alias, tp, offset)
            if offset is not None:
                generation = topic.generation_of(tp.partition) + 1
                truncation = Cut(partition=tp.partition, generation=generation, first_offset=offset)
                truncations.setdefault(tp.topic, []).append(truncation)
    return truncations


def _newest_rows(
    lake: Lake, alias: str, known: Mapping[str, KnownTopic], extents: Mapping[TopicPartition, Extent]
) -> dict[TopicPartition, Any]:
    """Return the last record that the relay holds of each partition, of the lives that the source holds there."""
    if (relay_log := lake.relay_log(alias)) is not None:
        rows = last_rows(
            relay_log, dict(chain.from_iterable(_comparable_ranges(known, *each) for each in extents.items()))
        )
        # Of several lives the last one has the last offset.
        return {TopicPartition(source.topic, source.partition): row for source, row in sorted(rows.items())}
    relay = lake.relay(alias)
    newest = _rows_at(relay, known, {tp: extent.landed - 1 for tp, extent in extents.items()})
    # A partition that ends in the marker of a transaction has no row there; two jobs find the last rows of all such partitions,
    # where a search would cost each of them two.
    lacking = {tp: extent for tp, extent in extents.items() if tp not in newest}
    return newest | _rows_at(relay, known, _last_offsets(relay, known, lacking))


def _comparable_ranges(
    known: Mapping[str, KnownTopic], tp: TopicPartition, extent: Extent
) -> Iterable[tuple[SourcePartition, tuple[int, int]]]:
    """Return between which offsets each life of a partition is what the source holds there, up to where it was landed."""
    for generation, start, end in _generation_ranges(known[tp.topic], tp.partition):
        low, high = max(start, extent.log_start_offset), extent.landed if end is None else min(end, extent.landed)
        if low < high:
            yield SourcePartition(tp.topic, generation, tp.partition), (low, high)


def _rows_at(
    relay: DataFrame, known: Mapping[str, KnownTopic], offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Any]:
    """Return the rows at one offset each of some partitions; markers have none."""
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
    """Return the offset of the last row before where landing stands; of partitions without one within the tail nothing."""
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
    """Search the first offset of one partition at which the source holds something else than the relay."""

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
        # Where the cleaner is at work, a record that is missing proves nothing.
        self._compacts = compacts

    @cached_property
    def _rows(self) -> DataFrame:
        mine = (F.col("topic") == self._topic.name) & (F.col("partition") == self._partition)
        return self._relay().where(mine & _in_generation_ranges(self._topic, self._partition))

    def find(self) -> int | None:
        """Return the first offset of the source's new history; None where the log did not go back."""
        extent = self._extent
        low, high = extent.log_start_offset, extent.landed
        while offsets := self._spread(low, high):
            same = self._compare(offsets)
            if high == extent.landed and same[offsets[-1]] is True:
                # The newest that can be compared is there; what may be gone are markers past it.
                return None if extent.end >= extent.landed else max(offsets[-1] + 1, extent.end)
            first_other = next((offset for offset in offsets if same[offset] is False), None)
            equal = [o for o in offsets if same[o] is True and (first_other is None or o < first_other)]
            if first_other is None and not equal:
                # Nothing of the range can be compared.
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
        """Return some landed offsets from `low` to before `high`, the newest among them."""
        if low >= high:
            return []
        bucket = F.floor((F.col("offset") - low) * _PROBES / (high - low))
        found = self._rows.where((F.col("offset") >= low) & (F.col("offset") < high))
        return sorted(int(row.newest) for row in found.groupBy(bucket).agg(F.max("offset").alias("newest")).collect())

    def _compare(self, offsets: Sequence[int]) -> dict[int, bool | None]:
        """Tell for each offset whether the source holds the same record; None where that cannot be known."""
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
    is_there = row.offset == record.offset and _content(row) == (record.key, record.value)
    return is_there and _same_time(row.ms, record)


def _content(row: Any) -> tuple[bytes | None, bytes | None]:
    return None if row.key is None else bytes(row.key), None if row.value is None else bytes(row.value)


def _same_time(ms: int | None, record: RawRecord) -> bool:
    return ms is None or ms < 0 or record.timestamp_ms < 0 or ms == record.timestamp_ms


def _in_generation_ranges(topic: KnownTopic, partition: int) -> Column:
    """Return the condition for rows whose offsets are of the life that the source holds there."""
    parts = []
    for generation, start, end in _generation_ranges(topic, partition):
        part = (F.col("generation") == generation) & (F.col("offset") >= start)
        parts.append(part if end is None else part & (F.col("offset") < end))
    return reduce(or_, parts)


def _generation_ranges(topic: KnownTopic, partition: int) -> Iterable[tuple[int, int, int | None]]:
    """Return the lives of a partition: generation, the first offset that is of it, and the one past it, None for the last life."""
    starts = sorted({0, *(cut.first_offset for cut in topic.truncations if cut.partition == partition)})
    ends = [*starts[1:], None]
    return ((topic.generation_at(partition, start), start, end) for start, end in zip(starts, ends, strict=True))
