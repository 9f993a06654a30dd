"""Land: every record of the source topics, byte for byte, into the relay of the source cluster (DESIGN 8).

One query a source: Kafka source -> select -> append with the batch's own transaction id. Before each start the
checkpoint location, the table and the source are compared; whatever cannot be continued without a loss is refused
(`halt`) or recorded in `gaps` and stepped over (`record`).

Law F (repeatable): a batch is planned in the checkpoint location first, and the table knows the batches it holds.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from functools import partial

from pyspark.errors import StreamingQueryException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.streaming import StreamingQuery

from mirrorlake.errors import CheckpointLost, ClusterUnreachable, SourceGap
from mirrorlake.kafka.admin import ClusterAdmin
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.gaps import Gap, expired_ranges
from mirrorlake.progress.board import Tell, silent
from mirrorlake.relay.lake import Lake
from mirrorlake.relay.progress import (
    CheckpointLocation,
    kafka_positions,
    landed_positions,
    last_commit,
    read_checkpoint_location,
)
from mirrorlake.streams.accounts import ACCOUNT_EVERY_S, Accounts
from mirrorlake.streams.healing import MOST_ATTEMPTS, Healing, TopicReborn, pause_s
from mirrorlake.streams.query import await_query, reported_ends
from mirrorlake.streams.topics import SourceTopics

log = logging.getLogger(__name__)

APP = "mirrorlake.land"
CHECKPOINT_PROPERTY = "mirrorlake.checkpoint"


@dataclass(frozen=True, slots=True, kw_only=True)
class LandSettings:
    """What landing one source needs to know.

    `start` gives the first offsets of partitions that exist when nothing was landed yet, None for the earliest.
    `never_leave` is a Java regular expression of topics that are not landed even where the subscription brings them.
    """

    alias: str
    subscribe_pattern: str
    matches: Callable[[str], bool]
    kafka_options: Mapping[str, str] = field(repr=False)
    on_gap: str = "halt"
    max_records_per_batch: int = 2_000_000
    trigger: str = "0 seconds"
    never_leave: str = ""
    start: Callable[[list[TopicPartition]], Mapping[TopicPartition, int]] | None = None


def land_checkpoint_path(lake: Lake, alias: str, number: int) -> str:
    """Return the checkpoint location of a source's landing query."""
    return f"{lake.checkpoint_root()}/land/{alias}/{number}"


def _start_over(_: list[str]) -> None:
    raise TopicReborn


class Lander:
    """Land one source cluster.

    Args:
        lake: the lake with its session.
        admin: the source's admin; it only reads there (law H).
        settings: what to land, and what to do about lost records.
        now: the clock, in UTC.
        tell: hears how far a drain is.
    """

    def __init__(
        self,
        lake: Lake,
        admin: ClusterAdmin,
        settings: LandSettings,
        *,
        now: Callable[[], datetime],
        tell: Tell = silent,
    ) -> None:
        self._lake = lake
        self._admin = admin
        self._settings = settings
        self._now = now
        self._location = lake.relay_location(settings.alias)
        self._topics = SourceTopics(lake, settings.alias)
        self._checkpoint = 0
        self._healing = Healing(settings.alias, admin)
        self._accounts = Accounts(lake, self._topics, alias=settings.alias, now=now)
        self._next_account = 0.0
        self._tell = partial(tell, f"land {settings.alias}")
        self._is_heard = tell is not silent
        self._left: int | None = None
        self._failure: BaseException | None = None
        self._batches = 0
        self._landed_until: datetime | None = None

    @property
    def records(self) -> int:
        """How many records were landed and accounted for."""
        return self._accounts.records

    def run(self, *, once: bool, stop: threading.Event, rebuild: bool = False) -> None:
        """Land until the source is drained (`once`) or `stop` is set.

        Args:
            once: land what is there now, then return.
            stop: set it to return between two batches.
            rebuild: make a new checkpoint location from the relay, after the old one was lost.

        Raises:
            CheckpointLost: the checkpoint location disagrees with the relay.
            SourceGap: records left the source before they were landed, and `on_gap` is `halt`.
            ClusterError, StoreError: the source or the lake failed.
        """
        attempts = 0
        while not stop.is_set():
            try:
                start = self._prepare(rebuild=rebuild)
            except ClusterUnreachable:
                # A source that was there before may come back; one that never was is a mistake to be told at once.
                if once or not attempts or attempts > MOST_ATTEMPTS:
                    raise
                attempts += 1
                stop.wait(pause_s(attempts))
                continue
            rebuild = False
            query = self._start(start, once=once)
            batches = self._batches
            try:
                await_query(query, stop, tick=partial(self._account_now_and_then, query))
            except StreamingQueryException as error:
                attempts = 1 if self._batches > batches else attempts + 1
                self._healing.after(error, self._failure, attempts, once=once, stop=stop)
                continue
            finally:
                self._account()
            if once:
                self._tell(self.records, None if stop.is_set() else self.records)
                return

    # -- before a start -------------------------------------------------------------------------------------------

    def _prepare(self, *, rebuild: bool) -> dict[TopicPartition, int] | None:
        """Compare checkpoint location, relay and source; return the offsets to start at, None to resume."""
        alias = self._settings.alias
        self._topics.load()
        landed = landed_positions(self._lake, alias)
        self._checkpoint = int(self._lake.properties(self._location).get(CHECKPOINT_PROPERTY, "0"))
        known = read_checkpoint_location(self._lake.spark, self._checkpoint_path(self._checkpoint))
        if not rebuild:
            self._refuse_if_lost(known, landed.reached)
        names = [name for name in self._admin.topic_names() if self._settings.matches(name)]
        # Numbered first, recorded second: a crash in between cannot leave old offsets to a new life of a topic.
        reborn = self._topics.observe(
            self._admin, names, now=self._now, before_reborn=lambda _: self._number_checkpoint_location()
        )
        for topic in reborn:
            log.warning("land.topic_recreated source=%s topic=%s generation=%s", alias, topic.name, topic.generation)
        current = self._current_partitions(names)
        resumed = {} if rebuild or reborn else kafka_positions(known.committed or {})
        positions = self._positions(current, landed.reached, resumed)
        earliest = self._admin.earliest(current)
        lost = expired_ranges(
            {current[tp]: position for tp, position in positions.items()},
            {current[tp]: earliest[tp] for tp in positions},
        )
        self._refuse_or_record(lost, landed.reached, reborn_topics={topic.name for topic in reborn})
        self._accounts.resume(landed, lost)
        planned = kafka_positions(known.planned or {})
        stale = (
            lost
            or reborn
            or any(tp not in current for tp in planned)
            or any(earliest[tp] > 0 and tp not in planned for tp in current)
        )
        if known.has_progress and not rebuild and not stale:
            return None
        return self._fresh_start(current, positions, earliest, first=not landed.reached)

    def _number_checkpoint_location(self) -> None:
        self._checkpoint += 1
        self._lake.set_property(self._location, CHECKPOINT_PROPERTY, str(self._checkpoint))

    def _current_partitions(self, names: list[str]) -> dict[TopicPartition, SourcePartition]:
        return {
            TopicPartition(name, partition): SourcePartition(name, self._topics.known[name].generation, partition)
            for name in names
            if name in self._topics.known
            for partition in range(self._topics.known[name].partitions)
        }

    def _positions(
        self,
        current: Mapping[TopicPartition, SourcePartition],
        landed: Mapping[SourcePartition, int],
        resumed: Mapping[TopicPartition, int],
    ) -> dict[TopicPartition, int]:
        """Return the next offset to read of every partition that was landed, or planned, before.

        The relay may be behind the checkpoint location where a batch ended in control records, and ahead of it where
        the last batch was written but not yet ticked off: the further one is right in both cases.
        """
        positions = {}
        for tp, source in current.items():
            candidates = [landed[source]] if source in landed else []
            if tp in resumed and (source in landed or source.generation == 1):
                candidates.append(resumed[tp])
            if candidates:
                positions[tp] = max(candidates)
        return positions

    def _fresh_start(
        self,
        current: Mapping[TopicPartition, SourcePartition],
        positions: Mapping[TopicPartition, int],
        earliest: Mapping[TopicPartition, int],
        *,
        first: bool,
    ) -> dict[TopicPartition, int]:
        """Number a new checkpoint location and return the offset of every partition to start it at."""
        start = dict(earliest)
        if first and self._settings.start is not None:
            start |= self._settings.start(sorted(current))
        start |= {tp: max(position, earliest[tp]) for tp, position in positions.items()}
        self._number_checkpoint_location()
        self._accounts.begin({current[tp]: offset for tp, offset in start.items()})
        return start

    def _refuse_if_lost(self, known: CheckpointLocation, landed: Mapping[SourcePartition, int]) -> None:
        signed = last_commit(self._lake, self._location, app=APP)
        if signed is None or signed[0] != self._checkpoint:
            return
        planned = kafka_positions(known.planned or {})
        behind = [
            source
            for source, position in landed.items()
            if source.generation == self._generation(source.topic)
            and TopicPartition(source.topic, source.partition) in planned
            and position > planned[TopicPartition(source.topic, source.partition)]
        ]
        if signed[1] <= known.last_planned and not behind:
            return
        alias = self._settings.alias
        what = (
            f"plans end at batch {known.last_planned}"
            if known.has_progress
            else "holds no offsets/ and commits/ any more"
        )
        raise CheckpointLost(
            f"the checkpoint location {known.path} {what}, but the relay of {alias} holds batch {signed[1]} of it",
            consequence="Spark would start again under numbers that Delta has already seen and drop records without "
            "a word; nothing was landed",
            remedy=f"mirrorlake land --source {alias} --rebuild-checkpoint (goes on after the relay's last offsets; "
            "loses and repeats nothing)",
            location=known.path,
        )

    def _generation(self, topic: str) -> int:
        known = self._topics.known.get(topic)
        return known.generation if known else 1

    def _refuse_or_record(
        self, lost: list[Gap], landed: Mapping[SourcePartition, int], *, reborn_topics: set[str]
    ) -> None:
        alias = self._settings.alias
        if lost and self._settings.on_gap == "halt":
            ranges = ", ".join(f"{gap.source} {gap.first_offset}..{gap.last_offset}" for gap in lost)
            raise SourceGap(
                f"records left {alias} before they were landed: {ranges}",
                consequence="they are gone from the source; nothing after them was landed",
                remedy=f"set clusters.{alias}.land.on_gap: record to write the ranges to the table gaps and go on",
                gaps=tuple(lost),
            )
        ended = [
            Gap(source=source, first_offset=position, last_offset=-1, missing=0, kind="recreated")
            for source, position in landed.items()
            if source.topic in reborn_topics and source.generation == self._generation(source.topic) - 1
        ]
        for gap in lost:
            log.warning("land.gap source=%s range=%s %s..%s", alias, gap.source, gap.first_offset, gap.last_offset)
        self._accounts.record(lost + ended)
        self._accounts.sample({gap.source: (gap.last_offset + 1, None) for gap in lost})

    # -- while running --------------------------------------------------------------------------------------------

    def _start(self, start: Mapping[TopicPartition, int] | None, *, once: bool) -> StreamingQuery:
        settings = self._settings
        self._failure = None
        starting = "earliest"
        if start:
            document: dict[str, dict[str, int]] = {}
            for tp, offset in sorted(start.items()):
                document.setdefault(tp.topic, {})[str(tp.partition)] = offset
            starting = json.dumps(document)
        frame = (
            self._lake.spark.readStream.format("kafka")
            .options(
                **{
                    **settings.kafka_options,
                    "subscribePattern": settings.subscribe_pattern,
                    "startingOffsets": starting,
                    # Loss is found by Spark before a batch is written, and judged by `_prepare`.
                    "failOnDataLoss": "true",
                    "includeHeaders": "true",
                    "maxOffsetsPerTrigger": str(settings.max_records_per_batch),
                    "groupIdPrefix": "mirrorlake-land",
                    "kafka.isolation.level": "read_committed",
                }
            )
            .load()
        )
        writer = (
            frame.writeStream.queryName(f"land {settings.alias}")
            .option("checkpointLocation", self._checkpoint_path(self._checkpoint))
            .foreachBatch(self._land_batch)
        )
        if once:
            return writer.trigger(availableNow=True).start()
        return writer.trigger(processingTime=settings.trigger).start()

    def _land_batch(self, frame: DataFrame, batch_id: int) -> None:
        try:
            self._write(frame, batch_id)
        except BaseException as error:
            # Spark passes on the text of an exception only; the object itself waits here.
            self._failure = error
            raise

    def _write(self, frame: DataFrame, batch_id: int) -> None:
        names = [name for name in self._admin.topic_names() if self._settings.matches(name)]
        self._topics.observe(self._admin, names, now=self._now, before_reborn=_start_over)
        landed_at = self._now()
        if self._landed_until is not None:
            # Accounts are settled by this time, so it must grow even where the clock is set back.
            landed_at = max(landed_at, self._landed_until + timedelta(microseconds=1))
        if self._settings.never_leave:
            frame = frame.where(~F.col("topic").rlike(f"^(?:{self._settings.never_leave})$"))
        rows = frame.select(
            "topic",
            self._generation_column().alias("generation"),
            "partition",
            "offset",
            "timestamp",
            F.col("timestampType").alias("timestamp_type"),
            "key",
            "value",
            "headers",
            F.lit(landed_at).alias("landed_at"),
        )
        self._lake.append(
            rows,
            self._location,
            app_id=f"{APP}.{self._settings.alias}.{self._checkpoint}",
            version=batch_id,
            signature=json.dumps({"app": APP, "checkpoint": self._checkpoint, "batch": batch_id}),
        )
        self._batches += 1
        self._landed_until = landed_at

    def _generation_column(self) -> Column:
        column = F.lit(1)
        for topic in self._topics.known.values():
            if topic.generation > 1:
                column = F.when(F.col("topic") == topic.name, F.lit(topic.generation)).otherwise(column)
        return column.cast("int")

    def _account_now_and_then(self, query: StreamingQuery) -> None:
        if time.monotonic() >= self._next_account:
            self._account()
            self._next_account = time.monotonic() + ACCOUNT_EVERY_S
            if self._is_heard:
                # Offsets stand for records that are left; some of them may be markers or compacted away.
                self._left = self._accounts.left(reported_ends(query))
        self._tell(self.records, None if self._left is None else self.records + self._left)

    def _account(self) -> None:
        if self._landed_until is not None:
            self._accounts.settle(self._landed_until)

    def _checkpoint_path(self, number: int) -> str:
        return land_checkpoint_path(self._lake, self._settings.alias, number)
