"""One transaction of a lane: the records of a chunk, their ledger record, and the target's delivery reports.

Without transactions (`at_least_once`) the steps are the same, each confirmed by a flush.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Collection, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, pairwise, repeat
from operator import length_hint
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import KafkaError, KafkaException, Message, Producer

from mirrorlake.kafka.lane.batch import Batch, concatenate
from mirrorlake.kafka.lane.columns import Unsendable, binary_values, header_lists, timestamps_ms
from mirrorlake.kafka.lane.faults import RestartWithReports, is_refused, is_too_large
from mirrorlake.kafka.lane.outgoing import unsendable_error
from mirrorlake.kafka.lane.refused import TOO_LARGE, RecordsRefused, Refused, group_by_source, refusal
from mirrorlake.kafka.lane.spec import LaneSpec
from mirrorlake.model.flow import SourcePartition, TopicPartition, ledger_topic
from mirrorlake.model.ledger import LedgerRecord
from mirrorlake.model.offset_map import MappedRange, holes_between

CALL_TIMEOUT_S = 30.0
# Enough for a batch of 1 MB over a slow line; a refused record must be found soon.
_STALL_TIMEOUT_S = 10.0

_Offsets = npt.NDArray[np.int64]


class Transaction:
    """One attempt to send a chunk, by a producer that holds the lane.

    Each record of the topics in `dense` reports its downstream offset. With `reports_each`, each report also names its
    record, so that `refused` holds those that the target refuses.
    """

    def __init__(
        self, producer: Producer, spec: LaneSpec, *, dense: Collection[str] = (), reports_each: bool = False
    ) -> None:
        self._producer = producer
        self._spec = spec
        self._dense = dense
        self._reports_each = reports_each
        self._sent: dict[tuple[SourcePartition, TopicPartition], _Sent] = {}
        self.ledger_refused: KafkaError | None = None

    @property
    def error(self) -> KafkaError | None:
        return next((one.error for one in self._sent.values() if one.error is not None), None)

    @property
    def refused(self) -> Refused:
        """The records whose own report says that they are refused."""
        return group_by_source(
            (source, offset, why) for (source, _), one in self._sent.items() for offset, why in one.refused.items()
        )

    @property
    def topics(self) -> list[str]:
        return list(dict.fromkeys(target.topic for _, target in self._sent))

    def begin(self) -> None:
        if self._spec.exactly_once:
            self._producer.begin_transaction()

    def send(self, *batches: Batch) -> None:
        """Hand the records of batches to the producer."""
        for several, records in concatenate(batches):
            self._send(several, records)
        self._producer.poll(0)

    def _send(self, batches: Sequence[Batch], records: pa.RecordBatch) -> None:
        timestamps, keys, values, headers = (records.column(name) for name in ("timestamp", "key", "value", "headers"))
        try:
            stamps = timestamps_ms(timestamps).to_pylist()
            header_column = header_lists(headers)
        except Unsendable as problem:
            batch, row = _locate_row(batches, problem.row)
            raise unsendable_error(batch, Unsendable(row, problem.why), flow=self._spec.claim.flow) from problem
        counts = [len(batch.records) for batch in batches]
        asked = iter(stamps)
        arguments = map(
            self._producer.produce,
            chain.from_iterable(map(repeat, (batch.target.topic for batch in batches), counts)),
            binary_values(values),
            binary_values(keys),
            chain.from_iterable(map(repeat, (batch.target.partition for batch in batches), counts)),
            chain.from_iterable(map(self._callbacks, batches)),
            repeat(None),  # `on_delivery`, the second name of the same argument
            asked,
            header_column,
        )
        try:
            deque(arguments, maxlen=0)
        except KafkaException as error:
            if not is_too_large(error.args[0]):
                raise
            # The refused record is the last one taken.
            batch, row = _locate_row(batches, len(stamps) - length_hint(asked) - 1)
            raise RecordsRefused(group_by_source([(batch.source, int(batch.offsets[row]), TOO_LARGE)])) from error

    def _callbacks(self, batch: Batch) -> Iterable[Any]:
        place = batch.source, batch.target
        sent = self._sent.get(place)
        if sent is None:
            sent = self._sent[place] = _Sent()
        return sent.callbacks(
            batch.offsets, is_dense=batch.target.topic in self._dense, reports_each=self._reports_each
        )

    def flush(self) -> None:
        """Wait until every record is confirmed.

        A refused record blocks all that follow it, and without a callback of its own nothing reports it. If nothing moves for
        a while, the next attempt requests a report of each record.
        """
        left, moved = len(self._producer), time.monotonic()
        while self._producer.flush(0.5):
            # Without transactions each further attempt repeats what was sent, so this one waits for every report.
            if self.error is not None and (self._spec.exactly_once or not self._reports_each):
                raise KafkaException(self.error)
            if len(self._producer) < left:
                left, moved = len(self._producer), time.monotonic()
            elif time.monotonic() - moved > _STALL_TIMEOUT_S:
                if self.error is not None:
                    raise KafkaException(self.error)
                # Records with own reports just wait: a quota of 50 kB/s delays a batch of 1 MB by 20 s.
                if not self._reports_each:
                    raise RestartWithReports(None, f"confirm {left} records")

    def runs(self) -> tuple[MappedRange, ...]:
        """Return the mapped ranges of the confirmed records.

        Raises:
            RestartWithReports: another producer wrote in between.
        """
        return tuple(run for (source, target), sent in self._sent.items() for run in sent.runs(source, target))

    def record(self, record: LedgerRecord) -> None:
        topic, claim = ledger_topic(self._spec.claim.flow), record.claim
        self._producer.produce(
            topic, record.to_json(), str(claim.lane).encode(), claim.lane, on_delivery=self._on_ledger_delivery
        )

    def commit(self) -> None:
        if self._spec.exactly_once:
            self._producer.commit_transaction(CALL_TIMEOUT_S)
            return
        self.flush()
        if self.ledger_refused is not None:
            # No transaction ties it to its records: they will be sent twice, as `at_least_once` allows.
            raise KafkaException(self.ledger_refused)

    def abort(self) -> None:
        if self._spec.exactly_once:
            self._producer.abort_transaction(CALL_TIMEOUT_S)

    def _on_ledger_delivery(self, problem: KafkaError | None, _: object) -> None:
        self.ledger_refused = problem


def _locate_row(batches: Sequence[Batch], row: int) -> tuple[Batch, int]:
    for batch in batches:
        if row < len(batch.records):
            return batch, row
        row -= len(batch.records)
    raise IndexError(row)


class _Sent:
    """What was sent of one source partition, and the downstream offsets that were reported.

    Only the first and the last record have callbacks: `last - first = n - 1` proves every offset between them, and saves 0.2
    to 0.4 CPU-µs a record. If another producer wrote in between, each record gets one (dense).
    """

    def __init__(self) -> None:
        self._upstream: list[_Offsets] = []
        self._ends: list[int] = []
        self._each: list[int] = []
        self._is_dense = False
        self.error: KafkaError | None = None
        self.refused: dict[int, str] = {}

    def callbacks(self, offsets: _Offsets, *, is_dense: bool, reports_each: bool) -> Iterable[Any]:
        """Return the delivery callbacks, or None, of the next records."""
        self._upstream.append(offsets)
        self._is_dense = is_dense or reports_each
        if reports_each:
            return [partial(self._on_named, offset) for offset in offsets.tolist()]
        if is_dense:
            return repeat(self._on_each, len(offsets))
        if len(offsets) == 1:
            return [self._on_end]
        return [self._on_end, *repeat(None, len(offsets) - 2), self._on_end]

    def _on_end(self, error: KafkaError | None, message: Message) -> None:
        self.error = self.error or error
        self._ends.append(message.offset())

    def _on_each(self, error: KafkaError | None, message: Message) -> None:
        self.error = self.error or error
        self._each.append(message.offset())

    def _on_named(self, offset: int, error: KafkaError | None, message: Message) -> None:
        self._on_each(error, message)
        if error is not None and is_refused(error):
            self.refused[offset] = refusal(error)

    def runs(self, source: SourcePartition, target: TopicPartition) -> Iterator[MappedRange]:
        if self.error is not None:
            raise KafkaException(self.error)
        upstream = self._upstream[0] if len(self._upstream) == 1 else np.concatenate(self._upstream)
        if not self._is_dense:
            first = min(self._ends)
            if max(self._ends) - first != len(upstream) - 1:
                raise RestartWithReports(None, "write the chunk without records of other producers in between")
            yield _run(source, target, upstream, first)
            return
        downstream = np.asarray(self._each, dtype=np.int64)
        breaks = np.flatnonzero(np.diff(downstream) != 1) + 1
        for start, end in pairwise([0, *breaks.tolist(), len(upstream)]):
            yield _run(source, target, upstream[start:end], int(downstream[start]))


def _run(source: SourcePartition, target: TopicPartition, upstream: _Offsets, first_downstream: int) -> MappedRange:
    first, last, count = int(upstream[0]), int(upstream[-1]), len(upstream)
    return MappedRange(
        source=source,
        target=target,
        first_upstream=first,
        last_upstream=last,
        first_downstream=first_downstream,
        count=count,
        holes=holes_between(upstream.tolist()) if last - first != count - 1 else (),
    )
