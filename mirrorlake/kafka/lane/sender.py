"""Republish the records of one lane, exactly once, and record where each one went.

    init_transactions      fences older holders of the lane, who wait for a claim before they fence again
    read the ledger        only now: nobody else can add to it any more
    for each chunk:
        begin · records · flush · one ledger record · are the remote topics the same? · commit

Law F (repeatable): after any kill, a ledger record and the records that it covers are visible together or not at all, and a
new holder skips what the ledger covers (`ledger_tail.py`). A topic id never comes back: a remote topic with the ledger's id
after the flush holds what was sent, and one with another id gets nothing of the transaction. A remote topic whose log ends
before what was sent gets nothing more (`sent_ends.py`). Law D (order): one producer, one partition, in order.

After any error the producer is destroyed, and the protocol starts again at the first line (`holder.py` says why).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Iterable, Iterator

from confluent_kafka import KafkaException

from mirrorlake.crash_points import crash_point
from mirrorlake.errors import LoginRefused, RemoteTopicLost
from mirrorlake.kafka.lane.batch import Batch, Chunks, first_part, gather
from mirrorlake.kafka.lane.faults import (
    RestartProducer,
    RestartWithReports,
    is_refused,
    restarting_if_unreachable,
)
from mirrorlake.kafka.lane.holder import LaneHolder
from mirrorlake.kafka.lane.outgoing import Outgoing, build_outgoing
from mirrorlake.kafka.lane.refused import (
    TOO_LARGE,
    RecordsRefused,
    Refused,
    batches_refused_error,
    group_by_source,
    list_suspects,
    merge_refused,
    refusal,
    refusal_reason,
    refused_error,
)
from mirrorlake.kafka.lane.spec import LaneSpec
from mirrorlake.kafka.remotes import check_topic_ids
from mirrorlake.model.chunk_size import ChunkSize
from mirrorlake.model.ledger import LedgerRecord
from mirrorlake.model.withheld import Withheld
from mirrorlake.rules import View

log = logging.getLogger(__name__)


class LaneSender(LaneHolder):
    """Hold one lane of a flow on its target, and send its records.

    Raises:
        LaneFenced: another owner holds the lane.
        RecordTooLarge, UnsendableRecord: a record that cannot arrive unchanged; nothing after it was sent.
        ClusterUnreachable: the target did not answer for its `retry_timeout_s`.
    """

    def __init__(self, spec: LaneSpec) -> None:
        super().__init__(spec)
        self._chunk_size = ChunkSize(spec.chunk_bytes)
        self._view: View | None = None
        self._refused: Refused = {}

    def send(self, batches: Iterable[Batch], view: View | None = None) -> Iterator[LedgerRecord]:
        """Send what the ledger lacks, chunk by chunk; yield each committed ledger record.

        `view` changes, filters and places the records; None sends them as they are in the relay.
        """
        self._view = view
        if self._producer is None:
            self.open()
        spec, size = self.spec, self._chunk_size
        chunks = Chunks(batches, self.positions, max_records=spec.chunk_records, max_bytes=lambda: size.limit)
        while chunk := chunks.take():
            # After a failure, the rest of the chunk is sent in smaller transactions.
            while rest := self._unsent(chunk):
                yield from self._send_chunk(rest, chunks)

    def _unsent(self, chunk: Iterable[Batch]) -> list[Batch]:
        positions = self.positions
        rest = (batch.after(positions.get(batch.source)) for batch in chunk)
        return [batch for batch in rest if len(batch.records)]

    def _send_chunk(self, chunk: list[Batch], chunks: Chunks) -> list[LedgerRecord]:
        committed: list[LedgerRecord] = []
        self._refused = {}
        while True:
            try:
                self._send_unrefused(chunk, chunks, committed)
            except RecordsRefused as found:
                # Each turn finds at least one more refused record, or sends each record alone, so the loop ends.
                exactly = self._find_refused if self.spec.exactly_once else self._find_refused_in_order
                self._refused = merge_refused(self._refused, exactly(chunk, found.records))
            else:
                if self._sends_singly and not self.spec.exactly_once:
                    # Later chunks are sent in batches again.
                    self.close()
                    self._sends_singly = False
                return committed

    def _send_unrefused(self, chunk: list[Batch], chunks: Chunks, committed: list[LedgerRecord]) -> None:
        for attempt in self._retrying():
            with attempt:
                if self._producer is None:
                    known = self.seq
                    self._open_once()
                    if self._last is not None and self._last.seq == known + 1:
                        # The commit had succeeded, but its answer was lost.
                        committed.append(self._last)
                    # If the topic is gone, every attempt would wait for it until the time-out.
                    self._require_remotes(chunk)
                # After a failure, each record gets its own delivery report.
                self._reports_each = self._sends_singly or attempt.retry_state.attempt_number > 1 or bool(self._refused)
                size = self._chunk_size
                part = first_part(self._unsent(chunk), max_records=self.spec.chunk_records, max_bytes=size.limit)
                began = time.monotonic()
                try:
                    record = self._attempt(part, chunks)
                except RestartWithReports:
                    raise
                except RestartProducer:
                    size.record_failure()
                    log.info("lane.smaller flow=%s chunk_bytes=%d", self.spec.claim.flow, size.limit)
                    raise
                if record is not None:
                    size.record_success(sum(batch.nbytes for batch in part), seconds=time.monotonic() - began)
                    self.seq = record.seq
                    self._records.add(record)
                    self._claim_wait.record_commit()
                    self._ends.record(record)
                    self.positions.update(record.positions)
                    committed.append(record)

    def _attempt(self, chunk: list[Batch], chunks: Chunks) -> LedgerRecord | None:
        if not any(len(batch.records) for batch in chunk):
            return None
        transaction = self._transaction()
        withheld: list[Withheld] = []
        try:
            transaction.begin()
            crash_point("send.begun")
            for parts in gather(self._parts(chunk, withheld)):
                transaction.send(*parts)
            crash_point("send.produced")
            # librdkafka's own thread sends meanwhile.
            chunks.read_ahead()
            transaction.flush()
            crash_point("send.flushed")
            runs = transaction.runs()
            self._ends.require_after(runs)
            record = self._records.make(
                self.spec,
                self.seq + 1,
                positions=self.positions,
                reached={batch.source: int(batch.offsets[-1]) + 1 for batch in chunk if len(batch.records)},
                runs=runs,
                withheld=withheld,
                view=self._view.version if self._view is not None else "",
            )
            # An abort takes the ledger record away again; without transactions it would stay.
            if self.spec.exactly_once:
                transaction.record(record)
                self._require_remotes(chunk)
            else:
                self._require_remotes(chunk)
                transaction.record(record)
            crash_point("send.recorded")
            transaction.commit()
            crash_point("send.committed")
        except KafkaException as error:
            self._fail(error, "commit a chunk", transaction)
        except SystemError as error:
            # confluent-kafka raises a fatal error inside whichever delivery callback runs; Python then wraps it.
            if not isinstance(error.__cause__, KafkaException):
                raise
            self._fail(error.__cause__, "commit a chunk", transaction)
        except RestartWithReports:
            self._dense.update(transaction.topics)
            self.close()
            raise
        except (RecordsRefused, RemoteTopicLost):
            self.close()
            raise
        return record

    def _parts(self, chunk: Iterable[Batch], withheld: list[Withheld]) -> Iterator[Batch]:
        """Yield the parts of a chunk to send; append to `withheld` what is not sent."""
        for batch in chunk:
            out = self._outgoing(batch)
            withheld += out.withheld
            if out.is_placed:
                self._dense.add(batch.target.topic)
            yield from out.batches

    def _outgoing(self, batch: Batch) -> Outgoing:
        refused = {
            offset: refusal_reason(batch.target.topic, self.spec.target, why)
            for offset, why in self._refused.get(batch.source, {}).items()
        }
        return build_outgoing(batch, self._view, quarantines=self.spec.quarantines, refused=refused)

    def _require_remotes(self, chunk: Iterable[Batch]) -> None:
        known = self.spec.remotes
        remotes = {known[batch.source.topic] for batch in chunk if batch.source.topic in known}
        try:
            with restarting_if_unreachable("describe topics"):
                check_topic_ids(self._admin, {one.name: one.topic_id for one in remotes}, flow=self.spec.claim.flow)
        except (RestartProducer, LoginRefused, RemoteTopicLost):
            self.close()
            raise

    # -- records that the target refuses ---------------------------------------------------------------------------

    def _find_refused(self, chunk: list[Batch], refused: Refused) -> Refused:
        """Return the records of a chunk that the target refuses alone; raise for the first if they halt the flow."""
        spec = self.spec
        rest = (self._outgoing(batch.after(self.positions.get(batch.source))) for batch in chunk)
        parts = [part for out in rest for part in out.batches]
        limit = int(spec.options.get("batch.size", "1000000"))
        refused_alone = []
        for one in list_suspects(parts, refused, batch_bytes=limit):
            if (why := self._refusal(one)) is not None:
                if not spec.quarantines:
                    raise refused_error(one, why, flow=spec.claim.flow, target=spec.target)
                refused_alone.append((one.source, int(one.offsets[0]), why))
        self.close()
        if not refused_alone and self._sends_singly:
            raise batches_refused_error(flow=spec.claim.flow, target=spec.target)
        # If no record alone is too large, the batch was: the limit was lowered meanwhile.
        self._sends_singly = self._sends_singly or not refused_alone
        return group_by_source(refused_alone)

    def _find_refused_in_order(self, chunk: list[Batch], refused: Refused) -> Refused:
        """Return the records that were refused alone; none if they shared batches, which no record does from now on.

        Law D: without transactions a record that is tried by itself stays on the target, before earlier ones.
        """
        spec, was_single = self.spec, self._sends_singly
        self._sends_singly = True
        if was_single and not spec.quarantines:
            parts = (part for batch in chunk for part in self._outgoing(batch).batches)
            first = next(list_suspects(parts, refused))
            why = refused[first.source][int(first.offsets[0])]
            raise refused_error(first, why, flow=spec.claim.flow, target=spec.target)
        return refused if was_single else {}

    def _refusal(self, one: Batch) -> str | None:
        """Return why the target refuses a record, or None; nothing of it becomes visible."""
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
                except (RecordsRefused, RestartWithReports) as error:
                    self.close()
                    if isinstance(error, RestartWithReports):
                        raise
                    return TOO_LARGE
                except KafkaException as error:
                    problem = transaction.error or error.args[0]
                    if not is_refused(problem):
                        self._fail(KafkaException(problem), "try a record alone")
                    self.close()
                    return refusal(problem)
                try:
                    transaction.abort()
                except KafkaException:
                    self.close()
        return None
