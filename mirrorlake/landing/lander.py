"""Land: every record of the source topics, byte for byte, into the relay of the source cluster (DESIGN 8).

A long-lived task, or a query: Kafka source -> select -> append with the batch's own transaction id. Before each start the
relay and its commits, of a query its checkpoint location, too, are compared with the source; whatever cannot be continued
without a loss is refused (`halt`) or recorded in `gaps` and stepped over (`record`): records that left the source, a log that
went back.

Law F (repeatable): a commit carries how far its batch has read, and the table knows the batches it holds. Two
landers of one source, or one that slept, write nothing twice: the relay has one writer (`mirrorlake.lake.one_writer`).
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from functools import cached_property, partial

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery

from mirrorlake.errors import ClusterUnreachable, LanderReplaced
from mirrorlake.kafka import (
    ELECTED_S,
    ClusterAdmin,
    TopicState,
    describe_with_leaders,
    leaderless_error,
    list_partitions,
    named,
)
from mirrorlake.lake import (
    ACCOUNT_EVERY_S,
    Accounts,
    Lake,
    LandedPositions,
    LandingLog,
    OneWriter,
    ReadProgress,
    SourceTopics,
    batch_time,
    drop_live_locations,
    kafka_positions,
    land_checkpoint_path,
    landed_lately,
    landed_positions,
    landing_pace,
    marks_address,
    relay_schema,
)
from mirrorlake.landing.groups import split_task, wanted_tasks
from mirrorlake.landing.land_query import land_planned, relay_rows, start_landing
from mirrorlake.landing.live import BACKLOG_BYTES, CHANGED, DRAINED, UNREADABLE, LandTask, run_tasks
from mirrorlake.landing.query import GRACE_S, await_query, reported_ends
from mirrorlake.landing.retry import SourceChanged, await_retry, may_come_back, pause_s
from mirrorlake.landing.settings import LandSettings
from mirrorlake.landing.source_look import SourceLook, current_partitions, ended_lives, look_at_source
from mirrorlake.landing.start import (
    forget_lost_positions,
    landed_and_known,
    of_present_lives,
    read_by_location,
    refuse_other_cluster,
)
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.progress import Tell, about, silent
from mirrorlake.runtime import MOST_HERE, GoesOn, HeldSlots, is_cluster, is_connect, jobs_end, own_session

log = logging.getLogger(__name__)

# One task lands some 300 000 records a second. What takes it longer than half a minute is landed by a query, with a task of
# Spark's for each partition, where there are cores for them.
_MOST_BY_TASK, _FEW_CORES = 10_000_000, 4
# How many tasks a source is worth follows from what was landed of it since then.
_LATELY = timedelta(hours=1)


class Lander:
    """Land one source cluster; of the source it only reads (law H).

    Several starts of one stream share a `writer`: it knows whether another one took the relay over between them.
    """

    def __init__(
        self,
        lake: Lake,
        admin: ClusterAdmin,
        settings: LandSettings,
        *,
        now: Callable[[], datetime],
        tell: Tell = silent,
        writer: OneWriter | None = None,
    ) -> None:
        self._lake = lake
        self._admin = admin
        self._settings = settings
        self._now = now
        self._topics = SourceTopics(lake, settings.alias)
        self._writer = writer or OneWriter(lake, settings.alias)
        self._accounts = Accounts(lake, self._topics, alias=settings.alias, now=now)
        self._next_account = 0.0
        self._tell = partial(tell, f"land {settings.alias}")
        self._is_heard = tell is not silent
        self._once = False
        self._left: int | None = None
        # A topic that appears once this has begun is landed from its beginning, be it the first.
        self._is_drained = self._is_backlog = self._is_little = self._has_begun = False
        self._failure: BaseException | None = None
        self._batches = 0
        # Those of the newest batch that is landed, and of one that may be.
        self._landed_until: datetime | None = None
        self._landing_at: datetime | None = None
        self._current: Mapping[TopicPartition, SourcePartition] = {}
        self._backlog: Mapping[TopicPartition, int] = {}
        self._unled: frozenset[TopicPartition] = frozenset()
        self._relay: LandingLog | None = None
        # Elsewhere a query of Spark's lands, and so it does once a record was met that only Java's client can read.
        self._is_slow = False
        self._may_live = settings.live and lake.relay_log(settings.alias) is not None

    @property
    def records(self) -> int:
        """How many records were landed and accounted for."""
        return self._accounts.records

    def run(self, *, once: bool, stop: threading.Event, rebuild: bool = False) -> None:
        """Land until the source is drained (`once`) or `stop` is set.

        Args:
            once: land the records so far, then return.
            stop: set it to return between two batches.
            rebuild: make a new checkpoint location from the relay, after the old one was lost.

        Raises:
            CheckpointLost: the checkpoint location disagrees with the relay.
            SourceGap: records left the source before they were landed, and `on_gap` is `halt`.
            ClusterUnreachable: also where a drain left out partitions that nobody leads.
            ClusterError, StoreError: the source or the lake failed.
        """
        attempts, self._once = 0, once
        held = (self._settings.tasks or 1) if self._may_live and not once else 0
        with HeldSlots(lambda: self._lake.spark, held) as slots:
            while not stop.is_set():
                is_live = slots.enough and self._may_live and (not once or self._admin.was_consumed())
                try:
                    start = self._prepare(once=once, rebuild=rebuild, is_live=is_live)
                except ClusterUnreachable as error:
                    if not may_come_back(error, attempts, once=once):
                        raise
                    attempts += 1
                    stop.wait(pause_s(attempts))
                    continue
                rebuild, self._failure, batches = False, None, self._batches
                if once and self._is_drained:
                    # A query would find the same, and it, or even the start of Spark, would cost more than all of this run.
                    self._tell(self.records, self.records)
                    self._require_led()
                    return
                try:
                    if is_live and (self._unled or not self._is_backlog):
                        if not self._land_live(start or {}, stop, once=once, held=slots.held):
                            continue
                    elif self._plans_batches:
                        self._land_planned(start or {}, stop, once=once or is_live)
                    else:
                        query = self._start(start, once=once or is_live)
                        await_query(query, stop, tick=partial(self._account_now_and_then, query))
                except LanderReplaced as error:
                    self._failure = error
                    raise
                except Exception as error:
                    if stop.is_set() and (is_live or self._plans_batches):
                        # The turn under way took longer than its grace.
                        return
                    attempts = 1 if self._batches > batches else attempts + 1
                    # A query would repeat the batch that it planned, as large as it was.
                    self._is_slow = self._is_slow or "TimeoutException" in str(error)
                    try:
                        await_retry(self._admin, error, self._failure, attempts, once=once, stop=stop)
                    except LanderReplaced as replaced:
                        self._failure = replaced
                        raise
                    continue
                finally:
                    # What a lander that was replaced has landed is its successor's to account for.
                    if not isinstance(self._failure, LanderReplaced):
                        self._account()
                if once:
                    self._tell(self.records, None if stop.is_set() else self.records)
                    if not stop.is_set():
                        self._require_led()
                    return

    def _require_led(self) -> None:
        """Raise `ClusterUnreachable` where a drain left out partitions that nobody leads."""
        if self._unled:
            landed = "all other partitions were landed up to their ends"
            raise leaderless_error(self._settings.alias, self._unled, landed=landed)

    # -- before a start -------------------------------------------------------------------------------------------

    def _prepare(self, *, once: bool, rebuild: bool, is_live: bool) -> dict[TopicPartition, int] | None:
        """Compare relay, commits and source; return the offsets to start at, None for a query to resume.

        Raises:
            LanderReplaced: another lander has taken the relay over.
        """
        alias, writer = self._settings.alias, self._writer
        writer.look()
        cluster_id = self._admin.cluster_id()
        refuse_other_cluster(alias, writer.cluster_id, cluster_id)
        self._topics.load()
        rebuild = forget_lost_positions(self._lake, alias, writer) or rebuild
        resumes = not (is_live or rebuild)
        landed, known = landed_and_known(self._lake, alias, writer, self._topics, resumes=resumes)
        read = writer.read_to
        if read is None:
            # Before topics that were created again are known: offsets of an earlier life say nothing of the new one.
            read = {} if rebuild else read_by_location(self._lake, alias, writer.number, self._topics.known)
        names = self._settings.names(self._admin)
        # A query of Spark's asks for all partitions.
        states, self._unled = describe_with_leaders(self._admin, names, elected_s=ELECTED_S)
        if self._unled:
            log.warning("land.no_leader source=%s partitions=%s", alias, named(self._unled))
            if not is_live:
                raise leaderless_error(alias, self._unled, landed="nothing of this source was landed")
        recreated = self._topics.recreated(states)
        # Claimed first, recorded second: a crash in between cannot leave old offsets to a new life of a topic.
        if recreated:
            landed, read = self._claim(cluster_id, landed, read)
        # Before the new lives are known: whatever stops this start would leave the ends of the old ones unexplained (law E).
        self._accounts.record_once(ended_lives(landed.reached, recreated))
        self._topics.observe(states, self._admin, at=self._now(), epochs=self._epochs)
        # A record that is missing proves neither a cut nor a transaction where a cleaner is at work.
        bare = [name for name in states if self._topics.known[name].is_bare]
        self._topics.default_cleanup = self._admin.default_cleanup(bare)
        for name in recreated:
            generation = self._topics.known[name].generation
            log.warning("land.topic_recreated source=%s topic=%s generation=%s", alias, name, generation)
        look = self._look(names, landed, read)
        goes_on = writer.is_claimed and look.is_whole and not (rebuild or recreated)
        self._is_drained = goes_on and look.is_drained and landed.is_accounted
        self._landed_until = writer.newest_landed_at()
        resumes = resumes and known.has_progress and not known.is_live
        resumes = resumes and look.goes_on_from(kafka_positions(known.planned or {}))
        if goes_on and ((once and self._is_drained) or (resumes and not self._plans_batches)):
            writer.hold()
            writer.belong_to(cluster_id)
            self._topics.settle({}, look.epochs, self._now())
            self._accounts.resume(landed, [])
            return None
        # Whatever an older lander was about to write is refused from here on, so what is read now stays true.
        if not recreated:
            before = landed, read
            landed, read = self._claim(cluster_id, landed, read)
            if (landed, read) != before:
                look = self._look(names, landed, read)
                self._landed_until = writer.newest_landed_at()
        self._current = look.current
        self._record(look)
        self._accounts.resume(landed, look.lost)
        return self._fresh_start(look, first=not (landed.reached or self._has_begun))

    def _claim(
        self, cluster_id: str, landed: LandedPositions, read: Mapping[SourcePartition, int]
    ) -> tuple[LandedPositions, Mapping[SourcePartition, int]]:
        """Claim the relay with what was read so far; return how far it is landed and read by then."""
        if self._writer.claim(cluster_id, read):
            landed = landed_positions(self._lake, self._settings.alias)
        return landed, self._writer.read_to or {}

    def _look(self, names: list[str], landed: LandedPositions, read: Mapping[SourcePartition, int]) -> SourceLook:
        seen = landed.reached, read, self._unled
        return look_at_source(self._lake, self._admin, self._settings, self._topics, names, *seen)

    def _described(self) -> Mapping[str, TopicState]:
        return self._admin.describe(self._settings.names(self._admin))

    def _epochs(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        found = self._admin.ends_and_epochs(tp for tp in partitions if tp not in self._unled)
        return {tp: epoch for tp, (_, epoch) in found.items() if epoch >= 0}

    def _fresh_start(self, look: SourceLook, *, first: bool) -> dict[TopicPartition, int]:
        """Return the offset of every partition to start a new checkpoint location at, and open its account."""
        start = look.start(self._settings.first_offsets(self._admin, sorted(look.current)) if first else {})
        self._accounts.begin({look.current[tp]: offset for tp, offset in start.items()})
        self._has_begun = True
        self._backlog = {tp: max(0, look.ends[tp] - offset) for tp, offset in start.items()}
        left, tasks = sum(self._backlog.values()), self._settings.tasks or 1
        self._is_little = left <= MOST_HERE
        is_much = left > _MOST_BY_TASK * tasks
        self._is_backlog = is_much and (is_cluster(self._lake.spark) or (os.cpu_count() or 1) > _FEW_CORES)
        return start

    def _record(self, look: SourceLook) -> None:
        """Write down what is stepped over; a cut counts only once it is recorded among the topics."""
        look.log_gaps(self._settings.alias)
        self._accounts.record_once([*look.lost, *look.gone])
        self._accounts.sample({gap.source: (gap.last_offset + 1, None) for gap in look.lost})
        self._topics.settle(look.cuts, look.epochs, self._now())

    # -- while running --------------------------------------------------------------------------------------------

    def _land_live(self, start: Mapping[TopicPartition, int], stop: threading.Event, *, once: bool, held: int) -> bool:
        """Land by long-lived tasks until `stop` is set, or with `once` up to where the source ends now; `held` are their slots.

        Returns:
            Whether it came to the end; otherwise the source is to be looked at again.

        Raises:
            SourceChanged: topics or leaders are not as they were at the start.
            LanderReplaced: another lander has taken the relay over.
            Exception: the source, the lake or Spark failed.
        """
        alias, known = self._settings.alias, self._topics.known
        seat = self._writer.seat()
        self._relay = LandingLog(seat)
        drop_live_locations(self._lake, alias)
        pace_s = landing_pace(seat.path, self._settings.trigger)
        goes_on = GoesOn(f"{self._lake.checkpoint_root()}/live/land.{alias}", seat.number)
        task = LandTask(
            seat=seat,
            schema=relay_schema(),
            options=self._settings.reader_options,
            start={self._current[tp]: offset for tp, offset in start.items()},
            read_to=of_present_lives(self._writer.read_to or {}, known),
            topic_ids={tp.topic: known[tp.topic].topic_id for tp in {*start, *self._unled}},
            epochs={tp: known[tp.topic].epochs.get(tp.partition, -1) for tp in start},
            ends=self._admin.latest(start) if once else None,
            marks="" if once else marks_address(self._lake, alias),
            leaderless=self._unled,
            landed=None if (newest := self._writer.last_batch) is None else (newest.checkpoint, newest.batch),
            landed_until=self._landed_until,
            pace_s=pace_s,
            most_records=self._settings.max_records_per_batch,
            most_bytes=min(BACKLOG_BYTES, self._settings.max_bytes_per_batch or BACKLOG_BYTES),
            goes_on=goes_on,
        )

        spark = None if once and self._is_little else self._session
        tick = partial(self._account_now_and_then, None)
        more = self._wanted_tasks(spark) - max(1, held)
        with HeldSlots(lambda: self._session, max(0, more), least=0) as slots:
            shares = split_task(task, max(1, held) + slots.held)
            answers = run_tasks(spark, task, shares, stop, topics=self._described, tick=tick, settle=self._hear_of_task)
        ended = [answer for answer in answers if answer.kind != DRAINED]
        for answer in ended:
            log.warning("land.ended source=%s what=%s why=%s", alias, answer.kind, answer.body.decode())
            self._may_live = self._may_live and answer.kind != UNREADABLE
        if any(answer.kind == CHANGED for answer in ended):
            raise SourceChanged
        return len(answers) - len(ended) == len(shares)

    def _wanted_tasks(self, spark: SparkSession | None) -> int:
        if spark is None:
            return 1
        if self._settings.tasks is not None:
            return self._settings.tasks
        if not is_cluster(spark):
            return 1
        since = self._now() - _LATELY
        lately = landed_lately(self._lake, self._settings.alias, since)
        return wanted_tasks(self._backlog, {tp: count / _LATELY.total_seconds() for tp, count in lately.items()})

    def _hear_of_task(self) -> None:
        newest = self._relay.newest_landed_at() if self._relay is not None else None
        if newest is not None and newest != self._landed_until:
            self._landed_until = newest
            self._batches += 1

    @cached_property
    def _session(self) -> SparkSession:
        """A session that nothing else uses: all its jobs may be interrupted."""
        return own_session(self._lake.spark)

    @property
    def _plans_batches(self) -> bool:
        """Whether a query of Spark's would run its batches in another process than this one, or timed out within one."""
        return self._is_slow or is_connect(self._lake.spark)

    def _land_planned(self, start: Mapping[TopicPartition, int], stop: threading.Event, *, once: bool) -> None:
        """Land by batches that are planned here (see `land_planned`)."""
        settings, spark = self._settings, self._lake.spark
        drop_live_locations(self._lake, settings.alias)
        read_to = of_present_lives(self._writer.read_to or {}, self._topics.known)
        progress = ReadProgress({**read_to, **{self._current[tp]: offset for tp, offset in start.items()}})
        # What a task landed before is followed from its own seat, which this lander's new number has replaced.
        self._relay = None

        def ends() -> Mapping[TopicPartition, int]:
            states = self._described()
            if {*list_partitions(states)} != start.keys() or self._topics.recreated(states):
                raise SourceChanged
            return self._admin.latest(start)

        def land(frame: DataFrame, batch: int, read_to: Mapping[TopicPartition, int]) -> None:
            progress.read({self._current[tp]: offset for tp, offset in read_to.items()}, {})
            self._land_batch(frame, batch, progress)

        with jobs_end(spark, stop, name=f"land {settings.alias}", grace_s=GRACE_S):
            land_planned(
                spark,
                options=settings.kafka_options,
                start=start,
                ends=ends,
                each_batch=land,
                tick=partial(self._account_now_and_then, None),
                stop=stop,
                once=once,
                pace_s=settings.trigger.total_seconds(),
                most_records=settings.max_records_per_batch,
            )

    def _start(self, start: Mapping[TopicPartition, int] | None, *, once: bool) -> StreamingQuery:
        # What a task landed before is followed from its own seat, which this lander's new number has replaced.
        settings, self._relay = self._settings, None
        return start_landing(
            self._lake.spark,
            name=f"land {settings.alias}",
            options=settings.source_options,
            checkpoint_location=self._checkpoint_path(),
            each_batch=self._land_batch,
            start=start,
            trigger=None if once else f"{int(settings.trigger.total_seconds() * 1000)} milliseconds",
        )

    def _land_batch(self, frame: DataFrame, batch_id: int, progress: ReadProgress | None = None) -> None:
        try:
            # Spark calls from a thread of its own.
            with about(source=self._settings.alias, batch=batch_id):
                self._write(frame, batch_id, progress)
        except BaseException as error:
            # Spark passes on the text of an exception only; the object itself waits here.
            self._failure = error
            raise

    def _write(self, frame: DataFrame, batch_id: int, progress: ReadProgress | None) -> None:
        names = self._settings.names(self._admin)
        states = self._admin.describe(names)
        if self._topics.recreated(states):
            raise SourceChanged
        self._topics.observe(states, self._admin, at=self._now(), epochs=self._epochs)
        # An election may have cut the log: what was landed is compared before anything else is.
        if any(
            self._topics.known[tp.topic].epochs.get(tp.partition) != epoch
            for tp, epoch in self._epochs(current_partitions(self._topics.known, names)).items()
        ):
            raise SourceChanged
        self._landing_at = landed_at = batch_time(self._now(), self._landed_until)
        rows = relay_rows(frame, self._topics.known.values(), never_leave=self._settings.never_leave)
        # Where a query ends its batch, its checkpoint location says.
        read_to, is_whole = progress.take() if progress is not None else (None, False)
        self._writer.append(rows, batch_id, landed_at, read_to, is_whole=is_whole)
        self._batches += 1
        self._landed_until = landed_at

    def _account_now_and_then(self, query: StreamingQuery | None) -> None:
        if time.monotonic() >= self._next_account:
            before = self.records
            if query is None:
                self._hear_of_task()
            self._account()
            self._next_account = time.monotonic() + ACCOUNT_EVERY_S
            if self._is_heard and self._once:
                # Offsets stand for records that are left; some of them may be markers or compacted away.
                self._left = self._accounts.left(
                    self._admin.latest(self._current) if query is None else reported_ends(query)
                )
            if query is None:
                self._settings.listener.landed(self.records - before)
        self._tell(self.records, None if self._left is None else self.records + self._left)

    def _account(self) -> None:
        if self._batches or self._accounts.is_due:
            # What a lander that was replaced has landed is its successor's to account for.
            with suppress(LanderReplaced):
                self._accounts.settle(self._landed_until or self._now(), self._newest_landed_at)

    def _newest_landed_at(self) -> datetime | None:
        newest = None if self._relay is None else self._relay.newest_landed_at()
        return max(filter(None, (newest, self._landing_at, self._landed_until)), default=None)

    def _checkpoint_path(self) -> str:
        return land_checkpoint_path(self._lake, self._settings.alias, self._writer.number)
