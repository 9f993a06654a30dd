"""A flow that this process owns: its due files, its ready topics, and its ledger."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from mirrorlake.config.schema import FlowConfig
from mirrorlake.errors import ClusterUnreachable, MirrorlakeError, NotAuthorized, RecordTooLarge, SafetyError
from mirrorlake.kafka import truncated_topic_error
from mirrorlake.kafka.lane import LedgerReader, OverwriteDetector, find_ends
from mirrorlake.lake import Lake, RelayFile, RelayLog, RelayPart, SourceTopics
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.lanes import lane_of
from mirrorlake.model.ledger import LedgerRecord
from mirrorlake.model.remotes import LossResolution
from mirrorlake.republish.fencing import FlowClaims
from mirrorlake.republish.files import list_files
from mirrorlake.republish.lane_tasks import LaneAssignment
from mirrorlake.republish.ledger_tables import LedgerCopy
from mirrorlake.republish.relay_progress import RelayProgress
from mirrorlake.republish.settings import RepublishSettings
from mirrorlake.republish.tenure import Tenure, replaced_error
from mirrorlake.republish.waiting_topics import TopicsWait, WaitingTopics, is_still_refused, topics_at_fault
from mirrorlake.timing import timing
from mirrorlake.topics import RemoteTopics, target_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

log = logging.getLogger(__name__)

# A topic costs two 2 ms admin calls; the cap keeps one pass below 1 s.
_MAX_EMPTY_TOPICS = 200


@dataclass(slots=True, kw_only=True)
class OwnedFlow:
    """Own a flow as `acquisition.py` has claimed it.

    If it `streams`, its checkpoint location skips unsent records, so a topic's wait begins and ends with a new claim.
    """

    lake: Lake
    settings: RepublishSettings
    topics: SourceTopics
    remotes: RemoteTopics
    copy: LedgerCopy
    claims: FlowClaims
    resolution: LossResolution
    progress: RelayProgress
    tenure: Tenure
    ready: set[SourcePartition] = field(default_factory=set)
    unready_topics: set[str] = field(default_factory=set)
    uncopied: list[LedgerRecord] = field(default_factory=list)
    overwrites: OverwriteDetector = field(default_factory=OverwriteDetector)
    waiting: WaitingTopics | None = None
    streams: bool = False

    @property
    def flow(self) -> FlowConfig:
        return self.settings.flow

    def files(self, relay: DataFrame | RelayLog) -> list[RelayFile]:
        from pyspark.sql import functions as F

        positions = self.claims.positions
        if isinstance(relay, RelayLog):
            return self.due(relay.files(positions))
        rows = RelayPart(positions).rows(relay)
        # Shared compute refuses `input_file_name`; `_metadata.file_path` is no address that a worker could open.
        return self.due(list_files(rows.withColumn("file", F.col("_metadata.file_path")), shared=bool(positions)))

    def due(self, files: Iterable[RelayFile]) -> list[RelayFile]:
        """Return the files with records that this flow sends and its ledger lacks, in upstream order."""
        return sorted(self.not_fully_sent(file for file in files if self.is_sending(file.source.topic)))

    def is_sending(self, topic: str) -> bool:
        if not self.flow.carries(topic) or topic in self.claims.claim.scope.without:
            return False
        if self.waiting is not None and topic in self.waiting:
            return False
        lost = self.resolution.lost_remotes
        return not lost or self.flow.remote_topic(topic) not in lost

    def not_fully_sent(self, files: Iterable[RelayFile]) -> list[RelayFile]:
        """Return the files with records at or past the ledger's positions.

        Records outside of a replay's slice do not count.
        """
        relay_slice, wanted = self.settings.relay_slice, list[RelayFile]()
        for file in files:
            first, end = (
                (0, file.last_offset + 1) if relay_slice is None else relay_slice.ranges.get(file.source, (0, 0))
            )
            next_offset = max(first, self.claims.positions.get(file.source, 0))
            if file.first_offset < end and min(file.last_offset, end - 1) >= next_offset:
                wanted.append(file)
        return wanted

    def group_by_lane(self, files: Iterable[RelayFile]) -> dict[int, list[RelayFile]]:
        lanes: dict[int, list[RelayFile]] = {}
        for file in files:
            if self.is_sending(file.source.topic):
                lanes.setdefault(self.lane_of(file.source), []).append(file)
        return lanes

    def fits_in_process(self, files: Iterable[RelayFile]) -> bool:
        """Return whether files are so small that this process sends them cheaper than a Spark job.

        A rule with a user's function runs on workers only.
        """
        flows = (self.flow, *self.settings.all_flows)
        return (
            not any(rule.function for each in flows for rule in each.rules)
            and sum(file.records for file in files) <= timing().max_records_in_process
        )

    def assign_lane(
        self,
        lane: int,
        sources: Collection[SourcePartition],
        *,
        files: Iterable[RelayFile] = (),
        batch: int = -1,
    ) -> LaneAssignment:
        relay_slice, claims = self.settings.relay_slice, self.claims
        return LaneAssignment(
            spec=self.settings.lane_spec(
                replace(claims.claim, lane=lane, batch=batch),
                self.remotes,
                topics={source.topic for source in sources},
                seq=claims.seqs.get(lane),
                ends=claims.ends,
            ),
            files=tuple(files),
            targets={source: target_of(self.flow, source) for source in sources},
            skip_before_ms=self.flow.start.timestamp_ms,
            view=self.settings.view,
            ranges=None if relay_slice is None else {source: relay_slice.ranges[source] for source in sources},
        )

    def ensure_sent_topics(self) -> None:
        """Make the remote topics ready that were sent to before, with all present partitions of their source topics."""
        known = self.topics.known
        sent = {
            source.topic
            for source in self.claims.positions
            if self.is_sending(source.topic)
            and source.topic in known
            and source.partition < known[source.topic].partitions
            and source.generation == known[source.topic].generation_of(source.partition)
        }
        # Otherwise a partition's first record would end the tasks that send the other partitions.
        self.ensure_remote_topics([source for topic in sent for source in known[topic].sources()])

    def ensure_empty_topics(self) -> bool:
        """Mark empty topics ready whose remote topics already fit. Return whether any were added.

        Their first records then need not end the tasks that send other topics. A topic that is refused is tried again at its
        first record.
        """
        known, ready, before = self.topics.load(), {source.topic for source in self.ready}, len(self.ready)
        waiting = known.keys() - ready - self.unready_topics
        empty = [known[name] for name in sorted(waiting) if known[name].present and self.is_sending(name)]
        for topic in self.remotes.whole(empty)[:_MAX_EMPTY_TOPICS] if empty else ():
            try:
                self.ensure_remote_topics(topic.sources())
            except (SafetyError, NotAuthorized):
                self.unready_topics.add(topic.name)
        return len(self.ready) > before

    def ensure_remote_topics(self, sources: Collection[SourcePartition]) -> None:
        """Create or grow the remote topics of source partitions, and mark the partitions ready."""
        for source in sources:
            target_of(self.flow, source)
        known = self.topics.known
        if any(s.topic not in known or s.partition >= known[s.topic].partitions for s in sources):
            self.topics.load()
        conflicts = self._ensure(sources)
        if conflicts and self.waiting is not None:
            remotes = {source.topic: self.flow.remote_topic(source.topic) for source in sources}
            self.waiting.add({topic: conflicts[at] for topic, at in remotes.items() if at in conflicts})
            if self.streams:
                raise TopicsWait
        self.ready.update(source for source in sources if self.is_sending(source.topic))

    def let_topics_wait(self, error: MirrorlakeError) -> bool:
        """Let only those topics wait that an error is about. Return False if it stops the whole flow."""
        if self.waiting is None:
            return False
        topics = topics_at_fault(error, self.flow, self.topics.known) - {*self.waiting}
        if not topics:
            return False
        limit = None
        if isinstance(error, RecordTooLarge):
            limit = self.remotes.max_message_bytes(error.facts["topic"])
        self.waiting.add(dict.fromkeys(topics, error), limit=limit)
        return True

    def release_topics(self) -> bool:
        """Release the waiting topics whose errors are gone, and make them ready. Return whether there were any.

        Their records in the relay are due then, and must be sent before newer ones (law D).
        """
        if not self.waiting:
            return False
        known, free = self.topics.load(), list[str]()
        for topic in (known[name] for name in self.waiting if name in known):
            sources = topic.sources()
            remote, limit = self.flow.remote_topic(topic.name), self.waiting.limit(topic.name)
            try:
                is_refused = is_still_refused(
                    self.waiting.error_of_topic(topic.name), self.remotes, remote, limit=limit
                )
                # Those that a quota put off are made by one request later: the first alone would use it up.
                is_put_off = topic.name in self.waiting.put_off
                if is_refused or (not is_put_off and self._ensure(sources)):
                    continue
            except MirrorlakeError as error:
                log.info("republish.not_checked flow=%s topic=%s why=%s", self.flow.name, topic.name, error.cause)
                if isinstance(error, ClusterUnreachable):
                    break
                continue
            free.append(topic.name)
            self.ready.update(() if is_put_off else sources)
        for name in free:
            self.waiting.release(name)
        return bool(free)

    def await_quota(self, stop: threading.Event) -> bool:
        """Wait until the topics that a quota of the target put off may be made, and release them. Return whether there are any."""
        if self.waiting is None or not (put_off := self.waiting.put_off):
            return False
        stop.wait(max(put_off.values()) - time.monotonic())
        for name in put_off:
            self.waiting.release(name)
        return not stop.is_set()

    def _ensure(self, sources: Collection[SourcePartition]) -> dict[str, MirrorlakeError]:
        """Make remote topics ready. Return the conflicts by remote topic, or raise them if topics may not wait."""
        conflicts: dict[str, MirrorlakeError] = {}
        # A resolved lost topic is the flow's own, even if none of its positions count.
        mirrored = {source.topic for source in self.claims.positions} | self.resolution.remotes.keys()
        self.remotes.ensure(
            sources,
            self.topics.known,
            mirrored_before=mirrored,
            conflicts=None if self.waiting is None else conflicts,
        )
        return conflicts

    def lane_of(self, source: SourcePartition) -> int:
        return lane_of(source.topic, source.partition, lanes=self.claims.claim.lanes)

    def record_committed(self, committed: Iterable[LedgerRecord], *, copies: bool = True) -> list[LedgerRecord]:
        """Record committed ledger records. Missing earlier ones, of a task that died, are read from the ledger first.

        Without `copies`, the next call with it copies them to the tables, too.
        """
        claims, by_lane = self.claims, dict[int, list[LedgerRecord]]()
        for record in committed:
            by_lane.setdefault(record.claim.lane, []).append(record)
        complete: list[LedgerRecord] = []
        for lane, records in by_lane.items():
            last_seq = claims.seqs.get(lane, -1)
            if [record.seq for record in records] != list(range(last_seq + 1, last_seq + 1 + len(records))):
                with LedgerReader(self.flow.target, self.flow.ledger_topic, self.settings.reader_options) as reader:
                    written = [record for _, record in reader.since(lane, 0) if record.seq > last_seq]
                records = [record for record in written if record.claim.epoch == claims.claim.epoch]
            if not records:
                # Another producer's open transaction hides them; the lane waits for its end before it sends more.
                continue
            complete += records
            claims.seqs[lane] = records[-1].seq
            for record in records:
                claims.positions.update(record.positions)
            for place, end in find_ends(run for record in records for run in record.runs).items():
                # Other lanes may have written later records to the partition.
                claims.ends[place] = max(claims.ends.get(place, 0), end)
        self.uncopied += complete
        if copies:
            self._copy()
        self.count(complete)
        self._require_not_overwritten(complete)
        return complete

    def count(self, committed: Sequence[LedgerRecord]) -> None:
        self.settings.listener.committed(committed)
        self.progress.passed(committed)
        self.tenure.record_counted(committed)

    def _require_not_overwritten(self, committed: Iterable[LedgerRecord]) -> None:
        for record in committed:
            overwritten = self.overwrites.record(record.claim.lane, record.runs)
            # Built only if needed: a record names all topics of its lane, and comes several times a second.
            ids = {one.name: one.topic_id for one in record.remotes.values()} if overwritten else {}
            for place, span in overwritten.items():
                if topic_id := ids.get(place.topic):
                    raise truncated_topic_error(
                        self.flow.name, self.flow.target, place.topic, topic_id, {place.partition: span}
                    )

    def _copy(self) -> None:
        if self.uncopied:
            self.copy.add(self.uncopied)
            self.uncopied.clear()

    def record_from_ledger(self, reader: LedgerReader, read_to: dict[int, int], *, copies: bool = True) -> None:
        """Record the ledger's records from each lane's offset in `read_to` on, and advance these offsets."""
        claim = self.claims.claim
        for lane in range(claim.lanes):
            records = reader.since(lane, read_to.get(lane, 0))
            if not records:
                continue
            newest = records[-1][1].claim
            if newest.epoch > claim.epoch:
                raise replaced_error(newest)
            last_seq = self.claims.seqs.get(lane, -1)
            fresh = [record for _, record in records if record.claim.epoch == claim.epoch and record.seq > last_seq]
            self.record_committed(fresh, copies=False)
            read_to[lane] = records[-1][0] + 1
        if copies:
            self._copy()
