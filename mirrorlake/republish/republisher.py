"""Republish from the relay into one target, exactly once, with the exact offset map.

    acquire       fence older owners, read the ledger, repair the tables, claim
    plan          list the relay's records that the ledger lacks, as of a version of the relay
    follow        send them in offset order, then the records of later commits

The ledger's positions decide which records are sent. A target added years later gets history and then live data without a gap.
With `execution: live` tasks follow the relay's log (`follower.py`). With `streaming` Spark reads the records
(`spark_feeder.py`), and a stream detects new ones; its checkpoint location only limits the search.
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Mapping
from functools import cached_property, partial
from typing import TYPE_CHECKING

from mirrorlake.errors import MirrorlakeError, RemoteTopicLost, StoreError
from mirrorlake.kafka import ClusterAdmin, lost_topic_error
from mirrorlake.kafka.lane import fenced_error
from mirrorlake.lake import COLUMNS, Audit, Control, Lake, RelayLog
from mirrorlake.landing import await_query, is_location_in_use
from mirrorlake.model.causes import root_cause
from mirrorlake.model.flow import SourcePartition
from mirrorlake.model.ledger import LedgerRecord
from mirrorlake.progress import ProgressCallback, ignore_progress
from mirrorlake.republish.acquisition import NO_TRUNCATIONS, Acquired, FlowAcquisition, retry_contested
from mirrorlake.republish.follower_driver import send_by_followers
from mirrorlake.republish.owned_flow import OwnedFlow
from mirrorlake.republish.relay_progress import RelayProgress
from mirrorlake.republish.relay_query import start_republishing
from mirrorlake.republish.settings import RepublishSettings
from mirrorlake.republish.spark_feeder import SparkFeeder, Stopped
from mirrorlake.republish.start import StreamLocation
from mirrorlake.republish.tenure import Tenure
from mirrorlake.republish.waiting_topics import TopicsWait, WaitingTopics
from mirrorlake.runtime import LiveTaskSlots, PeriodicTasks, own_session, require_classic_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger(__name__)


class Republisher:
    """Republish one flow. Created topics are recorded in `audit`, and `tell` gets the progress of a drain.

    Several starts of one stream share a `tenure`.
    """

    _owned: OwnedFlow

    def __init__(
        self,
        lake: Lake,
        target: ClusterAdmin,
        settings: RepublishSettings,
        *,
        audit: Audit,
        tell: ProgressCallback = ignore_progress,
        tenure: Tenure | None = None,
    ) -> None:
        self._lake = lake
        self._target = target
        self._settings = settings
        self._flow = settings.flow
        self._audit = audit
        self._tenure = tenure or Tenure()
        self._progress = RelayProgress(self._flow.name, tell)
        self._failure: BaseException | None = None
        self._waiting = WaitingTopics(Control(lake, now=audit.now), settings.flow.name, now=audit.now)
        self._stop = threading.Event()
        self._log = lake.relay_log(self._flow.source) if self._flow.execution == "live" else None

    @property
    def records(self) -> int:
        return self._progress.sent

    def run(self, *, once: bool, stop: threading.Event, rebuild: bool = False, restore_ledger: bool = False) -> None:
        """Republish until the relay is drained (`once`), or until `stop` is set and the present batch is sent.

        `rebuild` uses a new checkpoint location, after the old one was lost. `restore_ledger` starts from the furthest positions of
        ledger and lake, after the ledger was lost.

        Raises:
            CheckpointLost: the checkpoint location lost batches that the ledger knows.
            LedgerLost: the ledger lacks records that its copy in the lake has.
            LaneFenced: another republisher has claimed the flow.
            RemoteTopicLost, TopicConflict, UnsendableRecord, RecordTooLarge: with `once`, of one topic; the others are drained.
        """
        self._stop = stop
        try:
            location = self._acquire(rebuild=rebuild, restore_ledger=restore_ledger)
            while True:
                try:
                    self._run_owned(location, once=once)
                except RemoteTopicLost as error:
                    # A new claim names the lost topics before their records are skipped; all other topics continue.
                    log.warning("republish.remote_lost flow=%s why=%s", self._flow.name, error.cause)
                    truncated = {error.facts["topic"]: error.cut} if error.cut else {}
                    location = self._acquire(truncated=truncated)
                except TopicsWait:
                    location = self._acquire()
                except MirrorlakeError as error:
                    if not self._owned.let_topics_wait(error):
                        raise
                    location = self._acquire()
                else:
                    if not once or not self._owned.await_quota(stop):
                        break
                    location = self._acquire()
        except MirrorlakeError:
            raise
        except Exception as error:
            if stop.is_set():
                # The batch took longer than the stop's grace period.
                return
            # Spark's own errors, such as that of a killed Python worker.
            raise self._failure_error(error) from error
        if once and self._owned.resolution.lost:
            raise lost_topic_error(*self._owned.resolution.lost)
        if once and self._owned.waiting is not None and (why := self._owned.waiting.first) is not None:
            raise why

    def resend(self, select: Callable[[], DataFrame]) -> list[LedgerRecord]:
        """Claim the flow, and send the selected rows of the relay, each once, whatever was sent of their partitions before.

        `select` is called when the lake's tables have all records that earlier owners sent.
        """
        require_classic_session(self._lake.spark)
        self._owned = self._acquire_by(FlowAcquisition.acquire_for_resend)
        frame = select().select("topic", "generation", "partition", *COLUMNS)
        return SparkFeeder(self._owned, self._stop).send(frame, batch=-1)

    def _acquire_by(self, claim: Callable[[FlowAcquisition], Acquired]) -> Acquired:
        def once() -> Acquired:
            take_over = FlowAcquisition(
                self._lake,
                self._target,
                self._settings,
                self._audit,
                self._progress,
                self._tenure,
                # Only a stream skips records; otherwise the ledger's positions alone decide.
                waiting=tuple(self._waiting) if self._follows_stream else (),
            )
            return claim(take_over)

        return retry_contested(once, flow=self._flow.name, stop=self._stop)

    def _acquire(
        self, *, rebuild: bool = False, restore_ledger: bool = False, truncated: Mapping[str, str] = NO_TRUNCATIONS
    ) -> StreamLocation:
        follow = partial(
            FlowAcquisition.acquire_to_continue,
            streams=self._follows_stream,
            rebuild=rebuild,
            restore_ledger=restore_ledger,
            truncated=truncated,
        )
        self._owned, location = self._acquire_by(follow)
        if self._settings.relay_slice is None:
            self._owned.waiting, self._owned.streams = self._waiting, self._follows_stream
            self._waiting.publish()
        return location

    def _run_owned(self, location: StreamLocation, *, once: bool) -> None:
        is_slice = self._settings.relay_slice is not None
        tasks = PeriodicTasks(self._flow.name, () if is_slice else self._settings.periodic_tasks)
        if not once:
            tasks.start()
        try:
            if self._log is not None:
                self._follow_log(self._log, ends=once or is_slice)
            else:
                version = None if location.resumes else SparkFeeder(self._owned, self._stop).send_backlog()
                if not self._stop.is_set() and not is_slice:
                    self._follow_stream(location, version, once=once)
        finally:
            tasks.stop()
        if self._stop.is_set() or not (once or is_slice) or self._owned.waiting:
            return
        if once:
            tasks.run_all()
        self._progress.finish()

    # -- execution: live ------------------------------------------------------------------------------------------

    def _follow_log(self, relay: RelayLog, *, ends: bool) -> None:
        """Send by followers of the relay's log; plan again whenever they end before a stop."""
        owned, unready = self._owned, set[SourcePartition]()
        with LiveTaskSlots(lambda: self._session, 0 if ends else self._max_tasks()) as slots:
            while not self._stop.is_set():
                files = owned.files(relay)
                self._progress.expect(files)
                if ends and not files:
                    return
                # This process sends a few records itself, without starting Spark.
                is_local = owned.fits_in_process(files) if ends else not slots.is_enough
                names = {*owned.topics.known, *(source.topic for source in unready)}
                unready |= send_by_followers(
                    owned,
                    relay,
                    files,
                    None if is_local else self._session,
                    tasks=owned.claims.claim.lanes if is_local else self._max_tasks(),
                    ends=ends,
                    ignored={name for name in names if not owned.is_sending(name)},
                    stop=self._stop,
                )
                if ends:
                    return

    def _max_tasks(self) -> int:
        lanes = self._owned.claims.claim.lanes
        is_local = self._session.conf.get("spark.master", "").startswith("local")
        return min(lanes, os.cpu_count() or 1) if is_local else lanes

    @cached_property
    def _session(self) -> SparkSession:
        return own_session(self._lake.spark)

    # -- execution: streaming ---------------------------------------------------------------------------------------

    @property
    def _follows_stream(self) -> bool:
        return self._settings.relay_slice is None and self._log is None

    def _follow_stream(self, location: StreamLocation, version: int | None, *, once: bool) -> None:
        from pyspark.errors import StreamingQueryException

        self._failure = None
        ended = threading.Event()

        def tick() -> None:
            self._progress.report()
            if self._stop.is_set() or (self._waiting.begin_check() and self._owned.release_topics()):
                ended.set()

        query = start_republishing(
            self._lake, self._flow, location.path, each_batch=self._republish_batch, version=version, once=once
        )
        try:
            await_query(query, ended, tick=tick)
            if ended.is_set() and not self._stop.is_set():
                raise TopicsWait
        except StreamingQueryException as error:
            if isinstance(self._failure, Stopped):
                return
            if isinstance(self._failure, MirrorlakeError | TopicsWait):
                raise self._failure from error
            if is_location_in_use(str(error)):
                why = "it uses the same checkpoint location"
                raise fenced_error(self._flow.name, why, flow=self._flow.name) from error
            raise self._failure_error(error) from error

    def _failure_error(self, error: Exception) -> StoreError:
        return StoreError(
            f"republishing {self._flow.name} failed: {root_cause(str(error))}",
            consequence="the ledger holds what was confirmed, and the next start resumes from it",
            remedy=f"mirrorlake doctor, then mirrorlake republish --flow '{self._flow.name}' again",
            flow=self._flow.name,
        )

    def _republish_batch(self, frame: DataFrame, batch_id: int) -> None:
        try:
            # An error keeps Spark from committing a batch that is only partly sent; the next start sends its rest.
            SparkFeeder(self._owned, self._stop).send(frame, batch=batch_id)
        except BaseException as error:
            # Spark passes on only the text of an exception.
            self._failure = error
            raise
