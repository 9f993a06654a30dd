"""The lane producer: republish records of one lane, exactly once, and say where each one went (DESIGN 9).

    init_transactions      fences every older holder of the lane, who then waits for a claim before it fences again
    read the ledger        only now: nobody else can add to it any more
    for each chunk:
        begin · records · flush · are the remote topics the same? · one ledger record · commit

Law F (repeatable): whatever is killed whenever, the ledger record and the records it covers are visible together or
not at all, and a new holder skips what the ledger says is done (`tail.py`: from where it goes on). The id of a topic never
comes back: a remote topic that has the ledger's id after the flush holds what was sent; one with another id gets nothing
of the transaction. A remote topic whose log ends before what was sent gets nothing more (`sent_ends.py`).
Law D (order): one producer, one partition, in order.

librdkafka has no KIP-890, so a late EndTxn may hit the next transaction of the same producer: after any error the
producer is destroyed and the protocol starts again at the first line.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cached_property, partial
from typing import Any, NoReturn

from confluent_kafka import KafkaError, KafkaException, Producer
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, stop_after_delay, wait_random_exponential

from mirrorlake.errors import ClusterUnreachable, LoginRefused, RemoteTopicLost
from mirrorlake.kafka.admin import ClusterAdmin
from mirrorlake.kafka.errors import client_log
from mirrorlake.kafka.lane.batch import Batch, Chunks, first_part, gather
from mirrorlake.kafka.lane.claim_wait import ClaimWait
from mirrorlake.kafka.lane.faults import (
    AskEach,
    Faults,
    Restart,
    is_permanent,
    is_replaced,
    is_too_large,
    starting_again,
)
from mirrorlake.kafka.lane.lane_records import LaneRecords
from mirrorlake.kafka.lane.outgoing import Outgoing, outgoing
from mirrorlake.kafka.lane.refused import (
    Refused,
    TooLarge,
    batches_refused,
    by_source,
    error_for,
    reason,
    suspects,
    together,
)
from mirrorlake.kafka.lane.sent_ends import SentEnds
from mirrorlake.kafka.lane.tail import read_any_tail, read_own_tail
from mirrorlake.kafka.lane.task import LaneTask
from mirrorlake.kafka.lane.throttle import Throttle, slices
from mirrorlake.kafka.lane.transaction import CALL_S, Transaction
from mirrorlake.kafka.remotes import require_same
from mirrorlake.model.chunk_size import ChunkSize
from mirrorlake.model.flow import SourcePartition, ledger_topic, transactional_id
from mirrorlake.model.lanes import of_lane
from mirrorlake.model.ledger import LedgerRecord
from mirrorlake.model.withheld import Withheld
from mirrorlake.rules import View

log = logging.getLogger(__name__)


class LaneSender:
    """Hold one lane of a flow on its target.

    Raises:
        LaneFenced: another owner holds the lane.
        RecordTooLarge, UnsendableRecord: a record that cannot arrive unchanged; nothing after it was sent.
        ClusterUnreachable: the target did not answer for the task's `patience_s`.
    """

    def __init__(self, task: LaneTask) -> None:
        self.task = task
        self.positions: dict[SourcePartition, int] = {}
        self.seq = -1
        self._last: LedgerRecord | None = None
        self._records = LaneRecords()
        self._producer: Producer | None = None
        self.throttle = Throttle()
        self._chunk_size = ChunkSize(task.chunk_bytes)
        self._faults = Faults(task)
        self._ends = SentEnds(task)
        self._view: View | None = None
        self._dense: set[str] = set()
        self._refused: Refused = {}
        self._is_fencing = False
        self._claim_wait = ClaimWait()
        self._is_named = False
        self._is_alone = False

    def still_serves(self, task: LaneTask) -> bool:
        """Tell whether this sender may go on with a later task of the same lane, and take the task over.

        It may not where the owner or the options changed, nor where another worker has sent in between.
        """
        same = (self.task.claim.owner, self.task.options) == (task.claim.owner, task.options)
        if self._producer is None or not same or task.seq != self.seq:
            return False
        self.task = task
        self._ends.take(task)
        return True

    def open(self) -> LedgerRecord | None:
        """Fence older holders, then read where the lane stands; return its last ledger record."""
        for attempt in self._retrying():
            with attempt:
                self._open_once()
        return self._last

    def fence(self) -> LedgerRecord | None:
        """Fence older holders and return the lane's last ledger record, whosever it is; for the driver of a new owner."""
        self._is_fencing = True
        return self.open()

    def claim(self, record: LedgerRecord) -> LedgerRecord:
        """Commit one record that makes its epoch the lane's owner; used by the driver before any worker sends.

        Raises:
            LaneFenced: somebody has fenced the lane since; `is_contested` tells that it may be claimed again.
        """
        transaction = self._transaction()
        try:
            transaction.begin()
            transaction.commit(record)
        except (KafkaException, Restart) as error:
            self.close()
            if isinstance(error, Restart):
                raise self._faults.never_helped(error) from error
            if is_replaced(error.args[0]):
                why = "another republisher fenced it before this one could claim it"
                raise self._faults.fenced(why, contested=True) from error
            raise self._faults.refused(error.args[0], "claim the lane", record=record) from error
        return record

    def send(self, batches: Iterable[Batch], view: View | None = None) -> Iterator[LedgerRecord]:
        """Send what the ledger does not hold yet, chunk by chunk; yield each committed ledger record.

        `view` is what the flow makes of records on their way; None sends them as they stand in the relay.
        """
        self._view = view
        if self._producer is None:
            self.open()
        task, size = self.task, self._chunk_size
        chunks = Chunks(
            slices(batches, task.rate), self.positions, max_records=task.chunk_records, max_bytes=lambda: size.limit
        )
        while chunk := chunks.take():
            self.throttle.wait(task.rate, chunk)
            # The rest of a chunk that failed is sent in smaller ones.
            while rest := self._unsent(chunk):
                yield from self._send_chunk(rest, chunks)

    def _unsent(self, chunk: Iterable[Batch]) -> list[Batch]:
        positions = self.positions
        rest = (batch.after(positions.get(batch.source)) for batch in chunk)
        return [batch for batch in rest if len(batch.records)]

    def close(self) -> None:
        """Drop the producer; an open transaction is aborted by the next holder, or by its time-out."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()

    # -- opening --------------------------------------------------------------------------------------------------

    def _retrying(self) -> Retrying:
        return Retrying(
            retry=retry_if_exception_type(Restart),
            # A process that slept has used its patience up at once: whether somebody took over, only the ledger tells it.
            stop=stop_after_attempt(2) & stop_after_delay(self.task.patience_s),
            wait=wait_random_exponential(multiplier=0.2, max=5),
            retry_error_callback=self._give_up,
        )

    def _give_up(self, state: Any) -> None:
        restart = state.outcome.exception()
        self.close()
        raise self._faults.never_helped(restart) from restart

    def _open_once(self) -> None:
        self.close()
        self._claim_wait.wait(partial(read_own_tail, self.task, seq=self.seq))
        try:
            self._fence()
            last = read_any_tail(self.task) if self._is_fencing else read_own_tail(self.task, seq=self.seq)
            if last is not None:
                self._ends.learn(last)
            if not self._is_fencing:
                with starting_again("say where its topics end"):
                    self._ends.require_whole(self._admin)
        except BaseException:
            # A producer that has not read the ledger would send again what stands there.
            self.close()
            raise
        self._last = last
        self._records.open(last)
        if last is not None:
            self.seq = last.seq
            # In place: the chunks to come are cut at these positions.
            self.positions.clear()
            self.positions.update(of_lane(last.positions, self.task.claim.lane, lanes=self.task.claim.lanes))

    def _fence(self) -> None:
        task, claim = self.task, self.task.claim
        # The topic's own limit decides what is too large, not the client's default of 1 MB.
        options = {"message.max.bytes": "104857600", **task.options, "enable.idempotence": "true"}
        if self._is_alone:
            options["batch.num.messages"] = "1"
        if task.exactly_once:
            options["transactional.id"] = transactional_id(claim.flow, claim.lane)
        try:
            self._producer = Producer(options, logger=client_log)
            if task.exactly_once:
                self._producer.init_transactions(CALL_S)
        except KafkaException as error:
            self._fail(error, "start a transactional producer")

    # -- a chunk --------------------------------------------------------------------------------------------------

    def _send_chunk(self, chunk: list[Batch], chunks: Chunks) -> list[LedgerRecord]:
        committed: list[LedgerRecord] = []
        self._refused = {}
        while True:
            try:
                self._send_known(chunk, chunks, committed)
            except TooLarge as found:
                # Each turn finds at least one more, or sends each record alone, so it comes to an end.
                exactly = self._exactly if self.task.exactly_once else self._in_turn
                self._refused = together(self._refused, exactly(chunk, found.records))
            else:
                if self._is_alone and not self.task.exactly_once:
                    # The chunks to come go in batches again.
                    self.close()
                    self._is_alone = False
                return committed

    def _send_known(self, chunk: list[Batch], chunks: Chunks, committed: list[LedgerRecord]) -> None:
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
                self._is_named = self._is_alone or attempt.retry_state.attempt_number > 1 or bool(self._refused)
                size = self._chunk_size
                part = first_part(self._unsent(chunk), max_records=self.task.chunk_records, max_bytes=size.limit)
                began = time.monotonic()
                try:
                    record = self._try(part, chunks)
                except AskEach:
                    raise
                except Restart:
                    size.record_failure()
                    log.info("lane.smaller flow=%s chunk_bytes=%d", self.task.claim.flow, size.limit)
                    raise
                if record is not None:
                    size.record_success(sum(batch.nbytes for batch in part), seconds=time.monotonic() - began)
                    self.seq = record.seq
                    self._records.add(record)
                    self._claim_wait.record_commit()
                    self._ends.learn(record)
                    self.positions.update(record.positions)
                    committed.append(record)

    def _try(self, chunk: list[Batch], chunks: Chunks) -> LedgerRecord | None:
        if not any(len(batch.records) for batch in chunk):
            return None
        transaction = self._transaction()
        withheld: list[Withheld] = []
        try:
            transaction.begin()
            for parts in gather(self._parts(chunk, withheld)):
                transaction.send(*parts)
            # librdkafka's own thread is busy sending: the next chunk's files are read meanwhile.
            chunks.read_ahead()
            transaction.flush()
            self._require_remotes(chunk)
            runs = transaction.runs()
            self._ends.require_after(runs)
            record = self._records.make(
                self.task,
                self.seq + 1,
                positions=self.positions,
                reached={batch.source: int(batch.offsets()[-1]) + 1 for batch in chunk if len(batch.records)},
                runs=runs,
                withheld=withheld,
                view=self._view.version if self._view is not None else "",
            )
            transaction.commit(record)
        except KafkaException as error:
            self._fail(error, "commit a chunk", transaction)
        except SystemError as error:
            # confluent-kafka raises a fatal error inside the delivery callback that happens to run; Python then wraps it.
            if not isinstance(error.__cause__, KafkaException):
                raise
            self._fail(error.__cause__, "commit a chunk", transaction)
        except AskEach:
            self._dense.update(transaction.topics)
            self.close()
            raise
        except (TooLarge, RemoteTopicLost):
            self.close()
            raise
        return record

    @cached_property
    def _admin(self) -> ClusterAdmin:
        return ClusterAdmin(self.task.target, self.task.options)

    def _require_writable(self, topics: Iterable[str]) -> None:
        """Raise `NotAuthorized` where a topic may not be written to: librdkafka purges what was sent, and says why in its log alone."""
        with suppress(ClusterUnreachable):
            self._admin.require(topics, "WRITE")

    def _transaction(self) -> Transaction:
        assert self._producer is not None  # noqa: S101  open() ran
        return Transaction(self._producer, self.task, dense=self._dense, is_named=self._is_named)

    def _parts(self, chunk: Iterable[Batch], withheld: list[Withheld]) -> Iterator[Batch]:
        """Yield what goes out of a chunk; `withheld` gets what does not."""
        for batch in chunk:
            out = self._outgoing(batch)
            withheld += out.withheld
            if out.is_placed:
                self._dense.add(batch.target.topic)
            yield from out.batches

    def _outgoing(self, batch: Batch) -> Outgoing:
        offsets, why = self._refused.get(batch.source), reason(batch.target.topic, self.task.target)
        refused = dict.fromkeys(offsets, why) if offsets else {}
        return outgoing(batch, self._view, quarantines=self.task.quarantines, refused=refused)

    def _require_remotes(self, chunk: Iterable[Batch]) -> None:
        """Check that the chunk's remote topics are those of the ledger; otherwise drop the producer and what it sent."""
        known = self.task.remotes
        remotes = {known[batch.source.topic] for batch in chunk if batch.source.topic in known}
        try:
            with starting_again("describe topics"):
                require_same(self._admin, {one.name: one.topic_id for one in remotes}, flow=self.task.claim.flow)
        except (Restart, LoginRefused, RemoteTopicLost):
            self.close()
            raise

    def _fail(self, error: KafkaException, doing: str, transaction: Transaction | None = None) -> NoReturn:
        """Destroy the producer, then raise the own error, or `Restart` where a new start may help."""
        problem, failed, topics = error.args[0], None, list[str]()
        if transaction is not None:
            failed, topics = transaction.error, transaction.topics
        self.close()
        if self.task.exactly_once and any(seen is not None and is_replaced(seen) for seen in (failed, problem)):
            self._claim_wait.record_fence()
        if failed is not None:
            # What failed first may have had no callback; the next attempt hears from every record.
            self._dense.update(topics)
        if transaction is not None and is_too_large(transaction.ledger_refused):
            raise self._faults.refused(transaction.ledger_refused, doing) from error
        if is_too_large(failed) or is_too_large(problem):
            if transaction is not None and transaction.refused:
                raise TooLarge(transaction.refused) from error
            if transaction is not None and not self._is_named:
                raise Restart(problem, doing) from error
            raise self._faults.of(failed or problem, doing) from error
        for seen in (failed, problem):
            if seen is not None and is_permanent(seen):
                if seen.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    # The error does not name the topic that it is about.
                    self._require_writable([*topics, ledger_topic(self.task.claim.flow)])
                raise self._faults.of(seen, doing, *topics[:1]) from error
        if failed is not None and failed.code() == KafkaError._PURGE_QUEUE:  # noqa: SLF001
            self._require_writable(topics)
        claim = self.task.claim
        log.info("lane.restart flow=%s lane=%s doing=%s why=%s", claim.flow, claim.lane, doing, problem)
        raise Restart(problem, doing) from error

    # -- records that the target refuses ---------------------------------------------------------------------------

    def _exactly(self, chunk: list[Batch], refused: Refused) -> Refused:
        """Return the records of a chunk that the target refuses alone; raise for the first where they halt the flow."""
        task = self.task
        rest = (self._outgoing(batch.after(self.positions.get(batch.source))) for batch in chunk)
        parts = [part for out in rest for part in out.batches]
        limit = int(task.options.get("batch.size", "1000000"))
        found = []
        for one in suspects(parts, refused, batch_bytes=limit):
            if self._refuses(one):
                if not task.quarantines:
                    raise error_for(one, flow=task.claim.flow, target=task.target)
                found.append((one.source, int(one.offsets()[0])))
        self.close()
        if not found and self._is_alone:
            raise batches_refused(flow=task.claim.flow, target=task.target)
        # The limit was lowered while this ran: where no record alone is too large, the batch was.
        self._is_alone = self._is_alone or not found
        return by_source(found)

    def _in_turn(self, chunk: list[Batch], refused: Refused) -> Refused:
        """Return the records that were refused alone, in their turn; none where they shared batches, as none will from now on.

        Law D: without transactions a record that is tried by itself stays on the target, before earlier ones.
        """
        task, was_alone = self.task, self._is_alone
        self._is_alone = True
        if was_alone and not task.quarantines:
            parts = (part for batch in chunk for part in self._outgoing(batch).batches)
            raise error_for(next(suspects(parts, refused)), flow=task.claim.flow, target=task.target)
        return refused if was_alone else {}

    def _refuses(self, one: Batch) -> bool:
        """Tell whether the target refuses a record because of its size; nothing of it becomes visible."""
        for attempt in self._retrying():
            with attempt:
                if self._producer is None:
                    self._open_once()
                transaction = self._transaction()
                try:
                    transaction.begin()
                    transaction.send(one)
                    transaction.flush()
                    if transaction.error is not None:
                        raise KafkaException(transaction.error)
                except (TooLarge, AskEach) as error:
                    self.close()
                    if isinstance(error, AskEach):
                        raise
                    return True
                except KafkaException as error:
                    problem = transaction.error or error.args[0]
                    if not is_too_large(problem):
                        self._fail(KafkaException(problem), "try a record alone")
                    self.close()
                    return True
                try:
                    transaction.abort()
                except KafkaException:
                    self.close()
        return False
