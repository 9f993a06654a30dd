"""Write tombstones for erased records on a target, only if a key's newest record is an erased one.

The log itself decides, so nothing is deleted that nobody erased: if the key has a newer record, the cleaner removes the
erased ones by itself, and an existing tombstone is not written again (law F). All tombstones are one transaction; a record
that arrives between the inspection and a tombstone aborts it, and the log is inspected again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import takewhile
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from mirrorlake.errors import ClusterError, ClusterUnreachable
from mirrorlake.kafka.errors import ClientErrors, Need, client_log
from mirrorlake.kafka.record_reader import RawRecord, RecordReader
from mirrorlake.model.flow import TopicPartition

ERASED_KEY = "mirrorlake.erased"
_CALL_S = 30.0
# Each attempt fails only by a record of an erased key that arrives at that very moment.
_ATTEMPTS = 5

Ranges = Sequence[tuple[int, int]]
"""Downstream offsets as `(first, end)`, ascending."""
Headers = Sequence[tuple[str, bytes | None]]


@dataclass(slots=True, kw_only=True)
class ErasedOnTarget:
    """The erased records that one partition still holds.

    Attributes:
        records: the number of erased records in the log.
        keyless: how many of them have no key; no tombstone removes them.
        due: keys whose newest record is an erased one.
        read_to: the offset up to which the partition was read.
    """

    records: int = 0
    keyless: int = 0
    due: frozenset[bytes] = frozenset()
    read_to: int = 0


def judge_records(records: Iterable[RawRecord], erased: Ranges, *, end: int) -> ErasedOnTarget:
    """Read a partition from its first erased record on, up to `end`, and find the keys that need a tombstone.

    Example:
        >>> log = [RawRecord(partition=0, offset=at, key=key, value=value)
        ...        for at, (key, value) in enumerate([(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"c", None)])]
        >>> sorted(judge_records(log, [(0, 2), (3, 4)], end=4).due)
        [b'b']
    """
    found = ErasedOnTarget(read_to=end)
    # Keys of erased records, and whether their newest record needs a tombstone.
    newest: dict[bytes, bool] = {}
    number = 0
    for record in records:
        while number < len(erased) and erased[number][1] <= record.offset:
            number += 1
        is_erased = number < len(erased) and erased[number][0] <= record.offset
        found.records += is_erased
        if record.key is None:
            found.keyless += is_erased
        elif is_erased or record.key in newest:
            newest[record.key] = is_erased and record.value is not None
    found.due = frozenset(key for key, is_due in newest.items() if is_due)
    return found


@dataclass(slots=True)
class _Sent:
    """What one attempt sent: the offset of each key's tombstone, by partition."""

    offsets: dict[TopicPartition, dict[bytes, int]] = field(default_factory=dict)
    refused: KafkaError | None = None

    def on_delivery(self, tp: TopicPartition, key: bytes, error: KafkaError | None, message: Message) -> None:
        self.refused = self.refused or error
        self.offsets.setdefault(tp, {})[key] = message.offset()


class TombstoneWriter:
    """Find erased records on one target, and write tombstones. One transactional id fences a killed writer."""

    def __init__(
        self, alias: str, *, producer: Mapping[str, Any], reader: Mapping[str, Any], transactional_id: str
    ) -> None:
        self._alias = alias
        self._producer_options = {
            **producer,
            "enable.idempotence": "true",
            "transactional.id": transactional_id,
            # Committed readers cannot read past an open transaction.
            "transaction.timeout.ms": "60000",
            "queue.buffering.max.messages": "10000000",
        }
        self._reader_options = reader
        self._id = transactional_id

    def inspect(self, erased: Mapping[TopicPartition, Ranges]) -> dict[TopicPartition, ErasedOnTarget]:
        """Find the erased records that each partition holds, reading from its first one to its end.

        Raises:
            ClusterError: the target does not answer, or refuses.
        """
        found = {}
        with RecordReader(self._alias, self._reader_options) as reader:
            for tp, ranges in sorted(erased.items()):
                # Every transaction below this end is decided.
                _, end = reader.ends(tp.topic, tp.partition)
                if ranges and ranges[0][0] < end:
                    records = reader.read(tp.topic, tp.partition, ranges[0][0])
                    found[tp] = judge_records(takewhile(partial(_is_before, end), records), ranges, end=end)
        return found

    def write(
        self,
        erased: Mapping[TopicPartition, Ranges],
        *,
        headers: Headers,
        spared: Callable[[Collection[bytes]], Collection[bytes]],
        announce: Callable[[Mapping[TopicPartition, Sequence[int]]], None],
    ) -> int:
        """Write the tombstones that are due, in one transaction. Return their number; a second call writes none.

        `spared` returns those of some keys that get no tombstone; `announce` gets the tombstones' offsets before they are
        committed.

        Raises:
            ClusterError: the target does not answer, or refuses.
        """
        errors, topics = (
            ClientErrors.from_options(self._alias, self._producer_options),
            sorted({tp.topic for tp in erased}),
        )
        needs = [Need("WRITE", "TOPIC", topics[0])] if topics else []
        needs.append(Need("WRITE", "TRANSACTIONAL_ID", self._id))
        with errors.translating("write tombstones", *needs):
            producer = Producer(self._producer_options, logger=client_log)
            try:
                # Aborts the transaction of a killed writer.
                producer.init_transactions(_CALL_S)
                for _ in range(_ATTEMPTS):
                    looks = self.inspect(erased)
                    keys = {key for found in looks.values() for key in found.due}
                    keys -= set(spared(keys)) if keys else set()
                    due = {tp: sorted(found.due & keys) for tp, found in looks.items() if found.due & keys}
                    if not due:
                        return 0
                    sent = self._send(producer, due, headers)
                    if not self._is_overtaken(looks, sent):
                        announce({tp: sorted(offsets.values()) for tp, offsets in sent.offsets.items()})
                        producer.commit_transaction(_CALL_S)
                        return sum(map(len, due.values()))
                    producer.abort_transaction(_CALL_S)
            except BaseException:
                with suppress(KafkaException):
                    producer.abort_transaction(_CALL_S)
                raise
            finally:
                producer.purge()
        raise ClusterError(
            f"records of the erased keys kept arriving in {', '.join(topics)} while tombstones were written",
            consequence="no tombstone was written; the lake is erased",
            remedy="stop the producer of these keys at the source, then run the same command again",
            alias=self._alias,
        )

    def _send(self, producer: Producer, due: Mapping[TopicPartition, Sequence[bytes]], headers: Headers) -> _Sent:
        sent = _Sent()
        producer.begin_transaction()
        for tp, keys in due.items():
            for key in keys:
                heard = partial(sent.on_delivery, tp, key)
                producer.produce(
                    tp.topic, value=None, key=key, partition=tp.partition, headers=[*headers], on_delivery=heard
                )
                producer.poll(0)
        left = producer.flush(_CALL_S)
        if sent.refused is not None:
            raise KafkaException(sent.refused)
        if left:
            raise ClusterUnreachable(
                f"cluster {self._alias} did not confirm {left} tombstones within {_CALL_S:.0f} s",
                consequence="none of them is visible; the lake is erased",
                remedy="run the same command again when the cluster answers",
                alias=self._alias,
            )
        return sent

    def _is_overtaken(self, looks: Mapping[TopicPartition, ErasedOnTarget], sent: _Sent) -> bool:
        """Return whether a record of one of the keys arrived between the inspection and its tombstone."""
        with RecordReader(self._alias, self._reader_options, committed=False) as reader:
            for tp, offsets in sent.offsets.items():
                last = max(offsets.values())
                for record in reader.read(tp.topic, tp.partition, looks[tp].read_to):
                    if record.offset >= last:
                        break
                    # A tombstone before this one, perhaps of an earlier attempt, loses nothing.
                    if (
                        record.key is not None
                        and record.value is not None
                        and record.offset < offsets.get(record.key, -1)
                    ):
                        return True
        return False


def _is_before(end: int, record: RawRecord) -> bool:
    return record.offset < end
