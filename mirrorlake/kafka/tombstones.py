"""Tombstones for erased records on a target: only where the log's newest record of a key is one that was erased.

The log itself decides, so nothing is deleted that nobody erased: a newer record of the key, whoever wrote it, has the cleaner
remove the erased ones by itself, and a tombstone that stands there already is not written again (law F). All of them are one
transaction; a record that comes between the look and a tombstone has it aborted, and looked at again.
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
# Each is a record of an erased key that came at that very moment.
_ATTEMPTS = 5

Ranges = Sequence[tuple[int, int]]
"""Downstream offsets as `(first, end)`, ascending."""
Headers = Sequence[tuple[str, bytes | None]]


@dataclass(slots=True, kw_only=True)
class ErasedOnTarget:
    """What one partition still holds of erased records.

    Attributes:
        records: erased records that stand there.
        keyless: those of them without a key, which no tombstone removes.
        due: keys whose newest record is an erased one.
        read_to: the offset up to which was read.
    """

    records: int = 0
    keyless: int = 0
    due: frozenset[bytes] = frozenset()
    read_to: int = 0


def judge_records(records: Iterable[RawRecord], erased: Ranges, *, end: int) -> ErasedOnTarget:
    """Read a partition from its first erased record on, up to `end`, and tell which keys want a tombstone.

    Example:
        >>> log = [RawRecord(partition=0, offset=at, key=key, value=value)
        ...        for at, (key, value) in enumerate([(b"a", b"1"), (b"b", b"1"), (b"a", b"2"), (b"c", None)])]
        >>> sorted(judge_records(log, [(0, 2), (3, 4)], end=4).due)
        [b'b']
    """
    found = ErasedOnTarget(read_to=end)
    # Of a key of an erased record: whether its newest record is one that a tombstone has to follow.
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
    """What was sent of one attempt: the offset of each key's tombstone, by partition."""

    offsets: dict[TopicPartition, dict[bytes, int]] = field(default_factory=dict)
    refused: KafkaError | None = None

    def on_delivery(self, tp: TopicPartition, key: bytes, error: KafkaError | None, message: Message) -> None:
        self.refused = self.refused or error
        self.offsets.setdefault(tp, {})[key] = message.offset()


class TombstoneWriter:
    """Look for erased records on one target, and write tombstones; one transactional id, so that a killed one's are aborted."""

    def __init__(
        self, alias: str, *, producer: Mapping[str, Any], reader: Mapping[str, Any], transactional_id: str
    ) -> None:
        self._alias = alias
        self._producer_options = {
            **producer,
            "enable.idempotence": "true",
            "transactional.id": transactional_id,
            # While it is open, nobody reads past it.
            "transaction.timeout.ms": "60000",
            "queue.buffering.max.messages": "10000000",
        }
        self._reader_options = reader
        self._id = transactional_id

    def inspect(self, erased: Mapping[TopicPartition, Ranges]) -> dict[TopicPartition, ErasedOnTarget]:
        """Tell what stands of erased records, by partition; reads each from its first one to its end.

        Raises:
            ClusterError: the target does not answer, or refuses.
        """
        found = {}
        with RecordReader(self._alias, self._reader_options) as reader:
            for tp, ranges in sorted(erased.items()):
                # Below it every transaction is decided.
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
        """Write what is due, in one transaction, and count it; doing it again writes nothing.

        `spared` names, of some keys, those that get none; `announce` is told where they stand before they are committed.

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
                # Aborts what a killed one has left open.
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
            f"records of the erased keys came to {', '.join(topics)} again and again while tombstones were written",
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
        """Tell whether a record of one of the keys stands between what was looked at and its tombstone."""
        with RecordReader(self._alias, self._reader_options, committed=False) as reader:
            for tp, offsets in sent.offsets.items():
                last = max(offsets.values())
                for record in reader.read(tp.topic, tp.partition, looks[tp].read_to):
                    if record.offset >= last:
                        break
                    # What deletes a key itself, an earlier attempt perhaps, loses nothing by a tombstone after it.
                    if (
                        record.key is not None
                        and record.value is not None
                        and record.offset < offsets.get(record.key, -1)
                    ):
                        return True
        return False


def _is_before(end: int, record: RawRecord) -> bool:
    return record.offset < end
