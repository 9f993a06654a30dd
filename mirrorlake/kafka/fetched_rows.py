"""Records of consumer calls as Arrow columns: built once per call, and cut by partition on demand.

Building columns costs as much as 30 records: for a thousand partitions with a record each, 0.1 s.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, compress, pairwise
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import KafkaError, Message

from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.late_times import EARLIEST_MS, LATEST_MS, relay_us

log = logging.getLogger(__name__)

# Arrow's binary type has offsets of four bytes.
_MAX_BYTES = 2**31 - 1
_HEADERS = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
_SCHEMA = pa.schema(
    [
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestamp_type", pa.int32()),
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("headers", _HEADERS),
    ]
)
# Spark's TimestampType ids are Java's: none, create time, append time. librdkafka counts them from 0.
_JAVA_TYPES = np.array([-1, 0, 1], np.int32)

_Offsets = npt.NDArray[np.int64]


class UnreadableHeaders(Exception):
    """A header name is not UTF-8: librdkafka's binding cannot read it, Java's client replaces the bytes."""


@dataclass(frozen=True, slots=True)
class Sorted:
    """Messages sorted by topic and partition, in their original order within each.

    Those of `partitions[n]` are `messages[bounds[n]:bounds[n + 1]]`.
    """

    messages: Sequence[Message]
    partitions: Sequence[TopicPartition]
    bounds: npt.NDArray[np.intp]

    @property
    def offsets(self) -> _Offsets:
        return np.fromiter(map(Message.offset, self.messages), np.int64, len(self.messages))

    def only(self, keep: npt.NDArray[np.bool_]) -> Sorted:
        counts = np.add.reduceat(keep.astype(np.intp), self.bounds[:-1])
        partitions = list(compress(self.partitions, counts))
        return Sorted(list(compress(self.messages, keep)), partitions, np.append(0, np.cumsum(counts[counts > 0])))


def sort_messages(messages: Sequence[Message]) -> tuple[Sorted, list[tuple[KafkaError, Message]]]:
    """Sort the messages of one call. Errors among them are returned separately, in their order."""
    problems: list[tuple[KafkaError, Message]] = []
    # `map` calls the methods: a loop in Python costs more than the fetch.
    if any(map(Message.error, messages)):
        errors = list(map(Message.error, messages))
        problems = [(error, message) for error, message in zip(errors, messages, strict=True) if error is not None]
        messages = [message for error, message in zip(errors, messages, strict=True) if error is None]
    if not messages:
        return Sorted((), (), np.zeros(1, np.intp)), problems
    topics = list(map(Message.topic, messages))
    places = np.fromiter(map(Message.partition, messages), np.int64, len(messages))
    names = sorted(set(topics))
    if len(names) > 1:
        numbers = {name: number << 32 for number, name in enumerate(names)}
        places += np.fromiter(map(numbers.__getitem__, topics), np.int64, len(messages))
    # librdkafka hands out one fetch of a partition after another, so runs are sorted, not records.
    starts = np.append(0, np.flatnonzero(places[1:] != places[:-1]) + 1)
    lengths = np.diff(starts, append=len(messages))
    order = np.argsort(places[starts], kind="stable")
    if len(order) > 1 and (np.diff(order) != 1).any():
        runs = (
            (start, start + length)
            for start, length in zip(starts[order].tolist(), lengths[order].tolist(), strict=True)
        )
        messages = list(chain.from_iterable(messages[start:end] for start, end in runs))
    places, lengths = places[starts[order]], lengths[order]
    firsts = np.append(0, np.flatnonzero(places[1:] != places[:-1]) + 1)
    partitions = [TopicPartition(names[place >> 32] or "", place & 0xFFFFFFFF) for place in places[firsts].tolist()]
    return Sorted(messages, partitions, np.append(0, np.cumsum(np.add.reduceat(lengths, firsts)))), problems


@dataclass(frozen=True, slots=True)
class Block:
    """Records sorted by topic and partition: those of `partitions[n]` are the rows from `bounds[n]` to `bounds[n + 1]`."""

    records: pa.RecordBatch
    partitions: Sequence[TopicPartition]
    bounds: Sequence[int]

    def parts(self) -> Iterator[tuple[TopicPartition, int, int]]:
        for partition, (start, end) in zip(self.partitions, pairwise(self.bounds), strict=True):
            yield partition, start, end


class FetchedRows(Mapping[TopicPartition, pa.Table]):
    """The records of several calls by partition, in their original order.

    A partition's table is built on demand; `concatenate` is cheap for any number of partitions.
    """

    def __init__(self, blocks: Sequence[Block] = ()) -> None:
        self._blocks = blocks
        self._parts: dict[TopicPartition, list[tuple[pa.RecordBatch, int, int]]] = {}
        for block in blocks:
            for partition, start, end in block.parts():
                self._parts.setdefault(partition, []).append((block.records, start, end))

    def __getitem__(self, partition: TopicPartition) -> pa.Table:
        return pa.Table.from_batches(self._batches(partition), _SCHEMA)

    def __iter__(self) -> Iterator[TopicPartition]:
        return iter(self._parts)

    def __len__(self) -> int:
        return len(self._parts)

    @property
    def count(self) -> int:
        return sum(len(block.records) for block in self._blocks)

    def concatenate(self) -> tuple[list[TopicPartition], list[int], pa.Table]:
        """Return the partitions, sorted, the record count of each, and all records in that order."""
        partitions = sorted(self._parts)
        counts = [sum(end - start for _, start, end in self._parts[partition]) for partition in partitions]
        if len(self._blocks) == 1:
            batches = [self._blocks[0].records]
        else:
            batches = [batch for partition in partitions for batch in self._batches(partition)]
        return partitions, counts, pa.Table.from_batches(batches, _SCHEMA)

    def _batches(self, partition: TopicPartition) -> list[pa.RecordBatch]:
        return [records.slice(start, end - start) for records, start, end in self._parts[partition]]


def make_block(found: Sorted, offsets: _Offsets, alias: str) -> Block:
    """Convert messages to columns.

    Raises:
        UnreadableHeaders: only Java's client can read a record's headers.
    """
    messages = found.messages
    times = np.fromiter(chain.from_iterable(map(Message.timestamp, messages)), np.int64, 2 * len(messages))
    kinds, stamps = times.reshape(-1, 2).T
    micros = stamps * 1000
    for row in np.flatnonzero((stamps > LATEST_MS) | (stamps < EARLIEST_MS)).tolist():
        where = f"{messages[row].topic()}-{messages[row].partition()}@{offsets[row]}"
        log.warning("fetch.timestamp_marked source=%s record=%s timestamp_ms=%s", alias, where, stamps[row])
        micros[row] = relay_us(int(stamps[row]))
    columns = [
        pa.array(offsets, pa.int64()),
        # Spark reads a missing timestamp as -1 ms, too.
        pa.array(micros, pa.int64()).view(_SCHEMA.field("timestamp").type),
        pa.array(_JAVA_TYPES[kinds]),
        pa.array(list(map(Message.key, messages)), pa.binary()),
        _binary_column(list(map(Message.value, messages))),
        _header_column(_headers(messages)),
    ]
    return Block(pa.RecordBatch.from_arrays(columns, schema=_SCHEMA), found.partitions, found.bounds.tolist())


def _binary_column(values: Sequence[bytes | None]) -> pa.Array:
    """Build a column of values. Joining them copies each once; Arrow's own builder grows again and again."""
    if None in values:
        return pa.array(values, pa.binary())
    ends = np.zeros(len(values) + 1, np.int64)
    np.cumsum(np.fromiter(map(len, values), np.int64, len(values)), out=ends[1:])  # type: ignore[arg-type]
    if ends[-1] > _MAX_BYTES:
        return pa.array(values, pa.binary())
    buffers = [None, pa.py_buffer(ends.astype(np.int32)), pa.py_buffer(b"".join(values))]  # type: ignore[arg-type]
    return pa.BinaryArray.from_buffers(pa.binary(), len(values), buffers)


def _headers(messages: Sequence[Message]) -> list[Any]:
    try:
        return list(map(Message.headers, messages))
    except UnicodeDecodeError:
        for message in messages:
            try:
                message.headers()
            except UnicodeDecodeError as error:
                raise UnreadableHeaders(f"{message.topic()}-{message.partition()}: {error}") from error
        raise


def _header_column(headers: Sequence[Any]) -> pa.Array:
    if not any(headers):
        return pa.nulls(len(headers), _HEADERS)
    counts = np.fromiter((len(each) if each else 0 for each in headers), np.int32, len(headers))
    keys, values = zip(*chain.from_iterable(filter(None, headers)), strict=True)
    pairs = pa.StructArray.from_arrays(
        [pa.array(keys, pa.string()), pa.array(values, pa.binary())], fields=list(_HEADERS.value_type)
    )
    bounds = pa.array(np.append(np.int32(0), np.cumsum(counts, dtype=np.int32)))
    return pa.ListArray.from_arrays(bounds, pairs, type=_HEADERS, mask=pa.array(counts == 0))
