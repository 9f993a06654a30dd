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
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from mirrorlake.config.schema import FlowConfig
from mirrorlake.errors import CheckpointLost, LaneFenced, LedgerLost, MirrorlakeError, StoreError
from mirrorlake.kafka.admin import ClusterAdmin
from mirrorlake.kafka.lane import LaneTask
from mirrorlake.kafka.ledger import LedgerReader
from mirrorlake.model.flow import SourcePartition, TopicPartition, kafka_name
from mirrorlake.model.lanes import lane_of
from mirrorlake.model.ledger import LedgerRecord
from mirrorlake.relay.audit import Audit
from mirrorlake.relay.files import COLUMNS, RelayFile
from mirrorlake.relay.lake import Lake
from mirrorlake.relay.progress import CheckpointLocation, read_checkpoint_location
from mirrorlake.rules.viewed import View
from mirrorlake.streams.copies import LedgerCopy
from mirrorlake.streams.duties import Duties, Duty
from mirrorlake.streams.in_order import InOrder
from mirrorlake.streams.lanes import LanesFailed, LaneWork, run_lanes
from mirrorlake.streams.ownership import Ownership, take_over
from mirrorlake.streams.query import await_query, met_another, root_cause
from mirrorlake.streams.targets import RemoteTopics
from mirrorlake.streams.topics import SourceTopics

log = logging.getLogger(__name__)

# A backfill goes in rounds, so that the map is written and a stop is heard every few seconds.
BACKFILL_RECORDS = 2_000_000
# One micro-batch; the default of 1 000 files alone would make a batch of any size after a pause.
MAX_BYTES_PER_TRIGGER = "512m"


@dataclass(frozen=True, slots=True, kw_only=True)
class RepublishSettings:
    """What republishing one flow needs to know; `view` is what it makes of records, `duties` are done beside them."""

    flow: FlowConfig
    producer_options: Mapping[str, Any] = field(repr=False)
    reader_options: Mapping[str, Any] = field(repr=False)
    view: View | None = None
    duties: Sequence[Duty] = ()

    def redriving(self) -> RepublishSettings:
        """Return the settings of the flow that sends quarantined records of this one again."""
        return replace(self, flow=self.flow.redrive(), duties=())


class Republisher:
    """Republish one flow.

    Args:
        lake: the lake with its session.
        target: the target's admin.
        settings: the flow and how to reach its target.
        audit: where topics that were made are recorded.
    """

    def __init__(self, lake: Lake, target: ClusterAdmin, settings: RepublishSettings, *, audit: Audit) -> None:
        self._lake = lake
        self._target = target
        self._settings = settings
        self._flow = settings.flow
        self._topics = SourceTopics(lake, self._flow.source)
        self._remotes = RemoteTopics(target, self._flow, audit)
        self._owned: Ownership | None = None
        self._copy: LedgerCopy | None = None
        self._failure: BaseException | None = None
        self.records = 0

    def run(self, *, once: bool, stop: threading.Event, rebuild: bool = False, restore_ledger: bool = False) -> None:
        """Republish until the relay is drained (`once`) or `stop` is set.

        Args:
            once: republish what the relay holds now, then return.
            stop: set it to return between two batches.
            rebuild: use a new checkpoint location, after the old one was lost.
            restore_ledger: set out from the offset map's positions, after the ledger was lost.

        Raises:
            CheckpointLost: the checkpoint location lost batches that the ledger knows.
            LedgerLost: the ledger is behind its copy in the lake.
            LaneFenced: another republisher of the flow took over.
            TopicConflict, UnsendableRecord, RecordTooLarge: a topic or a record does not fit the target.
            ClusterError, StoreError: the target or the lake failed.
        """
        resumes = self._take_over(rebuild=rebuild, restore_ledger=restore_ledger)
        version = 0
        if not resumes:
            version = self._lake.version(self._lake.relay_location(self._flow.source))
            self._backfill(version, stop)
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

    def in_order(self) -> InOrder:
        """Take the flow over and return what sends its source partitions in an order of the caller's.

        Raises:
            LaneFenced, LedgerLost, TopicConflict, ClusterError, StoreError: as `run` does.
        """
        self._take_over()
        version = self._lake.version(self._lake.relay_location(self._flow.source))
        files = self._files(self._lake.relay_at(self._flow.source, version))
        self._make_ready({file.source for file in files})
        return InOrder(self._flow, self._settings.view, files, self._ownership, task=self._task, keep=self._keep)

    def _take_over(self, *, rebuild: bool = False, restore_ledger: bool = False) -> bool:
        """Take the flow over and repair the lake's copies; return whether its checkpoint location can be gone on from."""
        self._topics.load()
        seen = CheckpointLocation(path="", last_planned=-1, last_committed=-1)

        def choose(used: int, batch: int) -> int:
            nonlocal seen
            seen = read_checkpoint_location(self._lake.spark, self._checkpoint_path(used))
            if rebuild or not used:
                return used + 1
            if batch > seen.last_planned:
                raise self._lost(seen, batch)
            return used if seen.has_progress else used + 1

        copy = LedgerCopy(self._lake, self._flow.name, self._flow.source)
        held = copy.load()
        owned = take_over(
            self._target,
            self._task(),
            check=lambda last: None if restore_ledger else self._refuse_if_ledger_lost(last, held),
            choose_checkpoint=choose,
            restored=copy.positions() if restore_ledger else {},
            held=held,
        )
        self._own(owned, copy)
        return seen.has_progress and seen.path == self._checkpoint_path(owned.checkpoint)

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
        owned = take_over(
            self._target,
            self._task(),
            check=lambda _: None,
            choose_checkpoint=lambda used, _: used + 1,
            restored=None,
            held=copy.load(),
        )
        self._own(owned, copy)
        frame = rows().select("topic", "generation", "partition", *COLUMNS).persist()
        try:
            return self._send(self._plan(frame.withColumn("file", F.lit(""))), frame, batch=-1)
        finally:
            frame.unpersist()

    def _own(self, owned: Ownership, copy: LedgerCopy) -> None:
        self._owned, self._copy = owned, copy.owned_by(owned.epoch)
        with self._ledger() as reader:
            self._copy.repair(reader, self._target, sorted(owned.seqs))

    def _follow(self, version: int, *, once: bool, stop: threading.Event) -> None:
        query = self._start(version, once=once)
        try:
            await_query(query, stop)
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
            raise StoreError(
                f"republishing {self._flow.name} failed: {root_cause(str(error))}",
                consequence="what was confirmed stands in the ledger; nothing is lost or repeated",
                remedy=f"mirrorlake doctor, then mirrorlake republish --flow '{self._flow.name}' again",
                flow=self._flow.name,
            ) from error

    # -- the two ways to the records ------------------------------------------------------------------------------

    def _backfill(self, version: int, stop: threading.Event) -> None:
        """Send what the relay holds at a version and the ledger does not, in rounds of bounded size."""
        relay = self._lake.relay_at(self._flow.source, version)
        for part in _rounds(self._files(relay), BACKFILL_RECORDS):
            if stop.is_set():
                return
            frame = None
            if self._flow.feeder == "spark":
                frame = _between(relay, part)
            self._send(part, frame, batch=-1)

    def _start(self, version: int, *, once: bool) -> StreamingQuery:
        self._failure = None
        reader = (
            self._lake.spark.readStream.format("delta")
            .option("startingVersion", version)
            .option("maxBytesPerTrigger", MAX_BYTES_PER_TRIGGER)
            .option("ignoreDeletes", "true")
            .option("failOnDataLoss", "true")
        )
        relay = self._lake.read_stream(reader, self._flow.source)
        columns = ["topic", "generation", "partition", "offset"]
        if self._flow.feeder == "spark":
            columns += ["timestamp", "key", "value", "headers"]
        # Only what planning needs: Spark then reads a few small columns, and the workers the records themselves.
        frame = relay.select(*columns, F.input_file_name().alias("file"))
        writer = (
            frame.writeStream.queryName(f"republish {self._flow.name}")
            .option("checkpointLocation", self._checkpoint_path(self._ownership.checkpoint))
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
                self._send(self._plan(frame), frame if is_fed else None, batch=batch_id)
            finally:
                if is_fed:
                    frame.unpersist()
        except BaseException as error:
            # Spark passes on the text of an exception only; the object itself waits here.
            self._failure = error
            raise

    def _files(self, relay: DataFrame) -> list[RelayFile]:
        columns = ["topic", "generation", "partition", "offset"]
        return self._plan(relay.select(*columns, F.input_file_name().alias("file")))

    # -- a batch --------------------------------------------------------------------------------------------------

    def _plan(self, frame: DataFrame) -> list[RelayFile]:
        """Return the files that hold something for this flow that its ledger does not know, in upstream order."""
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
                shared=sharing[row.file] > 1,
            )
            for row in rows
            if self._flow.carries(row.topic)
        ]
        positions = self._ownership.positions
        return sorted(file for file in files if file.last_offset >= positions.get(file.source, 0))

    def _send(self, files: list[RelayFile], frame: DataFrame | None, *, batch: int) -> list[LedgerRecord]:
        if not files:
            return []
        owned = self._ownership
        self._make_ready({file.source for file in files})
        by_lane: dict[int, list[RelayFile]] = {}
        for file in files:
            by_lane.setdefault(lane_of(file.source.topic, file.source.partition, lanes=owned.lanes), []).append(file)
        start = self._flow.start
        work = [
            LaneWork(
                task=self._task(lane=lane, batch=batch),
                files=tuple(lane_files),
                targets={
                    file.source: TopicPartition(self._flow.remote_topic(file.source.topic), file.source.partition)
                    for file in lane_files
                },
                skip_before_ms=start.timestamp_ms,
                view=self._settings.view,
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
        mirrored = {source.topic for source in self._ownership.positions}
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
                    records = [r for _, r in reader.since(lane, 0) if r.seq > known]
            complete += records
            owned.seqs[lane] = records[-1].seq
            owned.positions.update(records[-1].positions)
        if self._copy is not None:
            self._copy.add(complete)
        self.records += sum(run.count for record in complete for run in record.runs)
        return complete

    # -- pieces ---------------------------------------------------------------------------------------------------

    @property
    def _ownership(self) -> Ownership:
        if self._owned is None:
            raise RuntimeError("run() takes the flow over before anything is sent")
        return self._owned

    def _task(self, *, lane: int = 0, batch: int = -1) -> LaneTask:
        flow, owned = self._flow, self._owned
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
            chunk_records=flow.chunk_records,
            chunk_bytes=flow.chunk_bytes,
            quarantines=flow.unsendable == "quarantine",
            seq=owned.seqs.get(lane) if owned else None,
        )

    def _ledger(self) -> LedgerReader:
        return LedgerReader(self._flow.target, self._flow.ledger_topic, self._settings.reader_options)

    def _lost(self, seen: CheckpointLocation, batch: int) -> CheckpointLost:
        what = (
            f"plans end at batch {seen.last_planned}"
            if seen.has_progress
            else "holds no offsets/ and commits/ any more"
        )
        return CheckpointLost(
            f"the checkpoint location {seen.path} {what}, but the ledger of {self._flow.name} holds batch {batch} of it",
            consequence="Spark would start again at its first batch as if nothing had happened; nothing was republished",
            remedy=f"mirrorlake republish --flow '{self._flow.name}' --rebuild-checkpoint (goes on after the ledger's "
            "positions; loses and repeats nothing)",
            location=seen.path,
            flow=self._flow.name,
        )

    def _refuse_if_ledger_lost(self, last: Mapping[int, LedgerRecord | None], held: Mapping[int, int]) -> None:
        for lane, seq in held.items():
            record = last.get(lane)
            if record is None or record.seq < seq:
                flow = self._flow
                found = "holds nothing" if record is None else f"ends at record {record.seq}"
                raise LedgerLost(
                    f"lane {lane} of the ledger {flow.ledger_topic} on {flow.target} {found}, but the offset map in the "
                    f"lake holds record {seq}",
                    consequence="without the ledger every record would be sent again; nothing was republished",
                    remedy=f"if the remote topics are as they were: mirrorlake republish --flow '{flow.name}' "
                    f"--restore-ledger (goes on after the offset map's positions); if {flow.target} was emptied: give the "
                    "flow a new name in the settings, and it gets everything from the relay",
                    flow=flow.name,
                )

    def _checkpoint_path(self, number: int) -> str:
        return f"{self._lake.checkpoint_root()}/republish/{kafka_name(self._flow.name)}/{number}"


def _rounds(files: list[RelayFile], records: int) -> Iterable[list[RelayFile]]:
    """Cut sorted files into rounds of about `records`; the files of one source partition stay in order."""
    part: list[RelayFile] = []
    held = 0
    # By offset across partitions, so that all lanes have work in every round.
    for file in sorted(files, key=lambda f: (f.source.generation, f.first_offset, f.source)):
        part.append(file)
        held += file.records
        if held >= records:
            yield sorted(part)
            part, held = [], 0
    if part:
        yield sorted(part)


def _between(relay: DataFrame, files: list[RelayFile]) -> DataFrame:
    rows = [(f.source.topic, f.source.generation, f.source.partition, f.first_offset, f.last_offset) for f in files]
    spans = relay.sparkSession.createDataFrame(
        rows, "topic string, generation int, partition int, first bigint, last bigint"
    )
    return relay.join(F.broadcast(spans), ["topic", "generation", "partition"]).where("offset between first and last")
