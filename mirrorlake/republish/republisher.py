"""Republish: from the relay into one target, exactly once, with the exact offset map (DESIGN 9).

    take over     fence older owners, read the ledger, repair the table
    backfill      what the relay holds and the ledger does not, file by file in offset order
    stream        the relay's new commits, from the version at which the backfill ended

The positions in the ledger decide what is sent; the stream's checkpoint location only says where to look. So a new
checkpoint location can never repeat or lose a record, and a target that is added years later gets history and then live
data without a seam.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import partial

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from mirrorlake.errors import LaneFenced, MirrorlakeError, RemoteTopicLost, StoreError
from mirrorlake.kafka.admin import ClusterAdmin
from mirrorlake.kafka.lane.ledger_reader import LedgerReader
from mirrorlake.kafka.lane.task import LaneTask
from mirrorlake.kafka.remotes import lost
from mirrorlake.lake.audit import Audit
from mirrorlake.lake.lake import Lake
from mirrorlake.lake.metadata import SourceTopics
from mirrorlake.lake.relay_files import COLUMNS, RelayFile
from mirrorlake.lake.relay_part import RelayPart
from mirrorlake.landing.query import await_query, met_another
from mirrorlake.model.causes import root_cause
from mirrorlake.model.checkpoint_scope import Carried
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.lanes import lane_of
from mirrorlake.model.ledger import LedgerRecord
from mirrorlake.model.rate import NO_LIMIT, Rate
from mirrorlake.model.remotes import Remote, Settled
from mirrorlake.progress.board import Tell, silent
from mirrorlake.republish.backfill import between, rounds
from mirrorlake.republish.fencing import FencedLanes, FlowClaims, fence, furthest
from mirrorlake.republish.in_order import InOrder
from mirrorlake.republish.lane_tasks import LanesFailed, LaneWork, run_lanes
from mirrorlake.republish.ledger_tables import LedgerCopy
from mirrorlake.republish.settings import RepublishSettings
from mirrorlake.republish.settling import Settling
from mirrorlake.republish.start import Start
from mirrorlake.runtime.background import Duties
from mirrorlake.topics.remote_topics import RemoteTopics, target_of

log = logging.getLogger(__name__)

# A backfill goes in rounds, so that the map is written and a stop is heard every few seconds.
BACKFILL_RECORDS = 2_000_000
# One micro-batch; the default of 1 000 files alone would make a batch of any size after a pause.
MAX_BYTES_PER_TRIGGER = "512m"
# A flow that is held to a rate may take hours over one file of the relay; this is how often it listens in between.
LISTEN_EVERY_S = 5.0


class Republisher:
    """Republish one flow.

    Args:
        lake: the lake with its session.
        target: the target's admin.
        settings: the flow and how to reach its target.
        audit: where topics that were made are recorded.
        tell: called with the progress of a drain.
    """

    def __init__(
        self,
        lake: Lake,
        target: ClusterAdmin,
        settings: RepublishSettings,
        *,
        audit: Audit,
        tell: Tell = silent,
    ) -> None:
        self._lake = lake
        self._target = target
        self._settings = settings
        self._flow = settings.flow
        self._topics = SourceTopics(lake, self._flow.source)
        self._audit = audit
        self._remotes = self._remote_topics()
        self._settled = Settled()
        self._owned: FlowClaims | None = None
        self._copy: LedgerCopy | None = None
        self._checkpoint_path = ""
        self._failure: BaseException | None = None
        self._stop = threading.Event()
        self.records = 0
        self._tell = tell
        self._withheld = 0
        self._due: int | None = None

    def run(self, *, once: bool, stop: threading.Event, rebuild: bool = False, restore_ledger: bool = False) -> None:
        """Republish until the relay is drained (`once`) or `stop` is set.

        Args:
            once: republish what the relay holds now, then return.
            stop: set it to return between two batches.
            rebuild: use a new checkpoint location, after the old one was lost.
            restore_ledger: start from the furthest positions of ledger and lake, after the ledger was lost.

        Raises:
            CheckpointLost: the checkpoint location lost batches that the ledger knows.
            LedgerLost: the ledger lacks what its copy in the lake holds.
            SafetyError: the ledger is to be restored and lacks nothing.
            LaneFenced: another republisher of the flow took over.
            RemoteTopicLost: with `once`, remote topics were deleted or created again; the others are drained.
            TopicConflict, UnsendableRecord, RecordTooLarge: a topic or a record does not fit the target.
            ClusterError, StoreError: the target or the lake failed.
        """
        try:
            self._run(once=once, stop=stop, rebuild=rebuild, restore_ledger=restore_ledger)
        except MirrorlakeError:
            raise
        except Exception as error:
            # Such as a Python worker that was killed over a backfill: Spark has words of its own for that.
            raise self._failed(error) from error

    def _run(self, *, once: bool, stop: threading.Event, rebuild: bool, restore_ledger: bool) -> None:
        self._stop = stop
        resumes = self._take_over(rebuild=rebuild, restore_ledger=restore_ledger)
        while True:
            try:
                self._run_owned(resumes, once=once, stop=stop)
            except RemoteTopicLost as error:
                # The claim says which topics wait, before anything steps over their records; all others go on.
                log.warning("republish.remote_lost flow=%s why=%s", self._flow.name, error.cause)
                resumes = self._take_over()
            else:
                break
        if once and self._settled.held:
            raise lost(*self._settled.held)

    def _run_owned(self, resumes: bool, *, once: bool, stop: threading.Event) -> None:
        version = None
        if not resumes:
            version = self._lake.version(self._lake.relay_location(self._flow.source))
            self._backfill(version)
        if stop.is_set():
            return
        duties = Duties(self._flow.name, self._settings.duties)
        if not once:
            duties.start()
        try:
            self._follow(version, once=once, stop=stop)
        finally:
            duties.stop()
        if once:
            duties.do_all()
            if not stop.is_set():
                self._due = self._passed
                self._tell_now()

    def in_order(self) -> InOrder:
        """Take the flow over, and return the sender of its source partitions in the caller's order.

        Raises:
            LaneFenced, LedgerLost, RemoteTopicLost, TopicConflict, ClusterError, StoreError: as `run` does.
        """
        self._take_over()
        if self._settled.held:
            raise lost(*self._settled.held)
        version = self._lake.version(self._lake.relay_location(self._flow.source))
        files = self._files(self._lake.relay(self._flow.source, version=version))
        self._make_ready({file.source for file in files})
        remotes = self._remotes.of({file.source.topic for file in files})
        task = partial(self._task, remotes=remotes)
        return InOrder(self._flow, self._settings.view, files, self._ownership, task=task, keep=self._keep)

    def _take_over(self, *, rebuild: bool = False, restore_ledger: bool = False) -> bool:
        """Take the flow over and repair the lake's copies; return whether its checkpoint location can be gone on from."""
        self._topics.load()
        copy = LedgerCopy(self._lake, self._flow.name, self._flow.source)
        copy.load()
        start = Start(self._lake, self._flow, copy, restore=restore_ledger)
        with fence(self._target, self._task()) as lanes:
            start.check(lanes.last)
            settled = self._settle(start.known(lanes.remotes), furthest((lanes.positions, start.restored())))
            checkpoint = start.choose_checkpoint(lanes, self._carried, rebuild=rebuild or settled.sends_again)
            owned = self._claim(lanes, settled, checkpoint, copy)
        self._own(owned, copy)
        self._checkpoint_path = start.checkpoint_path(owned.checkpoint)
        return start.resumes(owned.checkpoint)

    def resend(self, rows: Callable[[], DataFrame]) -> list[LedgerRecord]:
        """Send rows of the relay's shape, each once, whatever was sent of their partitions before.

        Args:
            rows: asked for them when all that earlier calls sent is in the lake's tables.

        Raises:
            LaneFenced: another process resends for this flow.
            TopicConflict, UnsendableRecord, RecordTooLarge: a topic or a record does not fit the target.
            ClusterError: the target failed.
        """
        self._topics.load()
        copy = LedgerCopy(self._lake, self._flow.name, self._flow.source)
        copy.load()
        with fence(self._target, self._task()) as lanes:
            # What was passed over before is sent now: the ledger's own positions do not count.
            settled = self._settle(lanes.remotes, {})
            owned = self._claim(lanes, settled, lanes.checkpoint + 1, copy)
        self._own(owned, copy)
        frame = rows().select("topic", "generation", "partition", *COLUMNS).persist()
        try:
            files = self._plan(frame.withColumn("file", F.lit("")))
            self._expect(files)
            return self._send(files, frame, batch=-1)
        finally:
            frame.unpersist()

    def _remote_topics(self) -> RemoteTopics:
        return RemoteTopics(self._target, self._flow, self._audit, self._lake, beside=self._settings.beside)

    def _settle(self, known: Mapping[str, Remote], positions: Mapping[SourcePartition, int]) -> Settled:
        """Decide about remote topics that were lost since an earlier owner sent to them."""
        self._remotes, flow = self._remote_topics(), self._flow

        def make(sources: list[SourcePartition]) -> None:
            mirrored = {source.topic for source in positions}
            self._remotes.ensure(sources, self._topics.known, mirrored_before=mirrored)

        choices = self._settings.choices
        settling = Settling(self._lake, self._target, flow, choices=choices, make=make, now=self._audit.now)
        settled = self._settled = settling.settle(known, positions)
        sent = {s.topic for s, at in settled.positions.items() if at > 0} - settled.waiting
        named = [settled.remotes[topic] for topic in sent & settled.remotes.keys() if flow.carries(topic)]
        self._remotes.expect(named)
        return settled

    def _claim(self, lanes: FencedLanes, settled: Settled, checkpoint: int, copy: LedgerCopy) -> FlowClaims:
        return lanes.claim(
            settled, checkpoint=checkpoint, carried=self._carried.text, held=copy.held, held_epoch=copy.held_epoch
        )

    def _own(self, owned: FlowClaims, copy: LedgerCopy) -> None:
        self._owned, self._copy = owned, copy.owned_by(owned.epoch)
        with self._ledger() as reader:
            self._copy.repair(reader, self._target, sorted(owned.seqs))

    def _follow(self, version: int | None, *, once: bool, stop: threading.Event) -> None:
        query = self._start(version, once=once)
        try:
            await_query(query, stop, tick=self._tell_now)
        except StreamingQueryException as error:
            if isinstance(self._failure, MirrorlakeError):
                raise self._failure from error
            if met_another(str(error)):
                raise LaneFenced(
                    f"{self._flow.name} belongs to another republisher: it has gone on from the same checkpoint location",
                    consequence="this one wrote nothing more and stopped",
                    remedy=f"keep one republisher for {self._flow.name}; `mirrorlake status` shows its progress",
                    flow=self._flow.name,
                ) from error
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> StoreError:
        return StoreError(
            f"republishing {self._flow.name} failed: {root_cause(str(error))}",
            consequence="what was confirmed stands in the ledger, and the next start goes on from there",
            remedy=f"mirrorlake doctor, then mirrorlake republish --flow '{self._flow.name}' again",
            flow=self._flow.name,
        )

    # -- the two ways to the records ------------------------------------------------------------------------------

    def _backfill(self, version: int) -> None:
        """Send what the relay holds at a version and the ledger does not, in rounds of bounded size."""
        relay = self._lake.relay(self._flow.source, version=version)
        files = self._files(relay)
        self._expect(files)
        for part in rounds(files, BACKFILL_RECORDS):
            frame = None
            if self._flow.feeder == "spark":
                frame = between(relay, part)
            if self._stop.is_set() or not self._send_all(part, frame, batch=-1):
                return

    def _start(self, version: int | None, *, once: bool) -> StreamingQuery:
        self._failure = None
        reader = (
            self._lake.spark.readStream.format("delta")
            .option("maxBytesPerTrigger", MAX_BYTES_PER_TRIGGER)
            # Upkeep and repair rewrite records that were landed, and sent, long before.
            .option("skipChangeCommits", "true")
            .option("failOnDataLoss", "true")
        )
        if version is not None:
            reader = reader.option("startingVersion", version)
        relay = self._lake.relay_stream(reader, self._flow.source)
        columns = ["topic", "generation", "partition", "offset"]
        if self._flow.feeder == "spark":
            columns += ["timestamp", "key", "value", "headers"]
        # Only what planning needs: Spark then reads a few small columns, and the workers the records themselves.
        frame = relay.select(*columns, F.input_file_name().alias("file"))
        writer = (
            frame.writeStream.queryName(f"republish {self._flow.name}")
            .option("checkpointLocation", self._checkpoint_path)
            .foreachBatch(self._republish_batch)
        )
        if once:
            return writer.trigger(availableNow=True).start()
        trigger = f"{int(self._flow.trigger.total_seconds() * 1000)} milliseconds"
        return writer.trigger(processingTime=trigger).start()

    def _republish_batch(self, frame: DataFrame, batch_id: int) -> None:
        try:
            is_fed = self._flow.feeder == "spark"
            if is_fed:
                frame = frame.persist()
            try:
                if not self._send_all(self._plan(frame), frame if is_fed else None, batch=batch_id):
                    # Spark must not commit the batch; the next start sends the rest of it.
                    raise _Stopped
            finally:
                if is_fed:
                    frame.unpersist()
        except BaseException as error:
            # Spark passes on the text of an exception only; the object itself waits here.
            self._failure = error
            raise

    def _files(self, relay: DataFrame) -> list[RelayFile]:
        positions = self._ownership.positions
        columns = ["topic", "generation", "partition", "offset"]
        rows = RelayPart(positions).rows(relay).select(*columns, F.input_file_name().alias("file"))
        return self._plan(rows, shared=bool(positions))

    # -- a batch --------------------------------------------------------------------------------------------------

    def _plan(self, frame: DataFrame, *, shared: bool = False) -> list[RelayFile]:
        """Return the files that hold something for this flow that its ledger does not know, in upstream order.

        Args:
            frame: rows of the relay with their `file`.
            shared: rows were left out, so that a file may hold more source partitions than can be seen here.
        """
        rows = (
            frame.groupBy("file", "topic", "generation", "partition")
            .agg(F.min("offset").alias("first"), F.max("offset").alias("last"), F.count("*").alias("records"))
            .collect()
        )
        sharing: dict[str, int] = {}
        for row in rows:
            sharing[row.file] = sharing.get(row.file, 0) + 1
        files = [
            RelayFile(
                source=SourcePartition(row.topic, row.generation, row.partition),
                first_offset=row["first"],
                last_offset=row["last"],
                records=row.records,
                uri=row.file,
                shared=shared or sharing[row.file] > 1,
            )
            for row in rows
            if self._flow.carries(row.topic) and row.topic not in self._carried.without
        ]
        return sorted(self._lacking(files))

    def _lacking(self, files: Iterable[RelayFile]) -> list[RelayFile]:
        positions = self._ownership.positions
        return [file for file in files if file.last_offset >= positions.get(file.source, 0)]

    def _send_all(self, files: list[RelayFile], frame: DataFrame | None, *, batch: int) -> bool:
        """Send the files; return False where a stop was heard before the last of them."""
        if self._due is not None:
            # After a backfill the stream finds what came since.
            self._expect(files)
        while files:
            before = dict(self._ownership.seqs)
            self._send(files, frame, batch=batch, at_most_s=LISTEN_EVERY_S if self._flow.rate.rate else None)
            # Where a lane is not held to a rate, or had nothing to say, it has come to the end of its files.
            if not self._flow.rate.rate or before == self._ownership.seqs:
                return True
            files = self._lacking(files)
            if files and self._stop.is_set():
                return False
        return True

    def _send(
        self, files: list[RelayFile], frame: DataFrame | None, *, batch: int, at_most_s: float | None = None
    ) -> list[LedgerRecord]:
        if not files:
            return []
        owned = self._ownership
        targets = {file.source: target_of(self._flow, file.source) for file in files}
        self._make_ready(targets)
        by_lane: dict[int, list[RelayFile]] = {}
        for file in files:
            by_lane.setdefault(lane_of(file.source.topic, file.source.partition, lanes=owned.lanes), []).append(file)
        start, rate = self._flow.start, self._flow.rate.rate.share(max(1, len(by_lane)))
        work = [
            LaneWork(
                task=self._task(
                    lane=lane,
                    batch=batch,
                    rate=rate,
                    remotes=self._remotes.of({file.source.topic for file in lane_files}),
                ),
                files=tuple(lane_files),
                targets={file.source: targets[file.source] for file in lane_files},
                skip_before_ms=start.timestamp_ms,
                view=self._settings.view,
                at_most_s=at_most_s,
            )
            for lane, lane_files in sorted(by_lane.items())
        ]
        try:
            committed = run_lanes(self._lake.spark, work, frame=frame)
        except LanesFailed as failed:
            self._keep(failed.committed)
            raise failed.failure from failed
        return self._keep(committed)

    def _make_ready(self, sources: Collection[SourcePartition]) -> None:
        known = self._topics.known
        if any(s.topic not in known or s.partition >= known[s.topic].partitions for s in sources):
            self._topics.load()
        # A topic that was lost and chosen for is the flow's own, though nothing may count of what was sent there.
        mirrored = {source.topic for source in self._ownership.positions} | self._settled.remotes.keys()
        self._remotes.ensure(sources, self._topics.known, mirrored_before=mirrored)

    def _keep(self, committed: Iterable[LedgerRecord]) -> list[LedgerRecord]:
        """Copy committed ledger records to the tables; those of a task that died are fetched from the ledger first."""
        owned, by_lane = self._ownership, dict[int, list[LedgerRecord]]()
        for record in committed:
            by_lane.setdefault(record.lane, []).append(record)
        complete: list[LedgerRecord] = []
        for lane, records in by_lane.items():
            known = owned.seqs.get(lane, -1)
            if [r.seq for r in records] != list(range(known + 1, known + 1 + len(records))):
                with self._ledger() as reader:
                    records = [r for _, r in reader.since(lane, 0) if r.seq > known and r.epoch == owned.epoch]
            if not records:
                # A stranger's open transaction hides them; the lane waits for its end before it sends more.
                continue
            complete += records
            owned.seqs[lane] = records[-1].seq
            owned.positions.update(records[-1].positions)
        if self._copy is not None:
            self._copy.add(complete)
        self._settings.on_commit(complete)
        self.records += sum(run.count for record in complete for run in record.runs)
        self._withheld += sum(item.count for record in complete for item in record.withheld)
        self._tell_now()
        return complete

    @property
    def _passed(self) -> int:
        return self.records + self._withheld

    def _expect(self, files: Iterable[RelayFile]) -> None:
        self._due = max(self._due or 0, self._passed + sum(file.records for file in files))
        self._tell_now()

    def _tell_now(self) -> None:
        self._tell(f"republish {self._flow.name}", self._passed, self._due)

    # -- pieces ---------------------------------------------------------------------------------------------------

    @property
    def _ownership(self) -> FlowClaims:
        if self._owned is None:
            raise RuntimeError("run() takes the flow over before anything is sent")
        return self._owned

    @property
    def _carried(self) -> Carried:
        """What the flow carries, without the topics that are paused or wait for a person."""
        carried = self._settings.carried
        return Carried(carried.selection, carried.without | self._settled.waiting)

    def _task(
        self, *, lane: int = 0, batch: int = -1, rate: Rate = NO_LIMIT, remotes: Mapping[str, Remote] | None = None
    ) -> LaneTask:
        flow, owned = self._flow, self._owned
        chunk_records, chunk_bytes = rate.chunk(flow.chunk_records, flow.chunk_bytes)
        options = dict(self._settings.producer_options)
        options["batch.size"] = str(min(int(options.get("batch.size", "1000000")), self._remotes.batch_bytes()))
        return LaneTask(
            flow=flow.name,
            target=flow.target,
            lane=lane,
            lanes=flow.lanes,
            epoch=owned.epoch if owned else 0,
            owner=owned.owner if owned else "",
            checkpoint=owned.checkpoint if owned else 0,
            batch=batch,
            options=options,
            reader_options=dict(self._settings.reader_options),
            exactly_once=flow.delivery == "exactly_once",
            chunk_records=chunk_records,
            chunk_bytes=chunk_bytes,
            quarantines=flow.unsendable == "quarantine",
            carried=self._carried.text,
            remotes=remotes or {},
            rate=rate,
            seq=owned.seqs.get(lane) if owned else None,
            replication_factor=flow.replication_factor,
        )

    def _ledger(self) -> LedgerReader:
        return LedgerReader(self._flow.target, self._flow.ledger_topic, self._settings.reader_options)


class _Stopped(Exception):
    """A stop was heard in the middle of a batch; what was confirmed stands in the ledger."""
