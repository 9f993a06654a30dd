"""Hold a lane: fence its older holders, read where it stands, claim it, and give it up after an error.

librdkafka has no KIP-890, so a late EndTxn may hit the next transaction of the same producer: after any error the
producer is destroyed, and the next use opens the lane from the beginning.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property, partial
from typing import Any, NoReturn

from confluent_kafka import KafkaError, KafkaException, Producer
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, stop_after_delay, wait_random_exponential

from mirrorlake.errors import ClusterUnreachable
from mirrorlake.kafka.admin import ClusterAdmin
from mirrorlake.kafka.errors import client_log
from mirrorlake.kafka.lane.claim_wait import ClaimWait
from mirrorlake.kafka.lane.faults import (
    Faults,
    Restart,
    is_permanent,
    is_replaced,
    is_too_large,
    starting_again,
)
from mirrorlake.kafka.lane.lane_records import LaneRecords
from mirrorlake.kafka.lane.refused import TooLarge
from mirrorlake.kafka.lane.sent_ends import SentEnds
from mirrorlake.kafka.lane.tail import read_any_tail, read_own_tail
from mirrorlake.kafka.lane.task import LaneTask
from mirrorlake.kafka.lane.transaction import CALL_S, Transaction
from mirrorlake.model.flow import SourcePartition, ledger_topic, transactional_id
from mirrorlake.model.lanes import of_lane
from mirrorlake.model.ledger import LedgerRecord

log = logging.getLogger(__name__)


class LaneHolder:
    """Hold one lane of a flow on its target.

    Raises:
        LaneFenced: another owner holds the lane.
        ClusterUnreachable: the target did not answer for the task's `patience_s`.
    """

    def __init__(self, task: LaneTask) -> None:
        self.task = task
        self.positions: dict[SourcePartition, int] = {}
        self.seq = -1
        self._last: LedgerRecord | None = None
        self._records = LaneRecords()
        self._producer: Producer | None = None
        self._faults = Faults(task)
        self._ends = SentEnds(task)
        self._dense: set[str] = set()
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
            transaction.record(record)
            transaction.commit()
        except (KafkaException, Restart) as error:
            self.close()
            if isinstance(error, Restart):
                raise self._faults.never_helped(error) from error
            if is_replaced(error.args[0]):
                why = "another republisher fenced it before this one could claim it"
                raise self._faults.fenced(why, contested=True) from error
            raise self._faults.refused(error.args[0], "claim the lane", record=record) from error
        return record

    def close(self) -> None:
        """Drop the producer; an open transaction is aborted by the next holder, or by its time-out."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()

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
