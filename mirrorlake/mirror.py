"""The facade: one `Mirror` a settings file, with a verb for each command."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import closing
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql import DataFrame, SparkSession

from mirrorlake.config.load import load as load_config
from mirrorlake.config.load import loads
from mirrorlake.config.plain import identity, plain
from mirrorlake.config.preview import FlowPreview, preview
from mirrorlake.config.schema import FlowConfig, MirrorConfig
from mirrorlake.config.shown import mirror_sheet
from mirrorlake.config.values import length_of
from mirrorlake.errors import UsageError
from mirrorlake.handles import FlowHandle
from mirrorlake.kafka.admin import ClusterAdmin
from mirrorlake.model.browse import Beside, Page, Passport
from mirrorlake.model.control import Pause
from mirrorlake.model.edits import SETTINGS
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.groups import GroupPlan
from mirrorlake.model.offset_map import Translation
from mirrorlake.model.plan import Plan
from mirrorlake.model.status import Status
from mirrorlake.model.verify import VerifyReport, VerifyReports
from mirrorlake.progress.bars import display_here
from mirrorlake.progress.board import DRAW_EVERY_S, Display
from mirrorlake.relay.audit import Audit
from mirrorlake.relay.lake import Lake
from mirrorlake.running import Landing, Ran, Republishing, Runner
from mirrorlake.show import Sheet, Shown
from mirrorlake.steps import conflicts as conflicts_step
from mirrorlake.steps import control as control_step
from mirrorlake.steps import doctor as doctor_step
from mirrorlake.steps import offsets as offsets_step
from mirrorlake.steps import query as query_step
from mirrorlake.steps import rules as rules_step
from mirrorlake.steps import set_up
from mirrorlake.steps import status as status_step
from mirrorlake.steps import verify as verify_step
from mirrorlake.steps.acls import read_ownership
from mirrorlake.steps.beside import Anchor, read_beside
from mirrorlake.steps.history import History
from mirrorlake.steps.lag import Lag
from mirrorlake.steps.positions import MovedPositions, move_positions, spark_positions
from mirrorlake.steps.producer import LakeProducer
from mirrorlake.steps.publish import Published
from mirrorlake.steps.publish_file import read_records_of
from mirrorlake.steps.quarantine import Quarantine
from mirrorlake.steps.rebuild import RebuildPlan, apply_rebuild
from mirrorlake.steps.report import Report, make_report
from mirrorlake.steps.sample import Sample
from mirrorlake.steps.takeover import TakeoverPlan, apply_takeover, make_takeover_plan
from mirrorlake.steps.takeover_look import OtherMirror, Sites
from mirrorlake.steps.track import Timed, track_verification
from mirrorlake.streams.in_order import InOrder
from mirrorlake.streams.republish import Republisher
from mirrorlake.tracking.frame import runs_frame
from mirrorlake.tracking.tracker import Tracker
from mirrorlake.wiring import Wiring, utc_now

if TYPE_CHECKING:
    import pandas as pd


class Mirror(Shown):
    """Everything that one settings file describes.

    Args:
        config: the settings.
        spark: the session to use; None takes the active one, or starts a local one when it is first needed.
        now: the clock.
        display: makes what shows the progress of long work: by default bars in a notebook and in a terminal, else log lines;
            `lambda: None` shows nothing.

    Example:
        >>> mirror = ml.load("conf/demo.yml")  # doctest: +SKIP
        >>> mirror.plan()  # doctest: +SKIP
        >>> mirror.run(once=True)  # doctest: +SKIP
        >>> mirror["east->central"].verify().equal  # doctest: +SKIP
        True
    """

    def __init__(
        self,
        config: MirrorConfig,
        *,
        spark: SparkSession | None = None,
        now: Callable[[], datetime] = utc_now,
        display: Callable[[], Display | None] = display_here,
    ) -> None:
        self._now = now
        self._wiring = Wiring(config, spark=spark, now=now, display=display)
        self._runner = Runner(self._wiring)
        self._verified: dict[str, tuple[VerifyReport, datetime]] = {}

    def __repr__(self) -> str:
        return f"Mirror({', '.join(flow.name for flow in self.config.flows)})"

    def sheet(self) -> Sheet:
        """Return the settings; no cluster and no table is asked (see `Mirror.status`)."""
        return mirror_sheet(self.config)

    @property
    def config(self) -> MirrorConfig:
        """The settings; a mirror that runs takes up newer ones that were applied."""
        return self._wiring.config

    def __getitem__(self, flow: str) -> FlowHandle:
        return FlowHandle(self, self.config.flow(flow))

    @property
    def flows(self) -> tuple[FlowHandle, ...]:
        """The flows in the order of the settings."""
        return tuple(FlowHandle(self, flow) for flow in self.config.flows)

    @property
    def spark(self) -> SparkSession:
        """The Spark session."""
        return self._wiring.spark

    @property
    def lake(self) -> Lake:
        """The lake."""
        return self._wiring.lake

    def admin(self, alias: str) -> ClusterAdmin:
        """Return the admin of a cluster."""
        return self._wiring.admin(alias)

    # -- set up ---------------------------------------------------------------------------------------------------

    def plan(self, flow: str | None = None) -> Plan:
        """Return what `apply` would change on the targets and in the lake; changes nothing (law G)."""
        edited = control_step.settings_plan(self.config, self._wiring.control(), flow=flow)
        return edited + set_up.make_plan(
            self._chosen(flow),
            beside=self.config.flows,
            sources=self._wiring.sources(),
            admins=self._wiring.clusters(),
            lake=self.lake,
            audit=Audit(self.lake, now=self._now),
        )

    def apply(self, flow: str | None = None, *, plan: Plan | None = None) -> Plan:
        """Carry out a plan, the present one by default, and return it; running mirrors then take the settings up.

        A given plan puts the settings in force only where it shows how they were edited.
        """
        chosen = self.plan(flow) if plan is None else plan
        sources = {f.source for f in self._chosen(flow)}
        set_up.apply_plan(
            chosen, sources=sorted(sources), admins=self._wiring.clusters(), lake=self.lake, now=self._now
        )
        control = self._wiring.control()
        if plan is None or control.state().applied is None or any(change.where == SETTINGS for change in plan.changes):
            control_step.put_in_force(self.config, control, flow=flow)
        return chosen

    def plan_groups(self, flow: str, *, recorded: bool = False) -> GroupPlan:
        """Return where each consumer group of a flow would go on at the target, and what is held back and why.

        Nobody consumes from a lake cluster: the plan of a flow from one is empty.

        Args:
            flow: the flow's name.
            recorded: take the groups' positions from the lake, where the source is lost.
        """
        return self._wiring.group_sync(self.config.flow(flow), recorded=recorded).plan()

    def apply_groups(self, flow: str, *, recorded: bool = False) -> GroupPlan:
        """Set what the plan of this moment moves, write positions and checkpoints to the lake, and return the plan."""
        return self._wiring.group_sync(self.config.flow(flow), recorded=recorded).apply()

    # -- run ------------------------------------------------------------------------------------------------------

    def land(
        self, source: str, *, once: bool = False, stop: threading.Event | None = None, rebuild_checkpoint: bool = False
    ) -> Landing:
        """Land one source cluster.

        Args:
            source: its alias.
            once: land what is there and return; otherwise until `stop` is set.
            stop: set it to return after the batch under way.
            rebuild_checkpoint: make a new checkpoint location from the relay after the old one was lost.
        """
        if source not in self.config.sources:
            raise UsageError(
                f"no flow has '{source}' as its source", remedy=f"name one of: {', '.join(self.config.sources)}"
            )
        return self._runner.land(source, once=once, stop=stop or threading.Event(), rebuild=rebuild_checkpoint)

    def republish(
        self,
        flow: str,
        *,
        once: bool = False,
        stop: threading.Event | None = None,
        rebuild_checkpoint: bool = False,
        restore_ledger: bool = False,
    ) -> Republishing:
        """Republish one flow; the arguments are those of `land`.

        `restore_ledger` sets out from the offset map's positions after the ledger topic was lost.
        """
        self.config.flow(flow)
        return self._runner.republish(
            flow,
            once=once,
            stop=stop or threading.Event(),
            rebuild=rebuild_checkpoint,
            restore_ledger=restore_ledger,
        )

    def plan_rebuild(self, *, like: str, target: str, recorded: bool = False) -> RebuildPlan:
        """Return what would give `target` the merged topics of `like` in their recorded order; changes nothing (law G).

        Args:
            like: the target whose order is recorded.
            target: the target that gets it.
            recorded: take the order from the lake alone, where `like` is lost.

        Raises:
            UsageError: no flow into `target` has a counterpart into `like`, or records go by key.
            SafetyError: `target` holds more than the beginning of that order, or the order is not certain yet.
        """
        return self._wiring.rebuild_plan(like=like, target=target, recorded=recorded)

    def apply_rebuild(self, plan: RebuildPlan, *, stop: threading.Event | None = None) -> int:
        """Send what a rebuild plan holds and return how many records that were; `stop` ends it between two stretches."""
        with self._wiring.watching() as board:
            return apply_rebuild(plan, self._in_order, stop=stop, tell=board.tell)

    def _in_order(self, flow: str) -> InOrder:
        settings = self._wiring.republish_settings(self.config.flow(flow))
        audit = Audit(self.lake, now=self._now)
        return Republisher(self.lake, self.admin(settings.flow.target), settings, audit=audit).in_order()

    def takeover(self, flow: str, *, other: OtherMirror | None = None, trust_stored: bool = False) -> TakeoverPlan:
        """Return where a flow goes on after a MirrorMaker 2 that was stopped; changes nothing (law G).

        Args:
            flow: the flow, which has not begun yet.
            other: where MirrorMaker kept its state.
            trust_stored: go on at its stored offsets where the records on the target cannot tell.
        """
        settings = self.config.flow(flow)
        source, target = settings.source, settings.target
        sites = Sites(
            self.admin(source),
            self.admin(target),
            self._wiring.reader_options(source),
            self._wiring.reader_options(target),
        )
        return make_takeover_plan(settings, sites, other=other, trust_stored=trust_stored)

    def apply_takeover(self, plan: TakeoverPlan) -> TakeoverPlan:
        """Carry a takeover out and return it: the flow's next `run` goes on there.

        Raises:
            TakeoverRefused: the plan is refused, or the flow began meanwhile; nothing was changed.
        """
        flow = self.config.flow(plan.flow)
        apply_takeover(
            plan,
            flow,
            target=self.admin(flow.target),
            producer_options=self._wiring.producer_options(flow),
            reader_options=self._wiring.reader_options(flow.target),
            lake=self.lake,
            now=self._now(),
        )
        return plan

    def run(
        self,
        flow: str | None = None,
        *,
        once: bool = False,
        stop: threading.Event | None = None,
        metrics_port: int | None = None,
    ) -> Ran:
        """Land every source and republish every flow, or one of them.

        With `once`, the sources are drained first and the flows after them, each to its own end; the first failure is
        raised then. Otherwise all streams run side by side until `stop` is set, and follow pauses and newly applied
        settings. A cluster that goes away is waited for; any other error stops all streams and is raised.

        Args:
            flow: one flow; all of them without it.
            once: drain and return.
            stop: set it to return after the batches under way.
            metrics_port: serve metrics there while it runs (docs/metrics.md); `metrics.port` of the settings without it.
        """
        self._chosen(flow)
        return self._runner.run(flow, once=once, stop=stop or threading.Event(), metrics_port=metrics_port)

    def sample(
        self,
        *,
        once: bool = False,
        every: str | timedelta | None = None,
        stop: threading.Event | None = None,
        tell: Callable[[Sample], None] = lambda _: None,
    ) -> Sample | None:
        """Look at all positions and write what is new to `positions`, for lag over time (see `lag`); changes no cluster.

        A mirror that runs does this by itself. Run it beside mirrors that run in parts, or once on a schedule.

        Args:
            once: look once and return what was seen; otherwise until `stop` is set.
            every: the time between two looks; `sampling.every` of the settings without it.
            stop: set it to return after the look under way.
            tell: is shown each sample.

        Raises:
            StoreError: the lake failed. A cluster that does not answer is told in `Sample.unanswered`.
        """
        if once:
            sample = self._wiring.sampler().once()
            tell(sample)
            return sample
        every_s = None if every is None else length_of(every).total_seconds()
        self._runner.sample(every_s=every_s, stop=stop or threading.Event(), tell=tell)
        return None

    def create_views(self, *, days: int = 7) -> list[str]:
        """Create the SQL views `lag`, `latency` and `rpo` and return their names; on a path they last as long as the session.

        Args:
            days: how far back they reach.

        Example:
            >>> mirror.create_views()  # doctest: +SKIP
            >>> spark.sql("SELECT * FROM lag WHERE hop = 'republished' ORDER BY observed_at DESC")  # doctest: +SKIP
        """
        return self.lag.create_views(days=days)

    def pause(
        self, *, cluster: str | None = None, flow: str | None = None, topic: str | None = None, reason: str = ""
    ) -> Pause:
        """Pause a cluster, a flow or a topic of a flow, here and in every process that runs on this lake; asks no cluster.

        A paused cluster is neither read nor written by streams; what the relay holds of it still goes to other clusters.
        Of a paused flow or topic landing goes on, and what it lands is sent after `resume`, without a gap or a repeat.

        Args:
            cluster: an alias.
            flow: a flow's name.
            topic: a source topic that the flow carries.
            reason: shown wherever the pause is.

        Raises:
            UsageError: one of them is needed, and known to the settings.

        Example:
            >>> mirror.pause(flow="east->central", reason="the line is needed for a backup")  # doctest: +SKIP
        """
        subject = control_step.subject_of(self.config, cluster=cluster, flow=flow, topic=topic)
        return control_step.pause(self._wiring.control(), subject, reason=reason)

    def resume(
        self, *, cluster: str | None = None, flow: str | None = None, topic: str | None = None, reason: str = ""
    ) -> Pause | None:
        """End a pause and return it, None where there was none; the arguments are those of `pause`."""
        subject = control_step.subject_of(self.config, cluster=cluster, flow=flow, topic=topic)
        return control_step.resume(self._wiring.control(), subject, reason=reason)

    # -- publish --------------------------------------------------------------------------------------------------

    def publish(
        self, frame: DataFrame, *, topic: str | None = None, cluster: str | None = None, batch_id: str | None = None
    ) -> Published:
        """Publish a frame into a lake cluster, in one commit: all of it or nothing. Flows carry it to their targets.

        Offsets are dense within each partition and follow the order of the frame (law D), whoever else publishes.

        Args:
            frame: column `value` (binary or string; null is a tombstone) and, where wanted, `key`, `headers` (array of key
                and value, or a map), `timestamp` (default: now), `partition` (default: by key with murmur2, as Java's
                clients; without a key one after another) and `topic`.
            topic: the topic of all records, instead of a column.
            cluster: the lake cluster's alias; may be left out where there is one.
            batch_id: a name: a second call with it publishes nothing and returns what the first did, for 30 days (law F).

        Raises:
            UsageError: the cluster, the frame or a record of it does not fit; nothing was published.
            StoreError: the lake failed; the message says whether anything was published.
        """
        return self._wiring.publisher(self.config.lake_cluster(cluster)).publish(frame, topic=topic, batch_id=batch_id)

    def publish_file(self, file: str | Path, *, key: str | None = None, **options: Any) -> Published:
        """Publish a file of JSON lines, or Parquet (see `read_records_of`); `key` names a field, `options` are `publish`'s."""
        with self._wiring.watching() as board:
            # One commit: nobody knows how far it is before it is made.
            board.tell(f"publish {Path(file).name}", 0, None)
            done = self.publish(read_records_of(self.spark, file, key=key), **options)
            board.tell(f"publish {Path(file).name}", done.records, done.records)
        return done

    def producer(self, cluster: str | None = None, config: Mapping[str, Any] | None = None) -> LakeProducer:
        """Return a producer into a lake cluster, with the shape of `confluent_kafka.Producer` (see `LakeProducer`)."""
        return self._wiring.producer(self.config.lake_cluster(cluster), config)

    # -- look -----------------------------------------------------------------------------------------------------

    def status(self, flow: str | None = None) -> Status:
        """Return per flow where each partition stands.

        Raises:
            ClusterError: a source or a target does not answer.
        """
        found, state = [], self._wiring.control().state()
        for each in self._chosen(flow):
            with closing(self._wiring.ledger(each)) as ledger:
                one = status_step.flow_status(
                    each,
                    source=self._wiring.source(each.source),
                    target=self.admin(each.target),
                    ledger=ledger,
                    lake=self.lake,
                    now=self._now,
                    paused=state.covering(each.name, each.source, each.target),
                )
            found.append(one)
        return Status(flows=tuple(found), observed_at=self._now())

    def verify(self, flow: str | None = None) -> VerifyReports:
        """Compare source, relay and target of each flow, by count and by content."""
        chosen = self._chosen(flow)
        maps = {
            target: self._wiring.known_maps(self._wiring.with_redrives(self.config.flows_to(target)))
            for target in {each.target for each in chosen}
        }
        views = self._wiring.views(self.config.flows)

        def compare(each: FlowConfig) -> Timed:
            source, target = self._wiring.source_side(each.source), self._wiring.side(each.target)
            began_at = self._now()
            found = verify_step.verify_flow(
                each,
                lake=self.lake,
                source=source,
                target=target,
                maps=maps[each.target],
                views=views,
                tell=board.tell,
            )
            return Timed(found=found, began_at=began_at, ended_at=self._now())

        self.tracking.warm_up()
        # Much of a small comparison is planning and waiting, which several flows can do side by side.
        with self._wiring.watching() as board, ThreadPoolExecutor(4, thread_name_prefix="verify") as pool:
            calls = [pool.submit(compare, each) for each in chosen]
            while wait(calls, timeout=DRAW_EVERY_S).not_done:
                board.tick()
            results = [one.result() for one in calls]
        for each, timed in zip(chosen, results, strict=True):
            track_verification(timed, each, self.config, tracker=self.tracking, lake=self.lake, now=self._now)
        found = VerifyReports(timed.found for timed in results)
        at = self._now()
        self._verified |= {one.flow: (one, at) for one in found}
        return found

    @property
    def tracking(self) -> Tracker:
        """What logs verifications as MLflow runs: how many were `logged`, and how many `failures` were passed over."""
        return self._wiring.tracker

    def runs(self, *, kind: str | None = None, flow: str | None = None, newest: int = 100) -> pd.DataFrame:
        """Return logged runs as a pandas frame, newest first: figures in columns, parameters in `param.*` (see `runs_frame`).

        Raises:
            UsageError: runs are not logged; says why.
            StoreError: the tracking store cannot be read.

        Example:
            >>> mirror.runs(flow="east->central")[["began_at", "equal", "records_per_second"]]  # doctest: +SKIP
        """
        return runs_frame(self.tracking.runs(kind=kind, flow=flow, newest=newest))

    def report(self, *, since: str | timedelta = "24h", flow: str | None = None, verify: bool = False) -> Report:
        """Return a report on lag, latency, RPO and verdicts since a time; `write` makes a file of it.

        It holds the last verification of this `Mirror`, where there was one.

        Args:
            since: how far back it goes.
            flow: one flow; all of them without it.
            verify: compare source, relay and target first.

        Raises:
            UsageError: there is no such flow, or `since` is no time.
            ClusterError, StoreError: with `verify`, a cluster does not answer; the lake failed.

        Example:
            >>> mirror.report(since="7d", verify=True).write("report.html")  # doctest: +SKIP
        """
        chosen, length = self._chosen(flow), length_of(since)
        if verify:
            self.verify(flow)
        known = [self._verified[each.name] for each in chosen if each.name in self._verified]
        end = self._now()
        return make_report(
            self._wiring.lag(chosen),
            start=end - length,
            end=end,
            settings=identity(plain(self.config)),
            verifications=[found for found, _ in known],
            verified_at=min((at for _, at in known), default=None),
        )

    def doctor(self) -> doctor_step.Findings:
        """Look at every layer the mirror stands on; changes nothing."""
        sources, admins = self._wiring.sources(), self._wiring.clusters()
        return doctor_step.examine(self.config, sources=sources, admins=admins, lake=self.lake, now=self._now())

    def translate(
        self,
        flow: str,
        *,
        topic: str,
        partition: int,
        offset: int,
        generation: int | None = None,
        reverse: bool = False,
    ) -> Translation:
        """Return the exact counterpart of an offset, or why there is none.

        With `reverse`, `topic` is the remote topic (its source's name is understood too) and `offset` a downstream one.
        """
        settings = self.config.flow(flow)
        if not reverse:
            return offsets_step.translate(
                self.lake, settings, topic=topic, partition=partition, offset=offset, generation=generation
            )
        remote = settings.remote_topic(topic) if settings.selection.matches(topic) else topic
        return offsets_step.translate_back(self.lake, flow, topic=remote, partition=partition, offset=offset)

    def browse(
        self,
        cluster: str,
        topic: str,
        partition: int = 0,
        *,
        offset: int | None = None,
        at: datetime | None = None,
        relay: bool = False,
        generation: int | None = None,
        count: int = 20,
        max_bytes: int = 2**20,
    ) -> Page:
        """Return records of one partition as they stand on a cluster, or as they were landed from it; commits nothing (law H).

        Args:
            cluster: the alias of a source or a target; of a lake cluster the relay is read.
            topic: the topic, as it is called there.
            partition: the partition.
            offset: first offset wanted; the newest records without it and without `at`.
            at: or the first record at or after a time, which knows its zone.
            relay: read the relay of the cluster instead.
            generation: the life of a topic that was created again, in the relay; None for the newest.
            count: the most records, 1 to 1 000.
            max_bytes: the most bytes of keys, values and headers; one record is always given.

        Raises:
            UsageError: there is no such partition, or nothing of it was landed.
            TopicDenied: the settings say that the topic never leaves the cluster, not to a screen either.
            ClusterError: the cluster does not answer.

        Example:
            >>> mirror.browse("central", "east.orders", 0, offset=1139, count=5)  # doctest: +SKIP
        """
        return self._wiring.browse(
            cluster,
            TopicPartition(topic, partition),
            relay=relay,
            generation=generation,
            offset=offset,
            at=at,
            count=count,
            max_bytes=max_bytes,
        )

    def beside(
        self,
        flow: str,
        topic: str,
        partition: int = 0,
        *,
        anchor: Anchor = "source",
        offset: int | None = None,
        at: datetime | None = None,
        count: int = 20,
    ) -> Beside:
        """Return the same records on source, relay and target of a flow; a side that cannot be read is noted.

        Args:
            flow: the flow's name.
            topic: the source topic.
            partition: the partition on the anchor's side.
            anchor: source, relay or target: the side that `offset` or `at` is meant on.
            offset: first offset wanted there; the newest records without it and without `at`.
            at: or the first record at or after a time.
            count: the most records of each side, 1 to 1 000.

        Raises:
            UsageError, TopicDenied, ClusterError: as `browse`, of the anchor's side.
        """
        where = TopicPartition(topic, partition)
        seek: dict[str, Any] = {"anchor": anchor, "offset": offset, "at": at, "count": count}
        return read_beside(self.lake, self.config.flow(flow), where, browse=self.browse, **seek)

    def preview(self, flow: str) -> FlowPreview:
        """Return which topics of its source a flow mirrors under which names, and which it leaves out and why.

        Raises:
            ClusterError: the source does not answer.
        """
        settings = self.config.flow(flow)
        return preview(settings, self._wiring.source(settings.source).topic_names())

    def passport(
        self, cluster: str, topic: str, partition: int, offset: int, *, generation: int | None = None
    ) -> Passport:
        """Return where one record stands everywhere, or why it does not, from its coordinates on any side (law E).

        Args:
            cluster: the alias of the cluster on which the coordinates hold: a source, or a target.
            topic: the topic, as it is called there.
            partition: the partition there.
            offset: the offset there.
            generation: the life of a source topic that was created again; None for the newest that holds the offset.

        Raises:
            UsageError: there is no such cluster.
            TopicDenied: the settings say that the topic never leaves the cluster.

        Example:
            >>> print(mirror.passport("central", "east.orders", 0, 1139))  # doctest: +SKIP
        """
        return self._wiring.passport(cluster, TopicPartition(topic, partition), offset, generation=generation)

    def quarantine(self, flow: str) -> Quarantine:
        """Return the records of a flow that no rule could judge, and the call that sends them again."""
        settings = self.config.flow(flow)
        self.lake.create_all([settings.source])
        return self._wiring.quarantine(settings)

    def try_rules(self, flow: str, topic: str, newest: int) -> rules_step.RuleTrial:
        """Return what the rules of a flow would do to the newest records of a topic (see `FlowHandle.try_rules`)."""
        settings = self.config.flow(flow)
        return rules_step.try_rules(self.lake, settings, self._wiring.view(settings), topic=topic, newest=newest)

    def conflicts(self, topic: str, *, within: str | timedelta = "5 minutes") -> DataFrame:
        """Return the records with one key that two regions wrote within a time (see `relay.conflicts.same_key_conflicts`).

        Args:
            topic: the topic, as it is called on the sources where its records are born.
            within: the most time between the timestamps of two records.

        Raises:
            UsageError: fewer than two sources of the settings carry the topic, or `within` is no time.

        Example:
            >>> mirror.conflicts("orders", within="5 minutes").show()  # doctest: +SKIP
        """
        return conflicts_step.conflicts(self.lake, self.config.flows, topic, within=length_of(within))

    def sql(self, query: str, **values: Any) -> DataFrame:
        """Return the answer to a SQL query over the lake; tables have names, whatever their paths are.

        `records` are the records of all sources, with `source`, `key_text` and `value_text`; `relay_east` is the relay of
        `east`; side tables (`offset_map`, `gaps`, `positions`, …) have their own names. Temporary views of the session,
        which a table of yours with the same name is hidden behind.

        Args:
            query: the query; `:topic` in it stands for the argument `topic`.
            **values: what such markers stand for.

        Raises:
            UsageError: a table is not there yet.

        Example:
            >>> mirror.sql("SELECT topic, count(*) FROM records GROUP BY topic").show()  # doctest: +SKIP
        """
        return query_step.sql(self.lake, self.config.sources, query, values)

    def json_view(
        self, topic: str, *, name: str | None = None, schema: str | None = None, newest: int = 10_000
    ) -> DataFrame:
        """Make a view of a source topic with the members of its JSON values, and return it: `value.amount`.

        Columns: `source`, `topic`, `generation`, `partition`, `offset`, `timestamp`, `timestamp_type`, `landed_at`, `key`
        (text), `value` (null for tombstones and what is no JSON object) and `value_text`. It shows what is in the relays when it
        is asked, under the same name in SQL cells and in `sql`, as long as the session lives.

        Args:
            topic: the source topic.
            name: of the view; the topic's with `_` for what SQL would have quoted.
            schema: the type of the values, as `STRUCT<amount: DOUBLE>`; else that of the newest records.
            newest: how many records decide about the type.

        Raises:
            UsageError: no record of the topic holds a JSON object, and no schema is given.

        Example:
            >>> mirror.json_view("sales").select("value.customer").show()  # doctest: +SKIP
        """
        return query_step.json_view(self.lake, self.config.sources, topic, name=name, schema=schema, newest=newest)

    @property
    def lag(self) -> Lag:
        """Return how far each hop of each flow is and was behind, in offsets and in time (see `Lag`)."""
        return self._wiring.lag(self.config.flows)

    @property
    def history(self) -> History:
        """Return what the clusters looked like over time, and the plan back."""

        def look() -> None:
            self.lake.create_all(self.config.sources)
            for flow in self.config.flows:
                self._wiring.keeper(flow).look()

        return History(
            self.lake,
            targets=self.config.targets,
            look=look,
            owned=partial(read_ownership, audit=Audit(self.lake, now=self._now)),
            now=self._now,
        )

    def lag_of(self, flow: str) -> Lag:
        """Return how far each hop of a flow is and was behind (see `Lag`)."""
        return self._wiring.lag([self.config.flow(flow)])

    def translate_table(self, flow: str, offsets: DataFrame, *, reverse: bool = False) -> DataFrame:
        """Return a table of offsets with the counterpart of each, or why it has none (see `Offsets.translate_table`)."""
        return offsets_step.translate_table(self.lake, self.config.flow(flow).name, offsets, reverse=reverse)

    def move_positions(self, flow: str, document: Any) -> MovedPositions:
        """Return where a reader that keeps its offsets outside of Kafka goes on (see `Offsets.move_positions`)."""
        settings = self.config.flow(flow)
        kin = self._wiring.family(settings)
        maps = partial(self._wiring.known_maps, kin.flows)
        return move_positions(self.lake, kin, document, maps=maps, ends=self._wiring.ends(kin))

    def move_spark_query(self, flow: str, checkpoint_location: str) -> MovedPositions:
        """Return the `startingOffsets` of a Spark query at the target (see `Offsets.move_spark_query`)."""
        return self.move_positions(flow, spark_positions(self.spark, checkpoint_location))

    def _chosen(self, flow: str | None) -> tuple[FlowConfig, ...]:
        return self.config.flows if flow is None else (self.config.flow(flow),)


def load(
    path: str | Path, *, spark: SparkSession | None = None, display: Callable[[], Display | None] = display_here
) -> Mirror:
    """Read a settings file and return its mirror; connects to nothing yet.

    Args:
        path: the YAML file.
        spark: see `Mirror`.
        display: see `Mirror`.

    Raises:
        ConfigError: the file has faults; all of them are named.
    """
    return Mirror(load_config(path), spark=spark, display=display)


def from_settings(settings: Mapping[str, Any], *, spark: SparkSession | None = None) -> Mirror:
    """Return the mirror of settings given as a dictionary of the same shape as the file.

    Raises:
        ConfigError: the settings have faults; all of them are named.

    Example:
        >>> from_settings({
        ...     "lake": {"root": "./lake"},
        ...     "clusters": {"a": {"bootstrap_servers": "a:9092"}, "b": {"bootstrap_servers": "b:9092"}},
        ...     "flows": [{"source": "a", "target": "b", "topics": "orders"}],
        ... })
        Mirror(a->b)
    """
    return Mirror(loads(json.dumps(settings)), spark=spark)
