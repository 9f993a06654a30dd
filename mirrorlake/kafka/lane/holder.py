"""Hold a lane: fence its older holders, read its ledger, claim it, and drop it after an error.

librdkafka has no KIP-890, so a late EndTxn may hit the next transaction of the same producer. After any error the producer is
destroyed, and the next use opens the lane from the beginning.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from contextlib import suppress
from functools import cached_property, partial
from typing import Any, NoReturn

from confluent_kafka import KafkaError, KafkaException, Producer
from tenacity import Retrying, retry_if_exception_type, stop_after_attempt, stop_after_delay, wait_random_exponential

from mirrorlake.crash_points import crash_point
from mirrorlake.errors import ClusterUnreachable
from mirrorlake.kafka.admin import ClusterAdmin
from mirrorlake.kafka.errors import client_log
from mirrorlake.kafka.lane.claim_wait import ClaimWait
from mirrorlake.kafka.lane.faults import (
    PERMANENT,
    Faults,
    RestartProducer,
    is_refused,
    is_replaced,
    is_too_large,
    restarting_if_unreachable,
)
from mirrorlake.kafka.lane.lane_records import LaneRecords
from mirrorlake.kafka.lane.ledger_tail import read_any_tail, read_own_tail
from mirrorlake.kafka.lane.refused import RecordsRefused
from mirrorlake.kafka.lane.sent_ends import SentEnds
from mirrorlake.kafka.lane.spec import LaneSpec
from mirrorlake.kafka.lane.transaction import CALL_TIMEOUT_S, Transaction
from mirrorlake.model.flow import SourcePartition, ledger_topic, transactional_id
from mirrorlake.model.lanes import of_lane
from mirrorlake.model.ledger import LedgerRecord

log = logging.getLogger(__name__)


class LaneHolder:
    """Hold one lane of a flow on its target."""

    def __init__(self, spec: LaneSpec) -> None:
        self.spec = spec
        self.positions: dict[SourcePartition, int] = {}
        self.seq = -1
        self._last: LedgerRecord | None = None
        self._records = LaneRecords()
        self._producer: Producer | None = None
        self._faults = Faults(spec)
        self._ends = SentEnds(spec)
        self._dense: set[str] = set()
        self._is_fencing = False
        self._claim_wait = ClaimWait()
        self._reports_each = False
        self._sends_singly = False

    def accept(self, spec: LaneSpec) -> bool:
        """Accept a later spec of the same lane. Return False if the lane must be opened again.

        It must if the owner or the options changed, or if another worker has sent in between.
        """
        same = (self.spec.claim.owner, self.spec.options) == (spec.claim.owner, spec.options)
        if self._producer is None or not same or spec.seq != self.seq:
            return False
        self.spec = spec
        self._ends.take_spec(spec)
        return True

    def open(self) -> LedgerRecord | None:
        """Fence older holders, then read the lane's last ledger record and return it."""
        for attempt in self._retrying():
            with attempt:
                self._open_once()
        return self._last

    def fence(self) -> LedgerRecord | None:
        """Fence older holders and return the lane's last ledger record of any owner; for the driver of a new owner."""
        self._is_fencing = True
        return self.open()

    def claim(self, record: LedgerRecord) -> LedgerRecord:
        """Commit a record that makes its epoch the lane's owner; for the driver, before any worker sends.

        Raises:
            LaneFenced: another producer has fenced the lane since; by `is_contested` it may be claimed again.
        """
        transaction = self._transaction()
        try:
            transaction.begin()
            transaction.record(record)
            crash_point("send.claim_recorded")
            transaction.commit()
        except (KafkaException, RestartProducer) as error:
            self.close()
            if isinstance(error, RestartProducer):
                raise self._faults.gave_up_error(error) from error
            if is_replaced(error.args[0]):
                why = "another republisher fenced this one during its claim"
                raise self._faults.fenced_error(why, contested=True) from error
            raise self._faults.refused_record_error(error.args[0], "claim the lane", record=record) from error
        crash_point("send.claimed")
        return record

    def close(self) -> None:
        """Drop the producer. The next holder, or the time-out, aborts an open transaction."""
        producer, self._producer = self._producer, None
        if producer is not None:
            producer.purge()

    def _retrying(self) -> Retrying:
        return Retrying(
            retry=retry_if_exception_type(RestartProducer),
            # A process that slept has used up its time at once, but only the ledger tells whether another owner has claimed the lane.
            stop=stop_after_attempt(2) & stop_after_delay(self.spec.retry_timeout_s),
            wait=wait_random_exponential(multiplier=0.2, max=5),
            retry_error_callback=self._give_up,
        )

    def _give_up(self, state: Any) -> None:
        restart = state.outcome.exception()
        self.close()
        raise self._faults.gave_up_error(restart) from restart

    def _open_once(self) -> None:
        self.close()
        self._claim_wait.wait(partial(read_own_tail, self.spec, seq=self.seq))
        try:
            self._fence()
            last = read_any_tail(self.spec) if self._is_fencing else read_own_tail(self.spec, seq=self.seq)
            if last is not None:
                self._ends.record(last)
            if not self._is_fencing:
                with restarting_if_unreachable("return the end offsets of its topics"):
                    self._ends.require_not_truncated(self._admin)
        except BaseException:
            # A producer that has not read the ledger would send its records again.
            self.close()
            raise
        self._last = last
        self._records.open(last)
        if last is not None:
            self.seq = last.seq
            # Updated in place: later chunks are cut at these positions.
            self.positions.clear()
            self.positions.update(of_lane(last.positions, self.spec.claim.lane, lanes=self.spec.claim.lanes))

    def _fence(self) -> None:
        spec, claim = self.spec, self.spec.claim
        # The topic's own limit decides what is too large, not the client's default of 1 MB.
        options = {"message.max.bytes": "104857600", **spec.options, "enable.idempotence": "true"}
        if self._sends_singly:
            options["batch.num.messages"] = "1"
        if spec.exactly_once:
            options["transactional.id"] = transactional_id(claim.flow, claim.lane)
        try:
            self._producer = Producer(options, logger=client_log)
            if spec.exactly_once:
                self._producer.init_transactions(CALL_TIMEOUT_S)
        except KafkaException as error:
            self._fail(error, "start a transactional producer")
        crash_point("send.fenced")

    @cached_property
    def _admin(self) -> ClusterAdmin:
        return ClusterAdmin(self.spec.target, self.spec.options)

    def _require_writable(self, topics: Iterable[str]) -> None:
        """Raise `NotAuthorized` if a topic may not be written: librdkafka purges its records, and only logs the reason."""
        with suppress(ClusterUnreachable):
            self._admin.require(topics, "WRITE")

    def _transaction(self) -> Transaction:
        assert self._producer is not None  # noqa: S101  open() ran
        return Transaction(self._producer, self.spec, dense=self._dense, reports_each=self._reports_each)

    def _fail(self, error: KafkaException, doing: str, transaction: Transaction | None = None) -> NoReturn:
        """Destroy the producer, then raise mirrorlake's own error, or `RestartProducer` if a restart may help."""
        problem, failed, topics = error.args[0], None, list[str]()
        if transaction is not None:
            failed, topics = transaction.error, transaction.topics
        self.close()
        if self.spec.exactly_once and any(seen is not None and is_replaced(seen) for seen in (failed, problem)):
            self._claim_wait.record_fence()
        if failed is not None:
            # The first failed record may have had no callback; the next attempt gets a report of every record.
            self._dense.update(topics)
        if transaction is not None and is_too_large(transaction.ledger_refused):
            raise self._faults.refused_record_error(transaction.ledger_refused, doing) from error
        if is_refused(failed) or is_refused(problem):
            if transaction is not None and transaction.refused:
                raise RecordsRefused(transaction.refused) from error
            if transaction is not None and not self._reports_each:
                raise RestartProducer(problem, doing) from error
            raise self._faults.cluster_error(failed or problem, doing) from error
        for seen in (failed, problem):
            if seen is not None and seen.code() in PERMANENT:
                if seen.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
                    # The error does not name the topic that it is about.
                    self._require_writable([*topics, ledger_topic(self.spec.claim.flow)])
                raise self._faults.cluster_error(seen, doing, *topics[:1]) from error
        if failed is not None and failed.code() == KafkaError._PURGE_QUEUE:  # noqa: SLF001
            self._require_writable(topics)
        claim = self.spec.claim
        log.info("lane.restart flow=%s lane=%s doing=%s why=%s", claim.flow, claim.lane, doing, problem)
        raise RestartProducer(problem, doing) from error
