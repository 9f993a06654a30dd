"""The lane producer: republish records of one lane, exactly once, and say where each one went (DESIGN 9).

    init_transactions      fences every older holder of the lane
    read the ledger        only now: nobody else can add to it any more
    for each chunk:
        begin · records · flush · are the remote topics the same? · one ledger record · commit

Law F (repeatable): whatever is killed whenever, the ledger record and the records it covers are visible together or
not at all, and a new holder skips what the ledger says is done. A worker goes on only from a tail of the ledger that is
its own owner's, at the sequence that the driver knows or later, read up to the high watermark. The id of a topic never
comes back: a remote topic that has the ledger's id after the flush holds what was sent; one with another id gets nothing
of the transaction. Law D (order): one producer, one partition, in order.

librdkafka has no KIP-890, so a late EndTxn may hit the next transaction of the same producer: after any error the
producer is destroyed and the protocol starts again at the first line.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import repeat
from operator import length_hint
from typing import Any

from confluent_kafka import KafkaError, KafkaException, Producer
from tenacity import Retrying, retry_if_exception_type, stop_after_delay, wait_random_exponential

from mirrorlake.errors import ClusterUnreachable, RemoteTopicLost
from mirrorlake.kafka.admin import ClusterAdmin
from mirrorlake.kafka.errors import client_log
from mirrorlake.kafka.lane.batch import Piece, Restart, Scattered, Sent, chunked, is_too_large
from mirrorlake.kafka.lane.columns import Unsendable, header_lists, timestamps_ms
from mirrorlake.kafka.lane.faults import Faults
from mirrorlake.kafka.lane.ledger_reader import LedgerReader
from mirrorlake.kafka.lane.outgoing import Outgoing, outgoing, refusal
from mirrorlake.kafka.lane.refused import (
    Refused,
    TooLarge,
    batches_refused,
    by_source,
    error_for,
    reason,
    refused_in,
    suspects,
    together,
)
from mirrorlake.kafka.lane.task import LaneTask
from mirrorlake.kafka.lane.throttle import Throttle, slices
from mirrorlake.kafka.remotes import require_same
from mirrorlake.model.flow import SourcePartition, TopicPartition, ledger_topic, transactional_id
from mirrorlake.model.lanes import of_lane
from mirrorlake.model.ledger import LedgerRecord
from mirrorlake.model.offset_map import Run
from mirrorlake.model.withheld import Withheld
from mirrorlake.rules.view import View

log = logging.getLogger(__name__)

_CALL_S = 30.0
# Long enough for a batch of 1 MB over a slow line; short enough that a refused record is named soon.
_STALLED_S = 10.0
_REPLACED = {KafkaError._FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH}  # noqa: SLF001
_PERMANENT = {
    KafkaError.TOPIC_AUTHORIZATION_FAILED,
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    KafkaError.CLUSTER_AUTHORIZATION_FAILED,
    KafkaError.INVALID_RECORD,
    KafkaError.INVALID_TIMESTAMP,
    KafkaError.INVALID_TRANSACTION_TIMEOUT,
    KafkaError.SASL_AUTHENTICATION_FAILED,
    KafkaError._AUTHENTICATION,  # noqa: SLF001
    KafkaError.TOPIC_EXCEPTION,
}


class LaneSender:
    """Hold one lane of a flow on its target.

    Args:
        task: the lane and its limits.

    Raises:
        LaneFenced: another owner holds the lane.
        RecordTooLarge, UnsendableRecord: a record that cannot arrive unchanged; nothing after it was sent.
        ClusterUnreachable: the target did not answer for `patience_s`.
    """

    def __init__(self, task: LaneTask) -> None:
        self.task = task
        self.positions: dict[SourcePartition, int] = {}
        self.seq = -1
        self._last: LedgerRecord | None = None
        self._ledger = TopicPartition(ledger_topic(task.flow), task.lane)
        self._producer: Producer | None = None
        self._dense: set[str] = set()
        self._view: View | None = None
        self._pace = Throttle()
        self._admin: ClusterAdmin | None = None
        self._ledger_refused: KafkaError | None = None
        self._fences = False
        self._faults = Faults(task)
        self._names = False
        self._refused: Refused = {}
        self._is_alone = False

    def still_serves(self, task: LaneTask) -> bool:
        """Tell whether this sender may go on with a later task of the same lane, and take the task over.

        It may not where the owner or the options changed, nor where another worker has sent in between.
        """
        same = (self.task.owner, self.task.options) == (task.owner, task.options)
        if self._producer is None or not same or task.seq != self.seq:
            return False
        self.task = task
        return True

    def open(self) -> LedgerRecord | None:
        """Fence older holders, then read where the lane stands; return its last ledger record.

        Raises:
            LaneFenced: the ledger names an owner of a later epoch.
        """
        for attempt in self._retrying():
            with attempt:
                self._open_once()
        return self._last

    def claim(self, record: LedgerRecord) -> LedgerRecord:
        """Commit one record that makes its epoch the lane's owner; used by the driver before any worker sends."""
        try:
            self._begin()
            self._produce_ledger(record)
            self._commit()
        except (KafkaException, Restart) as error:
            self.close()
            if isinstance(error, Restart):
                raise self._faults.never_helped(error) from error
            problem = error.args[0]
            if problem.code() not in _REPLACED and not problem.fatal():
                raise self._faults.refused(problem, "claim the lane", record=record) from error
            raise self._faults.fenced("another republisher started at the same time") from error
        return record

    def fence(self) -> LedgerRecord | None:
        """Fence older holders and return the lane's last ledger record, whosever it is; for the driver of a new owner."""
        self._fences = True
        return self.open()

    def send(self, pieces: Iterable[Piece], view: View | None = None) -> Iterator[LedgerRecord]:
        """Send what the ledger does not hold yet, chunk by chunk; yield each committed ledger record.

        Args:
            pieces: records as they stand in the relay.
            view: what the flow makes of them on their way; None sends them as they are.
        """
        self._view = view
        if self._producer is None:
            self.open()
        most, size = self.task.chunk_records, self.task.chunk_bytes
        chunks = chunked(slices(pieces, self.task.rate), lambda: self.positions, most_records=most, most_bytes=size)
        chunk = next(chunks, None)
        while chunk is not None:
            upcoming: list[list[Piece] | None] = []

            def read_ahead(upcoming: list[list[Piece] | None] = upcoming) -> None:
                # librdkafka's own thread is busy sending: the next chunk's files are read meanwhile.
                if not upcoming:
                    upcoming.append(next(chunks, None))

            self._pace.wait(self.task.rate, chunk)
            yield from self._send_chunk(chunk, read_ahead)
            read_ahead()
            chunk = upcoming[0]

    def close(self) -> None:
        """Drop the producer; an open transaction is aborted by the next holder, or by its time-out."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()

    def _retrying(self) -> Retrying:
        return Retrying(
            retry=retry_if_exception_type(Restart),
            stop=stop_after_delay(self.task.patience_s),
            wait=wait_random_exponential(multiplier=0.2, max=5),
            retry_error_callback=self._give_up,
        )

    def _give_up(self, state: Any) -> None:
        restart = state.outcome.exception()
        self.close()
        raise self._faults.never_helped(restart) from restart

    def _open_once(self) -> None:
        self.close()
        task = self.task
        # The topic's own limit decides what is too large, not the client's default of 1 MB.
        options = {"message.max.bytes": "104857600", **task.options, "enable.idempotence": "true"}
        if self._is_alone:
            options["batch.num.messages"] = "1"
        if task.exactly_once:
            options["transactional.id"] = transactional_id(task.flow, task.lane)
        try:
            self._producer = Producer(options, logger=client_log)
            if task.exactly_once:
                self._producer.init_transactions(_CALL_S)
        except KafkaException as error:
            self._fail(error, "start a transactional producer")
        self._last = self._judged(self._tail())
        if self._last is not None:
            self.seq = self._last.seq
            self.positions = of_lane(self._last.positions, task.lane, lanes=task.lanes)

    def _tail(self) -> LedgerRecord | None:
        """Read the lane's newest ledger record; up to the high watermark, or not at all."""
        task, place = self.task, self._ledger
        # Without transactions, records of a replaced owner may stand after the newest owner's.
        epoch = 0 if task.exactly_once else 2**63 if self._fences else task.epoch
        try:
            with LedgerReader(task.target, place.topic, task.reader_options) as reader:
                last, unread = reader.last(task.lane, epoch=epoch), reader.unread
        except ClusterUnreachable as error:
            raise Restart(None, "read the ledger") from error
        if unread:
            self.close()
            raise Restart(None, f"end the transaction that is open on {place.topic}-{place.partition}")
        return last

    def _judged(self, last: LedgerRecord | None) -> LedgerRecord | None:
        """Return the ledger's tail if this task may go on from it."""
        task = self.task
        if self._fences:
            return last
        mine = last is not None and (last.epoch, last.owner) == (task.epoch, task.owner)
        if last is not None and last.epoch >= task.epoch and not mine:
            self.close()
            raise self._faults.fenced(
                f"owner {last.owner} took over in epoch {last.epoch}, after this one's {task.epoch}"
            )
        known = max(self.seq, -1 if task.seq is None else task.seq)
        if (last.seq if last is not None else -1) < known or not (mine or task.seq is None):
            self.close()
            raise Restart(None, f"show record {known} of the ledger", last=self._faults.tail_lost(known, last))
        return last

    def _send_chunk(self, chunk: list[Piece], read_ahead: Callable[[], None]) -> list[LedgerRecord]:
        committed: list[LedgerRecord] = []
        self._refused = {}
        while True:
            try:
                self._send_known(chunk, committed, read_ahead)
            except TooLarge as found:
                # Each turn finds at least one more, or sends each record alone, so it comes to an end.
                self._refused = together(self._refused, self._exactly(chunk, found.records))
            else:
                return committed

    def _send_known(self, chunk: list[Piece], committed: list[LedgerRecord], read_ahead: Callable[[], None]) -> None:
        """Send what of a chunk is not known to be refused."""
        for attempt in self._retrying():
            with attempt:
                if self._producer is None:
                    known = self.seq
                    self._open_once()
                    if self._last is not None and self._last.seq == known + 1:
                        # The commit had arrived although its answer had not.
                        committed.append(self._last)
                    # Where the topic is gone, every attempt would wait for it until the time-out.
                    self._require_remotes(chunk)
                # Where something has failed, each record is asked for its own answer.
                self._names = attempt.retry_state.attempt_number > 1 or bool(self._refused)
                record = self._try([piece.after(self.positions.get(piece.source)) for piece in chunk], read_ahead)
                if record is not None:
                    self.seq, self._last = record.seq, record
                    self.positions.update(record.positions)
                    committed.append(record)

    def _exactly(self, chunk: list[Piece], refused: Refused) -> Refused:
        """Return the records of a chunk that the target refuses alone; raise for the first where they halt the flow."""
        pieces = (self._outgoing(piece.after(self.positions.get(piece.source))) for piece in chunk)
        parts = [part for out in pieces for part in out.pieces]
        limit = int(self.task.options.get("batch.size", "1000000"))
        found = []
        for one in suspects(parts, refused, batch_bytes=limit):
            if self._refuses(one):
                if not self.task.quarantines:
                    raise error_for(one, flow=self.task.flow, target=self.task.target)
                found.append((one.source, int(one.offsets()[0])))
        self.close()
        if not found and self._is_alone:
            raise batches_refused(flow=self.task.flow, target=self.task.target)
        # The limit was lowered while this ran: where no record alone is too large, the batch was.
        self._is_alone = self._is_alone or not found
        return by_source(found)

    def _refuses(self, one: Piece) -> bool:
        """Tell whether the target refuses a record because of its size; nothing of it becomes visible."""
        for attempt in self._retrying():
            with attempt:
                if self._producer is None:
                    self._open_once()
                sent = Sent()
                try:
                    self._begin()
                    self._produce_piece(one, sent)
                    self._flush({one.target: sent})
                    if sent.error is not None:
                        raise KafkaException(sent.error)
                except TooLarge:
                    return True
                except KafkaException as error:
                    problem = sent.error or error.args[0]
                    if not is_too_large(problem):
                        self._fail(KafkaException(problem), "try a record alone")
                    self.close()
                    return True
                self._abort()
        return False

    def _outgoing(self, piece: Piece) -> Outgoing:
        offsets = self._refused.get(piece.source, frozenset())
        why = reason(piece.target.topic, self.task.target)
        return outgoing(piece, self._view, quarantines=self.task.quarantines, refused=dict.fromkeys(offsets, why))

    def _try(self, chunk: list[Piece], read_ahead: Callable[[], None]) -> LedgerRecord | None:
        if not any(len(piece.records) for piece in chunk):
            return None
        sent: dict[tuple[SourcePartition, TopicPartition], Sent] = {}
        withheld: list[Withheld] = []
        try:
            self._begin()
            for piece in chunk:
                out = self._outgoing(piece)
                withheld += out.withheld
                if out.is_placed:
                    self._dense.add(piece.target.topic)
                for part in out.pieces:
                    self._produce_piece(part, sent.setdefault((part.source, part.target), Sent()))
            read_ahead()
            self._flush(sent)
            self._require_remotes(chunk)
            runs = tuple(run for key, one in sent.items() for run in one.runs(*key))
            record = self._record(runs, tuple(withheld), chunk)
            self._produce_ledger(record)
            self._commit()
        except Scattered:
            self.close()
            self._dense.update(target.topic for _, target in sent)
            raise
        except KafkaException as error:
            self._fail(error, "commit a chunk", chunk=chunk, sent=sent)
        except SystemError as error:
            # confluent-kafka raises a fatal error inside the delivery callback that happens to run; Python then wraps it.
            if not isinstance(error.__cause__, KafkaException):
                raise
            self._fail(error.__cause__, "commit a chunk", chunk=chunk, sent=sent)
        return record

    def _record(self, runs: tuple[Run, ...], withheld: tuple[Withheld, ...], chunk: list[Piece]) -> LedgerRecord:
        reached = {piece.source: int(piece.offsets()[-1]) + 1 for piece in chunk if len(piece.records)}
        positions = {**self.positions, **reached}
        known = {**(self._last.remotes if self._last else {}), **self.task.remotes}
        return LedgerRecord(
            flow=self.task.flow,
            lane=self.task.lane,
            lanes=self.task.lanes,
            epoch=self.task.epoch,
            owner=self.task.owner,
            seq=self.seq + 1,
            checkpoint=self.task.checkpoint,
            batch=self.task.batch,
            carried=self.task.carried,
            positions=positions,
            remotes={topic: known[topic] for topic in {source.topic for source in positions} & known.keys()},
            runs=runs,
            withheld=withheld,
            view=self._view.version if self._view is not None else "",
            committed_at_ms=int(time.time() * 1000),
        )

    def _require_remotes(self, chunk: Iterable[Piece]) -> None:
        """Check that the chunk's remote topics are those of the ledger; otherwise drop the producer and what it sent.

        Raises:
            RemoteTopicLost: one was deleted, and perhaps created again.
        """
        remotes = {self.task.remotes[p.source.topic] for p in chunk if p.source.topic in self.task.remotes}
        self._admin = self._admin or ClusterAdmin(self.task.target, self.task.options)
        try:
            require_same(self._admin, {one.name: one.topic_id for one in remotes}, flow=self.task.flow)
        except ClusterUnreachable as error:
            self.close()
            raise Restart(None, "describe topics") from error
        except RemoteTopicLost:
            self.close()
            raise

    def _produce_piece(self, piece: Piece, sent: Sent) -> None:
        columns = [piece.records.column(name) for name in ("timestamp", "key", "value", "headers")]
        try:
            stamps = timestamps_ms(columns[0]).to_pylist()
            headers = header_lists(columns[3])
        except Unsendable as problem:
            raise refusal(piece, problem, flow=self.task.flow) from problem
        is_dense = piece.target.topic in self._dense
        callbacks = sent.callbacks(piece.offsets(), dense=is_dense, named=self._names)
        asked = iter(stamps)
        assert self._producer is not None  # noqa: S101  _begin() ran
        produce = self._producer.produce
        topic, partition = piece.target.topic, piece.target.partition
        arguments = map(
            produce,
            repeat(topic),
            columns[2].to_pylist(),
            columns[1].to_pylist(),
            repeat(partition),
            callbacks,
            repeat(None),  # `on_delivery`, the second name of the same argument
            asked,
            headers,
        )
        try:
            deque(arguments, maxlen=0)
        except KafkaException as error:
            if not is_too_large(error.args[0]):
                raise
            # The client's own limit: the record is the one that was taken last.
            self.close()
            row = len(stamps) - length_hint(asked) - 1
            raise TooLarge(by_source([(piece.source, int(piece.offsets()[row]))])) from error
        self._producer.poll(0)

    def _produce_ledger(self, record: LedgerRecord) -> None:
        assert self._producer is not None  # noqa: S101  _begin() ran
        self._ledger_refused = None
        place = self._ledger
        self._producer.produce(
            place.topic, record.to_json(), str(record.lane).encode(), place.partition, on_delivery=self._heard
        )

    def _heard(self, problem: KafkaError | None, _: object) -> None:
        self._ledger_refused = problem

    def _abort(self) -> None:
        assert self._producer is not None  # noqa: S101  _begin() ran
        if self.task.exactly_once:
            try:
                self._producer.abort_transaction(_CALL_S)
            except KafkaException:
                self.close()

    def _begin(self) -> None:
        assert self._producer is not None  # noqa: S101  open() ran
        if self.task.exactly_once:
            self._producer.begin_transaction()

    def _flush(self, sent: Mapping[Any, Sent]) -> None:
        """Wait until everything is confirmed.

        A record that the target refuses holds up all that follow it, and without a callback of its own nobody says so:
        where nothing moves for a while, the next attempt asks for each record's answer.
        """
        assert self._producer is not None  # noqa: S101  _begin() ran
        left, moved = len(self._producer), time.monotonic()
        while self._producer.flush(0.5):
            error = next((one.error for one in sent.values() if one.error is not None), None)
            if error is not None:
                raise KafkaException(error)
            if len(self._producer) < left:
                left, moved = len(self._producer), time.monotonic()
            elif time.monotonic() - moved > _STALLED_S:
                self.close()
                self._dense.update(target.topic for _, target in sent)
                raise Restart(None, f"confirm {left} records")

    def _commit(self) -> None:
        assert self._producer is not None  # noqa: S101  _begin() ran
        if self.task.exactly_once:
            self._producer.commit_transaction(_CALL_S)
        else:
            self._flush({})
            if self._ledger_refused is not None:
                # No transaction ties it to its records: what is sent again stands there twice, as the flow's delivery says.
                raise KafkaException(self._ledger_refused)

    def _fail(
        self,
        error: KafkaException,
        doing: str,
        *,
        chunk: list[Piece] | None = None,
        sent: Mapping[tuple[SourcePartition, TopicPartition], Sent] | None = None,
    ) -> None:
        """Destroy the producer, then raise the own error, or `Restart` where a new start may help."""
        problem = error.args[0]
        failed = next((one.error for one in (sent or {}).values() if one.error is not None), None)
        self.close()
        if failed is not None:
            # What failed first may have had no callback; the next attempt hears from every record.
            self._dense.update(target.topic for _, target in sent or {})
        if is_too_large(self._ledger_refused):
            raise self._faults.refused(self._ledger_refused, doing) from error
        if is_too_large(failed) or is_too_large(problem):
            if refused := refused_in(sent or {}):
                raise TooLarge(refused) from error
            if chunk is not None and not self._names:
                raise Restart(problem, doing) from error
            raise self._faults.of(failed or problem, doing) from error
        for seen in (failed, problem):
            if seen is not None and seen.code() in _PERMANENT:
                raise self._faults.of(seen, doing, *(piece.target.topic for piece in (chunk or [])[:1])) from error
        log.info("lane.restart flow=%s lane=%s doing=%s why=%s", self.task.flow, self.task.lane, doing, problem)
        raise Restart(problem, doing) from error
