"""The facade: one `Mirror` a settings file, with a method for each command; services do the work."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from mirrorlake import doctor, offsets, publish, records, verify
from mirrorlake.config import edit, length_of, loads, mirror_sheet
from mirrorlake.config import load as load_config
from mirrorlake.config.schema import ClusterConfig, MirrorConfig, NameMatcher
from mirrorlake.errors import TopicDenied, UsageError
from mirrorlake.kafka import ClusterAdmin
from mirrorlake.lag import Lag, Report, SampledMoment, Status
from mirrorlake.lake import Lake
from mirrorlake.maintenance import Erasure, Maintained, Selector
from mirrorlake.mirror.composition import Services
from mirrorlake.mirror.flow import FlowHandle, Offsets
from mirrorlake.mirror.results import Landing, Ran, Republishing
from mirrorlake.mirror.services.connections import Connections, utc_now
from mirrorlake.model.control import Pause
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.groups import GroupPlan
from mirrorlake.model.offset_map import Translation
from mirrorlake.model.parked import Parked
from mirrorlake.model.plan import Plan
from mirrorlake.model.remotes import HeldTopic
from mirrorlake.model.verify import VerifyReports
from mirrorlake.progress import Display, display_here
from mirrorlake.render import Sheet, Shown
from mirrorlake.replay import Leave

if TYPE_CHECKING:
    import pandas as pd
    from pyspark.sql import DataFrame, SparkSession

    from mirrorlake.config.edit import FlowPreview
    from mirrorlake.doctor import Findings
    from mirrorlake.failover import CutoverReport, DrillReport, FailbackReport, FailoverReport
    from mirrorlake.mm2 import OtherMirror, TakeoverPlan
    from mirrorlake.offsets import MovedPositions, RebuildPlan
    from mirrorlake.publish import LakeProducer, Published
    from mirrorlake.records import Anchor, Page, Passport, SideBySide
    from mirrorlake.replay import Replay, Restore
    from mirrorlake.republish import Quarantine
    from mirrorlake.topics import History, RuleTrial
    from mirrorlake.tracking import Tracker
    from mirrorlake.verify import ProofReport, Repair


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
        self._connections = Connections(config, spark=spark, now=now, display=display)
        self._services = Services(self._connections)

    def __repr__(self) -> str:
        return f"Mirror({', '.join(flow.name for flow in self.config.flows)})"

    def sheet(self) -> Sheet:
        """Return the settings; no cluster and no table is asked (see `Mirror.status`)."""
        return mirror_sheet(self.config)

    def __getitem__(self, flow: str) -> FlowHandle:
        return FlowHandle(self._services, self.config.flow(flow).name)

    @property
    def flows(self) -> tuple[FlowHandle, ...]:
        """The flows in the order of the settings."""
        return tuple(FlowHandle(self._services, flow.name) for flow in self.config.flows)

    @property
    def config(self) -> MirrorConfig:
        """The settings; a running mirror adopts newer ones that were applied."""
        return self._connections.config

    @property
    def spark(self) -> SparkSession:
        """The Spark session."""
        return self._connections.spark

    @property
    def lake(self) -> Lake:
        """The lake."""
        return self._connections.lake

    def admin(self, alias: str) -> ClusterAdmin:
        """Return the admin of a cluster."""
        return self._connections.admin(alias)

    # -- set up ---------------------------------------------------------------------------------------------------

    def plan(self, flow: str | None = None) -> Plan:
        """Plan what `apply` would change on the targets and in the lake, without changing anything (law G)."""
        return self._services.changes.plan(flow)

    def apply(self, flow: str | None = None, *, plan: Plan | None = None) -> Plan:
        """Carry out a plan, the present one by default, and return it; running mirrors then adopt the settings.

        A given plan puts the settings in force only where it shows how they were edited.
        """
        return self._services.changes.apply(flow, plan)

    def preview(self, flow: str) -> FlowPreview:
        """Return which topics of its source a flow mirrors under which names, and which it leaves out and why.

        Raises:
            ClusterError: the source does not answer.
        """
        settings = self.config.flow(flow)
        return edit.preview(settings, self._connections.source(settings.source).topic_names())

    def try_rules(self, flow: str, topic: str, newest: int) -> RuleTrial:
        """Try the rules of a flow on the newest records of a topic (see `FlowHandle.try_rules`)."""
        return self[flow].try_rules(topic, newest)

    def plan_groups(self, flow: str, *, recorded: bool = False) -> GroupPlan:
        """Return where each consumer group of a flow would go on at the target (see `FlowHandle.groups`)."""
        return self[flow].groups(recorded=recorded)

    def apply_groups(self, flow: str, *, recorded: bool = False) -> GroupPlan:
        """Set the positions of a flow's groups that are inactive on the target (see `FlowHandle.apply_groups`)."""
        return self[flow].apply_groups(recorded=recorded)

    def takeover(self, flow: str, *, other: OtherMirror | None = None, trust_stored: bool = False) -> TakeoverPlan:
        """Plan where a flow goes on after a MirrorMaker 2 that was stopped (see `FlowHandle.takeover`)."""
        return self[flow].takeover(other=other, trust_stored=trust_stored)

    def apply_takeover(self, plan: TakeoverPlan) -> TakeoverPlan:
        """Carry a takeover out and return it: the flow's next `run` goes on there.

        Raises:
            TakeoverRefused: the plan is refused, or the flow began meanwhile; nothing was changed.
        """
        return self._services.changes.apply_takeover(plan)

    def failover(
        self,
        flow: str,
        *,
        groups: Sequence[str] | None = None,
        dry_run: bool = False,
        unproven: bool = False,
        fence_source: str | None = None,
        report: bool = False,
    ) -> FailoverReport:
        """Fail a flow over (see `FlowHandle.failover`)."""
        return self[flow].failover(
            groups=groups, dry_run=dry_run, unproven=unproven, fence_source=fence_source, report=report
        )

    def failback(
        self,
        flow: str,
        *,
        tail: str | None = None,
        groups: Sequence[str] | None = None,
        dry_run: bool = False,
        unproven: bool = False,
    ) -> FailbackReport:
        """Fail a flow back (see `FlowHandle.failback`)."""
        return self[flow].failback(tail=tail, groups=groups, dry_run=dry_run, unproven=unproven)

    def cutover(self, flow: str, *, commit: bool = False, back: bool = False) -> CutoverReport:
        """Go on with the cutover of a flow (see `FlowHandle.cutover`)."""
        return self[flow].cutover(commit=commit, back=back)

    def drill(
        self,
        flow: str,
        *,
        into: str | None = None,
        every: str | timedelta | None = None,
        stop: threading.Event | None = None,
        tell: Callable[[DrillReport], None] = lambda _: None,
    ) -> DrillReport | None:
        """Rehearse a failover of a flow (see `FlowHandle.drill`), with `every` again and again until `stop` is set."""
        if every is None:
            return self[flow].drill(into=into)
        length_s = length_of(every).total_seconds()
        self._services.drills.every(flow, length_s, into=into, stop=stop or threading.Event(), tell=tell)
        return None

    def plan_rebuild(self, *, like: str, target: str, recorded: bool = False) -> RebuildPlan:
        """Plan how to give `target` the merged topics of `like` in their recorded order, without changing anything (law G).

        With `recorded` the order comes from the lake alone, where `like` is lost.

        Raises:
            UsageError: no flow into `target` has a counterpart into `like`, or records go by key.
            SafetyError: `target` holds more than the beginning of that order, or the order is not certain yet.
        """
        return offsets.make_rebuild_plan(self.lake, self._connections, like=like, target=target, recorded=recorded)

    def apply_rebuild(self, plan: RebuildPlan, *, stop: threading.Event | None = None) -> int:
        """Send what a rebuild plan holds and return how many records that were; `stop` ends it between two stretches."""
        with self._connections.board() as board:
            return offsets.apply_rebuild(plan, self._services.streams.in_order, stop=stop, tell=board.tell)

    def pause(
        self, *, cluster: str | None = None, flow: str | None = None, topic: str | None = None, reason: str = ""
    ) -> Pause:
        """Pause a cluster, a flow or a topic of a flow, here and in every process that runs on this lake; asks no cluster.

        A paused cluster is neither read nor written by streams; what the relay holds of it still goes to other clusters.
        Of a paused flow or topic landing goes on, and what it lands is sent after `resume`, without a gap or a repeat.

        Name a `cluster` by its alias, or a `flow`, or a `flow` and a source `topic` of it; `reason` is shown with the pause.

        Raises:
            UsageError: neither or both are named, or the settings do not know it.

        Example:
            >>> mirror.pause(flow="east->central", reason="the line is needed for a backup")  # doctest: +SKIP
        """
        return self._services.changes.pause(cluster=cluster, flow=flow, topic=topic, reason=reason)

    def resume(
        self, *, cluster: str | None = None, flow: str | None = None, topic: str | None = None, reason: str = ""
    ) -> Pause | None:
        """End a pause and return it, None where there was none; the arguments are those of `pause`.

        Streams that a running mirror has parked after a failure are started again, too: the flow's, or with `cluster` the
        landing from it and the flows into it. `status` names them.
        """
        return self._services.changes.resume(cluster=cluster, flow=flow, topic=topic, reason=reason)

    def parked(self) -> Mapping[str, Parked]:
        """Return the streams that failed in a running mirror while the others went on, by name; asks no cluster."""
        return self._connections.control().state().parked

    # -- run ------------------------------------------------------------------------------------------------------

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
        settings. A stream that fails is parked and tried again where that can help, and the others never notice; see `parked`
        and `status` for the reason and `resume` for the way back.

        Args:
            flow: one flow; all of them without it.
            once: drain and return.
            stop: set it to return after the batches under way.
            metrics_port: serve metrics there (docs/metrics.md), instead of at `metrics.port` of the settings.

        Raises:
            MirrorlakeError: the worst reason, once every stream is parked and none has a chance by itself.
        """
        return self._services.runner.run(flow, once=once, stop=stop or threading.Event(), metrics_port=metrics_port)

    def land(
        self, source: str, *, once: bool = False, stop: threading.Event | None = None, rebuild_checkpoint: bool = False
    ) -> Landing:
        """Land one source cluster.

        Args:
            source: its alias.
            once: land the records so far and return; otherwise until `stop` is set.
            stop: set it to return after the batch under way.
            rebuild_checkpoint: make a new checkpoint location from the relay after the old one was lost.
        """
        if source not in self.config.sources:
            raise UsageError(
                f"no flow has '{source}' as its source", remedy=f"name one of: {', '.join(self.config.sources)}"
            )
        return self._services.runner.land(source, once=once, stop=stop or threading.Event(), rebuild=rebuild_checkpoint)

    def republish(
        self,
        flow: str,
        *,
        once: bool = False,
        stop: threading.Event | None = None,
        rebuild_checkpoint: bool = False,
        restore_ledger: bool = False,
        topic: str | None = None,
        send_again: bool = False,
        accept_empty: bool = False,
    ) -> Republishing:
        """Republish one flow (see `FlowHandle.republish`).

        `topic` with `send_again` or `accept_empty` chooses for a remote topic that was deleted or created again (see `choose`).
        """
        handle = self[flow]
        if send_again or accept_empty or topic is not None:
            self.choose(flow, topic, send_again=send_again, accept_empty=accept_empty)
        return handle.republish(
            once=once, stop=stop, rebuild_checkpoint=rebuild_checkpoint, restore_ledger=restore_ledger
        )

    def held(self, flow: str) -> list[HeldTopic]:
        """Find a flow's remote topics that were deleted or created again and wait for a choice (see `FlowHandle.held`)."""
        return self[flow].held()

    def choose(
        self, flow: str, topic: str | None, *, send_again: bool = False, accept_empty: bool = False
    ) -> HeldTopic | None:
        """Choose what becomes of a remote topic that was deleted or created again; the flow does it when it starts or runs.

        Returns the topic, None where this was chosen before and is done. Law F: until then nothing is sent there. An offset
        map knows afterwards what stands in the new topic only.

        Args:
            flow: the flow's name.
            topic: the remote topic, or a source topic that goes there.
            send_again: send everything again from the relay.
            accept_empty: go on with what was not sent yet; what was sent into the earlier topic is not sent again.

        Raises:
            UsageError: not one of both is chosen, or the topic was not lost.
            ClusterError: the target does not answer.

        Example:
            >>> mirror.choose("east->central", "east.orders", send_again=True)  # doctest: +SKIP
        """
        handle = self[flow]
        if send_again == accept_empty or topic is None:
            raise UsageError(
                "a topic and one of two ways on are needed",
                consequence="nothing was changed",
                remedy="name --topic T, and --send-again or --accept-empty",
                flow=handle.name,
            )
        return handle.send_again(topic) if send_again else handle.accept_empty(topic)

    def quarantine(self, flow: str) -> Quarantine:
        """Return the records of a flow that no rule could judge, and the call that sends them again."""
        return self[flow].quarantine

    def sample(
        self,
        *,
        once: bool = False,
        every: str | timedelta | None = None,
        stop: threading.Event | None = None,
        tell: Callable[[SampledMoment], None] = lambda _: None,
    ) -> SampledMoment | None:
        """Look at all positions and write what is new to `positions`, for lag over time (see `lag`); changes no cluster.

        A running mirror does this by itself. Run it where mirrors run in parts, or once on a schedule.

        Args:
            once: look once and return what was seen; otherwise until `stop` is set.
            every: the time between two looks; `sampling.every` of the settings without it.
            stop: set it to return after the look under way.
            tell: called with each sample.

        Raises:
            StoreError: the lake failed. A cluster that does not answer is reported in `SampledMoment.unanswered`.
        """
        if once:
            sample = self._services.checks.sampler().once()
            tell(sample)
            return sample
        every_s = None if every is None else length_of(every).total_seconds()
        self._services.checks.sample(every_s=every_s, stop=stop or threading.Event(), tell=tell)
        return None

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
            cluster: the lake cluster's alias; optional where there is only one.
            batch_id: a name: a second call with it publishes nothing and returns what the first did, for 30 days (law F).

        Raises:
            UsageError: the cluster, the frame or a record of it does not fit; nothing was published.
            StoreError: the lake failed; the message says whether anything was published.
        """
        publisher = self._connections.publisher(self.config.lake_cluster(cluster))
        return publisher.publish(frame, topic=topic, batch_id=batch_id)

    def publish_file(
        self,
        file: str | Path,
        *,
        key: str | None = None,
        topic: str | None = None,
        cluster: str | None = None,
        batch_id: str | None = None,
    ) -> Published:
        """Publish a file of JSON lines, or Parquet (see `read_records_of`).

        `key` names the field whose value is the record's key; the other arguments, and what is raised, are those of `publish`.
        """
        with self._connections.board() as board:
            # One commit: nobody knows how far it is before it is made.
            board.tell(f"publish {Path(file).name}", 0, None)
            frame = publish.read_records_of(self.spark, file, key=key)
            done = self.publish(frame, topic=topic, cluster=cluster, batch_id=batch_id)
            board.tell(f"publish {Path(file).name}", done.records, done.records)
        return done

    def producer(self, cluster: str | None = None, config: Mapping[str, Any] | None = None) -> LakeProducer:
        """Return a producer into a lake cluster, with the shape of `confluent_kafka.Producer` (see `LakeProducer`)."""
        return publish.LakeProducer(self._connections.publisher(self.config.lake_cluster(cluster)), config=config)

    # -- check ----------------------------------------------------------------------------------------------------

    def status(self, flow: str | None = None) -> Status:
        """Return per flow where each partition stands.

        Raises:
            ClusterError: a source or a target does not answer.
        """
        return self._services.checks.status(flow)

    def verify(
        self,
        flow: str | None = None,
        *,
        full: bool = False,
        since: str | datetime | None = None,
        until: str | datetime | None = None,
        sample: float | None = None,
    ) -> VerifyReports:
        """Compare source, relay and target of each flow at a fixed cut, by count and by content.

        What an earlier verification proved is not read again. Flows may go on running: what they land and republish meanwhile
        is beyond the cut and not compared.

        Args:
            flow: compare this one only.
            full: compare what is proven, too: a record that changed after its proof is found by this alone.
            since: records with a timestamp from this time on, as ISO 8601 with a zone; None from the first.
            until: records with a timestamp before this time; None to the last.
            sample: percent of the records, chosen by chance; what a sample finds equal does not count as proven.

        Raises:
            UsageError: a time or the sample is none.
            ClusterError: a cluster does not answer.

        Example:
            >>> mirror.verify(full=True, sample=1).equal  # doctest: +SKIP
            True
        """
        return self._services.checks.verify(flow, full=full, since=since, until=until, sample=sample)

    def proof_report(self, verification: str) -> ProofReport:
        """Make a report of one verification to be signed off: ranges, digests, topic ids and table versions, with a fingerprint.

        It is made of the table `proofs`, so it can be made again later; counts and differences are in it where this object
        made the verification.

        Raises:
            UsageError: there was no such verification, or it found nothing new to prove.

        Example:
            >>> mirror.proof_report(mirror.verify(full=True).verification).write("proof.html")  # doctest: +SKIP
        """
        return self._services.checks.proof_report(verification)

    def doctor(self) -> Findings:
        """Look at every layer the mirror stands on; changes nothing."""
        connections = self._connections
        return doctor.examine(
            self.config,
            sources=connections.sources(),
            admins=connections.admins(),
            lake=connections.lake,
            held=self._services.streams.held,
            now=connections.now(),
        )

    @property
    def lag(self) -> Lag:
        """The lag of each hop of each flow, now and over time, in offsets and in time (see `Lag`)."""
        return self._services.checks.lag(self.config.flows)

    def lag_of(self, flow: str) -> Lag:
        """Return the lag of each hop of a flow (see `Lag`)."""
        return self[flow].lag

    def create_views(self, *, days: int = 7) -> list[str]:
        """Create the SQL views `lag`, `latency` and `rpo` over some days; on a path they last as long as the session.

        Example:
            >>> mirror.create_views(days=30)  # doctest: +SKIP
            >>> spark.sql("SELECT * FROM lag WHERE hop = 'republished' ORDER BY observed_at DESC")  # doctest: +SKIP
        """
        return self.lag.create_views(days=days)

    def report(self, *, since: str | timedelta = "24h", flow: str | None = None, verify: bool = False) -> Report:
        """Report on lag, latency, RPO and verdicts since a time; `write` makes a file of it.

        It holds the last verification of this `Mirror`, if any; `verify` compares source, relay and target first.

        Raises:
            UsageError: the settings have no such flow, or `since` is not a time.
            ClusterError, StoreError: with `verify`, a cluster does not answer; the lake failed.

        Example:
            >>> mirror.report(since="7d", verify=True).write("report.html")  # doctest: +SKIP
        """
        return self._services.checks.report(flow, length=length_of(since), verify=verify)

    @property
    def history(self) -> History:
        """The history of the clusters, which also plans the way back to an earlier state."""
        return self._services.checks.history()

    @property
    def tracking(self) -> Tracker:
        """What logs verifications as MLflow runs: how many were `logged`, and how many `failures` were passed over."""
        return self._services.checks.tracker

    def runs(self, *, kind: str | None = None, flow: str | None = None, newest: int = 100) -> pd.DataFrame:
        """Return logged runs as a pandas frame, newest first: figures in columns, parameters in `param.*`.

        Raises:
            UsageError: runs are not logged; says why.
            StoreError: the tracking store cannot be read.

        Example:
            >>> mirror.runs(flow="east->central")[["began_at", "equal", "records_per_second"]]  # doctest: +SKIP
        """
        return self._services.checks.runs(kind=kind, flow=flow, newest=newest)

    def repair(self, source: str, *, check: bool = False) -> Repair:
        """Leave each record of a source's relay once, after something landed records twice.

        Flows send such a record once in any case; counts, questions and proofs see it twice. A lander that runs meanwhile
        stops with `LanderReplaced`: start it again.

        With `check` it only looks.

        Raises:
            UsageError: nothing of the source was landed.
        """
        return verify.repair_relay(self.lake, source, now=self._connections.now, check=check)

    def maintain(self, *, plan: bool = False) -> Maintained:
        """Keep the lake small: rewrite small files, write log checkpoints, clean logs, delete what was removed, trim ledgers.

        A mirror that runs does it every few minutes (`maintenance.every`); it disturbs no stream, here or elsewhere. Tables on a
        catalog or an object store are left to their own maintenance. With `plan` it only looks.

        Example:
            >>> mirror.maintain(plan=True)  # doctest: +SKIP
            Upkeep: ✓ ok · 9 600 files would become 8 · 0 files deleted · 0 ledger records deleted
        """
        return self._services.upkeep.once(plan=plan)

    def erase(
        self,
        source: str,
        topic: str,
        *,
        reason: str,
        key: bytes | str | None = None,
        header: tuple[str, bytes | str] | None = None,
        where: str = "",
        apply: bool = False,
    ) -> Erasure:
        """Erase records of a topic from the relay of a source and from `quarantine`, for good; without `apply` only look.

        They leave the lake's files and the disk, while the mirror runs. A flow that has not sent them never will; offsets
        stay exact, and say `erased`. Clusters are not touched (law H): the result says what each target keeps, and for how
        long. Killed and called again, it ends the same.

        Args:
            source: the alias of the source.
            topic: the source topic; all of its partitions and lives are searched.
            reason: why; it is kept in clear, so it names nobody.
            key: of the records with this key. Exactly one of `key`, `header` and `where` is given.
            header: of those with this header, name and value.
            where: of those for which a predicate is true, as the rules of a flow write it.
            apply: do it.

        Raises:
            UsageError: nothing of the topic was landed, the choice cannot be read, or the relay is elsewhere.
            SafetyError: a flow streams the relay and has not read the records yet, or the source is a lake cluster.
            StoreError: files were rewritten again and again meanwhile.

        Example:
            >>> mirror.erase("east", "orders", key="customer-17", reason="request 4711").records  # doctest: +SKIP
            12
        """

        def raw(text: bytes | str) -> bytes:
            return text.encode() if isinstance(text, str) else text

        selector = Selector(
            key=None if key is None else raw(key),
            header=None if header is None else (header[0], raw(header[1])),
            where=where,
        )
        return self._services.upkeep.erase(source, topic, selector, reason=reason, apply=apply)

    # -- recovery -------------------------------------------------------------------------------------------------

    def replay(
        self,
        *,
        source: str | None = None,
        topic: str | None = None,
        into: str = "",
        start: str | datetime = "",
        end: str | datetime = "",
        partitions: Iterable[int] = (),
        from_offset: int | None = None,
        to_offset: int | None = None,
        keys: Iterable[str] = (),
        headers: Mapping[str, str] = MappingProxyType({}),
        where: str = "",
        generation: int | None = None,
        timestamps: str = "original",
        through: str = "",
        rate: str = "",
        name: str | None = None,
        append: bool = False,
        accept_expiry: bool = False,
        hold_retention: bool = False,
    ) -> Replay:
        """Plan to send records of the relay once more, into any topic or file; nothing is sent before `Replay.run`.

        The relay alone is read: the source may be gone, and its retention long past. Each record is sent once, in upstream
        order, into its partition's number (laws D and F): a replay that was killed goes on with the same call, or with its
        `name` alone, and one that is done sends nothing. The flow's rules do not apply, unless `through` says so.

        Args:
            source: the alias of the cluster whose relay is read.
            topic: the source topic.
            into: `central:orders.replayed`, or `parquet:PATH`; without it, `Replay.pandas`, `arrow` and `frame` give the records.
            start: only records with a timestamp at or after it: a time (UTC without a zone), or how long ago, like `-2h`.
            end: only records before it.
            partitions: only these source partitions.
            from_offset: only records at or after this upstream offset.
            to_offset: only records before this upstream offset.
            keys: only records with one of these keys.
            headers: only records with all of these headers.
            where: only records for which this predicate is true; it is written as in a flow's rules (docs/rules.md).
            generation: the life of a topic that was created again; the newest without it.
            timestamps: original, shifted (they end at now and keep their distances) or now.
            through: a flow whose rules the records go through.
            rate: at most so much: `10MB/s` or `5000 records/s`.
            name: of the replay; without it, one that follows from what is asked.
            append: send into a topic that holds other records.
            accept_expiry: send although the target's retention deletes records at once.
            hold_retention: make the topic without an end of its records (retention.ms=-1).

        Raises:
            UsageError: the range is not in the relay, or something that is named does not exist.
            SafetyError: the name belongs to a replay of other records.
            ClusterError, StoreError: the target or the lake failed.

        Example:
            >>> mirror.replay(source="east", topic="orders", start="2026-11-22 03:30", into="central:orders.replayed")  # doctest: +SKIP
        """
        return self._services.replaying.replay(
            name=name,
            leave=Leave(append=append, accept_expiry=accept_expiry, hold_retention=hold_retention, rate=rate),
            source=source,
            topic=topic,
            into=into,
            start=start,
            end=end,
            partitions=partitions,
            from_offset=from_offset,
            to_offset=to_offset,
            keys=keys,
            headers=dict(headers),
            where=where,
            generation=generation,
            timestamps=timestamps,
            through=through,
        )

    def restore(
        self,
        *,
        source: str,
        topics: str | Iterable[str],
        at: str | datetime,
        into: str,
        name: str | None = None,
        rate: str = "",
        groups: bool = True,
        acls: bool = True,
        append: bool = False,
        accept_expiry: bool = False,
        hold_retention: bool = False,
    ) -> Restore:
        """Plan to restore topics of a source as they were at a time into a cluster; nothing is changed before `Restore.run`.

        Topics keep their names and get the partitions, settings and ACLs of then, the records that the source held then, from
        the relay alone, and groups stand where they stood, exactly (law A). What was restored is compared with the relay.

        Args:
            source: the alias of the cluster as it was.
            topics: names or regular expressions, as in a flow.
            at: the time: `2026-11-22 03:30` (UTC without a zone), or how long ago, like `-2h`.
            into: the alias of a cluster that has none of these topics, or empty ones.
            name: of the restore; without it, one that follows from what is asked.
            rate: at most so much: `10MB/s` or `5000 records/s`.
            groups: set consumer groups where they stood.
            acls: make the ACLs of then.
            append: send into topics that hold other records.
            accept_expiry: send although a topic's retention deletes records at once.
            hold_retention: make topics without an end of their records (retention.ms=-1).

        Raises:
            UsageError: nothing of the topics was known at that time, or something that is named does not exist.
            SafetyError: the name belongs to a restore of something else.
            ClusterError, StoreError: the target or the lake failed.

        Example:
            >>> mirror.restore(source="east", topics="orders, clicks.*", at="-2h", into="scratch").run().equal  # doctest: +SKIP
            True
        """
        return self._services.replaying.restore(
            source=source,
            topics=topics,
            at=at,
            into=into,
            name=name,
            leave=Leave(append=append, accept_expiry=accept_expiry, hold_retention=hold_retention, rate=rate),
            groups=groups,
            acls=acls,
        )

    # -- records --------------------------------------------------------------------------------------------------

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
        """Return the exact counterpart of an offset, or why there is none (see `Offsets`).

        With `reverse`, `topic` is the remote topic (its source's name is understood too) and `offset` a downstream one.
        """
        offsets = Offsets(self._services, flow)
        if reverse:
            return offsets.translate_back(topic, partition, offset)
        return offsets.translate(topic, partition, offset, generation=generation)

    def translate_table(self, flow: str, offsets: DataFrame, *, reverse: bool = False) -> DataFrame:
        """Return a table of offsets with the counterpart of each, or why it has none (see `Offsets.translate_table`)."""
        return self[flow].offsets.translate_table(offsets, reverse=reverse)

    def move_positions(self, flow: str, document: Any) -> MovedPositions:
        """Return where a reader that keeps its offsets outside of Kafka goes on (see `Offsets.move_positions`)."""
        return self[flow].offsets.move_positions(document)

    def move_spark_query(self, flow: str, checkpoint_location: str) -> MovedPositions:
        """Return the `startingOffsets` of a Spark query at the target (see `Offsets.move_spark_query`)."""
        return self[flow].offsets.move_spark_query(checkpoint_location)

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
            UsageError: the partition does not exist, or nothing of it was landed.
            TopicDenied: the settings say that the topic never leaves the cluster, not to a screen either.
            ClusterError: the cluster does not answer.

        Example:
            >>> mirror.browse("central", "east.orders", 0, offset=1139, count=5)  # doctest: +SKIP
        """
        settings, where = self._visible(cluster, topic), TopicPartition(topic, partition)
        seek = records.Seek(offset=offset, at=at, count=count, max_bytes=max_bytes)
        if relay or settings.is_lake:
            self._connections.create_tables()
            return records.browse_relay(self.lake, cluster, where, seek, generation=generation)
        return records.browse_cluster(self.admin(cluster), self._connections.reader_options(cluster), where, seek)

    def _visible(self, cluster: str, topic: str) -> ClusterConfig:
        settings = self.config.cluster(cluster)
        if NameMatcher(self.config.never_leave(cluster)).matches(topic):
            raise TopicDenied(
                f"the settings say that {topic} never leaves {cluster}",
                consequence="its records are not shown either",
                remedy=f"look at it on {cluster} itself, or take it out of clusters.{cluster}.never_leave",
                topic=topic,
            )
        return settings

    def side_by_side(
        self,
        flow: str,
        topic: str,
        partition: int = 0,
        *,
        anchor: Anchor = "source",
        offset: int | None = None,
        at: datetime | None = None,
        count: int = 20,
    ) -> SideBySide:
        """Return the same records on source, relay and target of a flow; a side that cannot be read is noted.

        Args:
            flow: the flow's name.
            topic: the source topic.
            partition: the partition on the anchor's side.
            anchor: the side that `offset` or `at` is meant on: source, relay or target.
            offset: first offset wanted there; the newest records without it and without `at`.
            at: or the first record at or after a time.
            count: the most records of each side, 1 to 1 000.

        Raises:
            UsageError, TopicDenied, ClusterError: as `browse`, of the anchor's side.
        """
        where = TopicPartition(topic, partition)
        return records.read_side_by_side(
            self.lake, self.config.flow(flow), where, browser=self, anchor=anchor, offset=offset, at=at, count=count
        )

    def passport(
        self, cluster: str, topic: str, partition: int, offset: int, *, generation: int | None = None
    ) -> Passport:
        """Return where one record stands everywhere, or why it does not, from its coordinates on any side (law E).

        The coordinates hold on `cluster`, a source or a target, where the topic may have another name. `generation` is the life
        of a source topic that was created again; None is the newest that holds the offset.

        Raises:
            UsageError: the settings have no such cluster.
            TopicDenied: the settings say that the topic never leaves the cluster.

        Example:
            >>> print(mirror.passport("central", "east.orders", 0, 1139))  # doctest: +SKIP
        """
        self._visible(cluster, topic)
        self._connections.create_tables()
        registry = records.Registry(self.lake, self._connections)
        return registry.passport(cluster, TopicPartition(topic, partition), offset, generation=generation)

    def conflicts(self, topic: str, *, within: str | timedelta = "5 minutes") -> DataFrame:
        """Return the records with one key that two regions wrote within a time, in pairs.

        `topic` is its name on the sources where its records were produced; `within` bounds the time between two timestamps.

        Raises:
            UsageError: fewer than two sources of the settings carry the topic, or `within` is not a time.

        Example:
            >>> mirror.conflicts("orders", within="5 minutes").show()  # doctest: +SKIP
        """
        return records.key_conflicts(self.lake, self.config.flows, topic, within=length_of(within))

    def sql(self, query: str, **values: Any) -> DataFrame:
        """Return the answer to a SQL query over the lake; tables have names, whatever their paths are.

        `records` are the records of all sources, with `source`, `key_text` and `value_text`; `relay_east` is the relay of
        `east`; side tables (`offset_map`, `gaps`, `positions`, …) have their own names. They are temporary views of the
        session, which hide a table of yours with the same name.

        A marker `:topic` in the query stands for the argument `topic` of `values`.

        Raises:
            UsageError: a table does not exist yet.

        Example:
            >>> mirror.sql("SELECT topic, count(*) FROM records GROUP BY topic").show()  # doctest: +SKIP
        """
        return records.run_sql(self.lake, self.config.sources, query, values)

    def json_view(
        self, topic: str, *, name: str | None = None, schema: str | None = None, newest: int = 10_000
    ) -> DataFrame:
        """Make a view of a source topic with the members of its JSON values, and return it: `value.amount`.

        Columns: `source`, `topic`, `generation`, `partition`, `offset`, `timestamp`, `timestamp_type`, `landed_at`, `key`
        (text), `value` (null for tombstones and what is not a JSON object) and `value_text`. It shows what is in the relays when it
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
        return records.json_view(self.lake, self.config.sources, topic, name=name, schema=schema, newest=newest)


def load(
    path: str | Path, *, spark: SparkSession | None = None, display: Callable[[], Display | None] = display_here
) -> Mirror:
    """Read a YAML file of settings and return its mirror; connects to nothing yet (`spark`, `display`: see `Mirror`).

    Raises:
        ConfigError: the file has faults; all of them are named.
    """
    return Mirror(load_config(path), spark=spark, display=display)


def from_settings(
    settings: Mapping[str, Any],
    *,
    spark: SparkSession | None = None,
    display: Callable[[], Display | None] = display_here,
) -> Mirror:
    """Return the mirror of settings given as a dictionary of the same shape as the file (see `load`).

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
    return Mirror(loads(json.dumps(settings)), spark=spark, display=display)
