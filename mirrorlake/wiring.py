"""Where sessions, clients, settings and clocks are wired together; the facade asks here for what a step needs."""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timezone
from functools import cached_property, partial
from typing import Any

from pyspark.sql import SparkSession

from mirrorlake.config.plain import identity, plain
from mirrorlake.config.schema import ClusterConfig, FlowConfig, MirrorConfig
from mirrorlake.config.topics import NameMatcher
from mirrorlake.errors import ClusterError, TopicDenied, UsageError
from mirrorlake.kafka.admin import ClusterAdmin
from mirrorlake.kafka.groups import Groups
from mirrorlake.kafka.ledger import LedgerReader
from mirrorlake.kafka.mm2 import Mm2Writer, mm2_writer, tell_checkpoints
from mirrorlake.kafka.options import librdkafka_options, spark_options
from mirrorlake.kafka.records import RecordReader
from mirrorlake.model.browse import Page, Passport
from mirrorlake.model.control import NOTHING_ASKED, ControlState
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.groups import GroupPlan
from mirrorlake.model.ledger import LedgerRecord
from mirrorlake.progress.bars import display_here
from mirrorlake.progress.board import Board, Display
from mirrorlake.relay.audit import Audit
from mirrorlake.relay.control import Control
from mirrorlake.relay.lake import Lake
from mirrorlake.relay.session import prepare, session
from mirrorlake.rules.build import flow_view
from mirrorlake.rules.placement import Placer
from mirrorlake.rules.provenance import provenance_stage
from mirrorlake.rules.viewed import View
from mirrorlake.sandbox.jars import jars
from mirrorlake.sandbox.java import find_java
from mirrorlake.steps import groups as groups_step
from mirrorlake.steps import rebuild as rebuild_step
from mirrorlake.steps import verify as verify_step
from mirrorlake.steps.browse import browse_cluster, browse_relay
from mirrorlake.steps.keep import Keeper
from mirrorlake.steps.kept import kept_by
from mirrorlake.steps.lag import Lag
from mirrorlake.steps.maps import KnownMaps, known_maps, recorded_maps
from mirrorlake.steps.merged import Family, family
from mirrorlake.steps.passport import Registry
from mirrorlake.steps.producer import LakeProducer
from mirrorlake.steps.publish import Publisher
from mirrorlake.steps.quarantine import Quarantine
from mirrorlake.steps.rebuild import RebuildPlan
from mirrorlake.steps.resume import Ends
from mirrorlake.steps.sample import Sampler, SampleSites
from mirrorlake.streams.duties import Duty
from mirrorlake.streams.land import LandSettings
from mirrorlake.streams.mm2 import mm2_duties
from mirrorlake.streams.republish_settings import RepublishSettings
from mirrorlake.streams.sources import LakeTopics, TopicSource
from mirrorlake.tracking.make import make_tracker
from mirrorlake.tracking.tracker import Tracker


def utc_now() -> datetime:
    """Return the wall clock in UTC; the one clock of the package."""
    return datetime.now(timezone.utc)


def local_session(*, cores: str = "*") -> SparkSession:
    """Return the active Spark session, or start a local one with the pinned connector and Delta jars."""
    if SparkSession.getActiveSession() is not None:
        return session()
    # Spark's launcher looks nowhere else; the variable is read once, when the JVM starts.
    os.environ["JAVA_HOME"] = str(find_java().spark_java_home)
    # Workers run this very interpreter, with the packages that are installed beside it.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    return session(jars=jars("spark"), cores=cores)


def _unheard(_: Sequence[LedgerRecord]) -> None:
    """Stand for a listener where there is none."""


class Wiring:
    """Make what the steps of one mirror stand on, each once.

    Args:
        config: the settings.
        spark: the session to use; None takes the active one, or starts a local one when it is first needed.
        now: the clock.
        display: makes what shows the progress of one call.
    """

    def __init__(
        self,
        config: MirrorConfig,
        *,
        spark: SparkSession | None,
        now: Callable[[], datetime],
        display: Callable[[], Display | None] = display_here,
    ) -> None:
        self.config = config
        self.read_at = now()
        self.now = now
        self._display = display
        self._spark = spark
        self._admins: dict[str, ClusterAdmin] = {}
        self._groups: dict[str, Groups] = {}
        self._keeping = threading.Lock()
        self._mm2_writers: dict[str, Mm2Writer] = {}
        self._publishing = threading.Lock()
        self._publishers: dict[str, Publisher] = {}
        self._made_for: frozenset[str] = frozenset()
        self.forget_listener()

    @cached_property
    def spark(self) -> SparkSession:
        """The Spark session."""
        spark = self._spark or local_session()
        prepare(spark)
        return spark

    @cached_property
    def lake(self) -> Lake:
        """The lake."""
        return Lake(self.spark, self.config.lake)

    def forget_listener(self) -> None:
        """Tell nobody any more what targets confirm."""
        self.on_commit: Callable[[Sequence[LedgerRecord]], None] = _unheard

    def watching(self) -> Board:
        """Return what hears how far one call's work is; a context manager of the thread that waits for it."""
        return Board(self._display(), clock=time.monotonic)

    @cached_property
    def tracker(self) -> Tracker:
        """What keeps runs of verifications, where the settings and this machine allow it."""
        return make_tracker(self.config)

    def control(self) -> Control:
        """Return a reader and writer of what a person wants of the mirror."""
        return Control(self.lake, now=self.now)

    def take_up(self, config: MirrorConfig) -> None:
        """Go on with other settings of the same lake; what belongs to clusters and flows that are as they were is kept."""
        before, self.config, self.read_at = self.config, config, self.now()
        for alias in [alias for alias in self._admins if before.clusters[alias] != config.clusters.get(alias)]:
            del self._admins[alias]
            self._groups.pop(alias, None)
        self._mm2_writers.clear()

    def check_references(self, config: MirrorConfig) -> None:
        """Return where every reference of the settings can be resolved here.

        Raises:
            ConfigError: one cannot.
            UsageError: a function that a rule names is not there.
        """
        other = Wiring(config, spark=None, now=self.now)
        for cluster in config.clusters.values():
            librdkafka_options(cluster, role="admin")
        for flow in config.flows:
            librdkafka_options(config.cluster(flow.target), role="producer", extra=flow.producer)
            other.view(flow)

    def admin(self, alias: str) -> ClusterAdmin:
        """Return the admin of a cluster.

        Raises:
            UsageError: it is a lake cluster.
        """
        if alias not in self._admins:
            if self.config.cluster(alias).is_lake:
                raise UsageError(
                    f"{alias} is a lake cluster: applications publish into its relay, and no broker stands behind it",
                    consequence="there is nothing to land, and nothing to take over",
                    remedy=f"mirrorlake publish --cluster {alias} --topic T FILE; its flows carry on what is published",
                )
            options = librdkafka_options(self.config.cluster(alias), role="admin")
            self._admins[alias] = ClusterAdmin(alias, options)
        return self._admins[alias]

    def clusters(self) -> Mapping[str, ClusterAdmin]:
        """Return the admin of every Kafka cluster that a flow touches."""
        touched = {*self.config.sources, *self.config.targets} - {*self.config.lake_clusters}
        return {alias: self.admin(alias) for alias in touched}

    def source(self, alias: str) -> TopicSource:
        """Return a source as steps ask it for its topics, Kafka's or a lake cluster's."""
        cluster = self.config.cluster(alias)
        return LakeTopics(alias, cluster, self.lake) if cluster.is_lake else self.admin(alias)

    def sources(self) -> Mapping[str, TopicSource]:
        """Return every source of a flow."""
        return {alias: self.source(alias) for alias in self.config.sources}

    def ledger(self, flow: FlowConfig) -> LedgerReader:
        """Return a reader of the flow's ledger; the caller closes it."""
        return LedgerReader(flow.target, flow.ledger_topic, self.reader_options(flow.target))

    def reader_options(self, alias: str) -> dict[str, str]:
        """Return librdkafka's options of a consumer of the cluster; none for a lake cluster, which nobody consumes."""
        cluster = self.config.cluster(alias)
        return {} if cluster.is_lake else librdkafka_options(cluster, role="consumer")

    def publisher(self, alias: str) -> Publisher:
        """Return what publishes into a lake cluster, one for all of this mirror's threads."""
        with self._publishing:
            if alias not in self._publishers:
                self._publishers[alias] = Publisher(alias, self.config.cluster(alias), self.lake, now=self.now)
            return self._publishers[alias]

    def producer(self, alias: str, config: Mapping[str, Any] | None) -> LakeProducer:
        """Return a new producer into a lake cluster."""
        return LakeProducer(
            self.publisher(alias),
            # One file a batch, which holds its partitions one after another.
            to_frame=lambda rows: self.spark.createDataFrame(rows).coalesce(1),
            config=config,
            now_ms=lambda: int(self.now().timestamp() * 1000),
        )

    def producer_options(self, flow: FlowConfig) -> dict[str, str]:
        """Return librdkafka's options of the flow's producers."""
        return librdkafka_options(self.config.cluster(flow.target), role="producer", extra=flow.producer)

    def land_settings(self, alias: str) -> LandSettings:
        """Return what landing a source needs to know."""
        cluster = self.config.cluster(alias)
        flows = self.config.flows_from(alias)
        return LandSettings(
            alias=alias,
            subscribe_pattern=self.config.subscribe_pattern(alias),
            matches=lambda name: any(flow.selection.matches(name) and not flow.denies(name) for flow in flows),
            never_leave=self.config.never_leave(alias).java_regex,
            kafka_options=spark_options(cluster),
            on_gap=cluster.land.on_gap,
            max_records_per_batch=cluster.land.max_records_per_batch,
            trigger=f"{int(cluster.land.trigger.total_seconds() * 1000)} milliseconds",
            start=self._start_of(alias, flows),
        )

    def _start_of(
        self, alias: str, flows: Iterable[FlowConfig]
    ) -> Callable[[list[TopicPartition]], Mapping[TopicPartition, int]] | None:
        """Return where landing begins: as early as the earliest of the source's flows wants it."""
        starts = [flow.start for flow in flows]
        if any(start.kind == "earliest" for start in starts):
            return None
        times = [start.timestamp_ms for start in starts if start.timestamp_ms is not None]
        if times:
            return lambda partitions: self.admin(alias).at_time(partitions, min(times))
        return lambda partitions: self.admin(alias).latest(partitions)

    def landing_identity(self, alias: str) -> str:
        """Return the fingerprint of all settings that landing a source depends on."""
        chosen = {"topics", "exclude_topics", "policy", "source", "target", "start"}
        flows = [flow.model_dump(mode="json", include=chosen) for flow in self.config.flows_from(alias)]
        return identity([plain(self.config)["clusters"][alias], sorted(flows, key=str)])

    def flow_identity(self, flow: FlowConfig, state: ControlState) -> str:
        """Return the fingerprint of all settings and pauses that republishing a flow depends on."""
        content = plain(self.config)
        ends = [
            {key: value for key, value in content["clusters"][alias].items() if key != "land"}
            for alias in (flow.source, flow.target)
        ]
        # Flows that meet on one target share ACLs: none may judge by an older list of the others.
        beside = [content["flows"][other.name] for other in self.config.flows_to(flow.target) if flow.sync.acls]
        paused = [sorted(state.topics_of(flow.name)), state.of_cluster(flow.source) is not None]
        view = self.view(flow)
        version = view.version if view is not None else ""
        return identity([content["flows"][flow.name], self._selection(flow), version, ends, beside, paused])

    def _selection(self, flow: FlowConfig) -> str:
        """Return the fingerprint of what decides which topics a flow carries."""
        chosen = {"topics", "exclude_topics", "policy", "source", "target"}
        # Whatever any cluster says of its topics counts, how it is reached does not.
        said = {
            alias: cluster.model_dump(
                mode="json", exclude={"bootstrap_servers", "client", "land"}, exclude_defaults=True
            )
            for alias, cluster in self.config.clusters.items()
        }
        separators = sorted({each.policy.separator for each in self.config.flows})
        words = {alias: content for alias, content in said.items() if content}
        return identity([flow.model_dump(mode="json", include=chosen), words, separators])

    def republish_settings(self, flow: FlowConfig, state: ControlState = NOTHING_ASKED) -> RepublishSettings:
        """Return what republishing a flow needs to know, its duties included.

        From a source that is paused nothing is read: what the relay holds is sent, the duties rest.
        """
        settings = self.sending_settings(flow)
        flow = settings.flow
        return replace(
            settings,
            duties=() if state.of_cluster(flow.source) else self._duties(flow),
            selection=self._selection(flow),
            paused=frozenset(state.topics_of(flow.name)),
        )

    def sending_settings(self, flow: FlowConfig) -> RepublishSettings:
        """Return what sending records of a flow needs to know; no clients are made, as duties need them."""
        # A flow that was made for the moment, for a replay or a drill, is held to the denials of the file, too.
        flow = self.config.bind(flow)
        return RepublishSettings(
            flow=flow,
            producer_options=self.producer_options(flow),
            reader_options=self.reader_options(flow.target),
            view=self.view(flow),
            beside=self.config.flows,
            on_commit=self.on_commit,
        )

    def view(self, flow: FlowConfig) -> View | None:
        """Return what a flow makes of its records on their way; None where they go out as they are.

        Raises:
            ConfigError: a key of a rule cannot be resolved.
            UsageError: the function of a rule is not there.
        """
        loops = provenance_stage(flow, self.config.flows)
        placing = (Placer(flow.placement),) if flow.placement.kind != "keep" else ()
        return flow_view(flow, before=(loops,) if loops is not None else (), stages=placing)

    def views(self, flows: Iterable[FlowConfig]) -> dict[str, View]:
        """Return the view of each flow that has one, under its name and under that of its re-drive."""
        found: dict[str, View] = {}
        for flow in flows:
            view = self.view(flow)
            if view is not None:
                found |= {flow.name: view, flow.redrive_name: view}
        return found

    def quarantine(self, flow: FlowConfig) -> Quarantine:
        """Return the quarantined records of a flow, and what sends them again."""
        audit = Audit(self.lake, now=self.now)
        return Quarantine(
            self.lake, self.admin(flow.target), self.sending_settings(flow), audit=audit, watching=self.watching
        )

    def with_redrives(self, flows: Iterable[FlowConfig]) -> list[FlowConfig]:
        """Return the flows, and beside each that sent quarantined records again the flow that did it."""
        flows = list(flows)
        found = list(flows)
        for target in {flow.target for flow in flows}:
            again = {flow.redrive().ledger_topic: flow.redrive() for flow in flows if flow.target == target}
            found += [again[topic] for topic in sorted(self.admin(target).describe(again))]
        return found

    def _duties(self, flow: FlowConfig) -> list[Duty]:
        duties: list[Duty] = []
        # Nobody consumes from a lake cluster.
        has_groups = not self.config.cluster(flow.source).is_lake
        every_s = flow.sync.groups_interval.total_seconds()
        if has_groups and flow.sync.groups:
            duties.append(Duty(name="groups", every_s=every_s, do=self.group_sync(flow).once))
        elif has_groups and flow.mm2.checkpoints:
            look, writer = self.group_sync(flow).plan, self._mm2_writer(flow)
            duties.append(Duty(name="mm2.checkpoints", every_s=every_s, do=lambda: tell_checkpoints(writer, look())))
        duties += mm2_duties(
            flow,
            self._mm2_writer(flow),
            source=self.source(flow.source),
            target=self.admin(flow.target),
            source_options=self.reader_options(flow.source),
            target_options=self.reader_options(flow.target),
        )
        return [*duties, *self.keeper(flow).duties()]

    def keeper(self, flow: FlowConfig) -> Keeper:
        """Return what keeps the topics and ACLs of a flow in step."""
        return Keeper(
            flow,
            beside=self.config.flows,
            sources=self.sources(),
            admins=self.clusters(),
            lake=self.lake,
            now=self.now,
            lock=self._keeping,
        )

    def _mm2_writer(self, flow: FlowConfig) -> Mm2Writer:
        if flow.name not in self._mm2_writers:
            cluster, admin = self.config.cluster(flow.target), self.admin(flow.target)
            self._mm2_writers[flow.name] = mm2_writer(flow, cluster, admin, now=self.now)
        return self._mm2_writers[flow.name]

    def sampler(self) -> Sampler:
        """Return what looks at all positions of the mirror; one for as long as it looks, because it remembers."""
        return Sampler(self.lake, self.sample_sites, now=self.now)

    def sample_sites(self) -> SampleSites:
        """Return what there is to look at by the settings as they are now."""
        admins = self.clusters()
        for alias in admins.keys() - self._groups.keys():
            self._groups[alias] = Groups(alias, self.reader_options(alias))
        return SampleSites(
            flows=self.config.flows,
            sampling=self.config.sampling,
            sources=self.sources(),
            admins=admins,
            groups={alias: self._groups[alias] for alias in admins},
            ledger=self.ledger,
        )

    def lag(self, flows: Sequence[FlowConfig]) -> Lag:
        """Return what tells the lag of these flows."""
        return Lag(
            self.lake,
            flows,
            look=lambda: self.sampler().look(),
            runs=lambda names: self.known_maps([flow for flow in flows if flow.name in names]).runs.drop("source"),
            reader=lambda alias: RecordReader(alias, self.reader_options(alias)),
            now=self.now,
            kept=kept_by(self.config, source=self.source, target=self.admin),
            paused=lambda: self.control().state(),
        )

    def _group_sides(self, flow: FlowConfig) -> groups_step.GroupSides:
        return groups_step.GroupSides(
            source=Groups(flow.source, self.reader_options(flow.source)),
            target=Groups(flow.target, self.reader_options(flow.target)),
            source_admin=self.admin(flow.source),
            target_admin=self.admin(flow.target),
        )

    def group_sync(self, flow: FlowConfig, *, recorded: bool = False) -> groups_step.GroupSync:
        """Return what reads, plans and sets the groups of a flow; `recorded` takes their positions from the lake."""
        if self.config.cluster(flow.source).is_lake:
            target = Groups(flow.target, self.reader_options(flow.target))
            nobody = GroupPlan(flow.name, ())
            kept = groups_step.GroupRecords(self.lake, flow, self.now)
            return groups_step.GroupSync(flow=flow.name, look=dict, plan=lambda _: nobody, target=target, records=kept)
        sides = self._group_sides(flow)
        lost = {flow.source} if recorded else set[str]()

        def positions_of(each: FlowConfig) -> groups_step.Positions:
            # The groups of this flow, wherever they read: another flow's own selection may leave some of them out.
            chosen = flow.group_selection
            if self.config.cluster(each.source).is_lake:
                return {}
            if each.source in lost:
                return groups_step.recorded_positions(self.lake, each, selection=chosen)
            groups = Groups(each.source, self.reader_options(each.source))
            try:
                admin = self.admin(each.source)
                return groups_step.source_positions(self.lake, each, groups=groups, admin=admin, selection=chosen)
            except ClusterError:
                if each.name == flow.name:
                    raise
                # What a group has read is only ever more: the last known position is never ahead.
                return groups_step.recorded_positions(self.lake, each, selection=chosen)

        def look() -> groups_step.FamilyPositions:
            mine = positions_of(flow)
            if not mine:
                return {}
            # A target with one flow has no merged topics: a pass then costs no look at the metadata.
            beside = self.family(flow).flows[1:] if len(self.config.flows_to(flow.target)) > 1 else ()
            return {flow.name: mine} | {each.name: positions_of(each) for each in beside}

        def plan(positions: groups_step.FamilyPositions) -> GroupPlan:
            kin = self.family(flow)
            maps = partial(self.known_maps, kin.flows)
            ends = self.ends(kin, lost=lost)
            return groups_step.plan_groups(self.lake, kin, positions, maps=maps, sides=sides, ends=ends)

        records = groups_step.GroupRecords(self.lake, flow, self.now)
        tell = partial(tell_checkpoints, self._mm2_writer(flow)) if flow.mm2.checkpoints else len
        return groups_step.GroupSync(
            flow=flow.name, look=look, plan=plan, target=sides.target, records=records, tell=tell
        )

    def rebuild_plan(self, *, like: str, target: str, recorded: bool) -> RebuildPlan:
        """Return what gives a target the order of another; `recorded` takes that from the lake alone."""
        flows = rebuild_step.counterparts(self.config.flows, like=like, target=target)
        references = list(flows.values())
        self.lake.create_all({flow.source for flow in references})
        if recorded:
            order = rebuild_step.RecordedOrder(maps=recorded_maps(self.lake, references), known_to={})
        else:
            maps = partial(self.known_maps, references)
            order = rebuild_step.recorded_order(
                self.lake, references, beside=self.config.flows, target=self.admin(like), maps=maps
            )
        sent = self.known_maps([self.config.flow(name) for name in flows]).positions
        return rebuild_step.make_rebuild_plan(flows, order, sent, like=like, target=target)

    def family(self, flow: FlowConfig) -> Family:
        """Return a flow and those that share remote topics with it."""
        return family(self.lake, flow, self.config.flows)

    def ends(self, kin: Family, *, lost: Collection[str] = ()) -> Ends:
        """Return the target of a family of flows and its sources, without those that are lost."""
        sources = {flow.source: self.source(flow.source) for flow in kin.flows if flow.source not in lost}
        return Ends(sources=sources, target=self.admin(kin.flows[0].target))

    def known_maps(self, flows: Iterable[FlowConfig]) -> KnownMaps:
        """Return the offset maps of the flows, their ledgers' newest runs included."""
        return known_maps(self.lake, flows, admins=self.clusters(), ledger=self.ledger)

    def source_side(self, alias: str) -> verify_step.Side | None:
        """Return a source as verify reads it; None for a lake cluster, whose relay is all there is."""
        return None if self.config.cluster(alias).is_lake else self.side(alias)

    def side(self, alias: str) -> verify_step.Side:
        """Return a cluster as verify reads it."""
        return verify_step.Side(admin=self.admin(alias), options=spark_options(self.config.cluster(alias)))

    def browse(self, alias: str, where: TopicPartition, *, relay: bool, generation: int | None, **seek: Any) -> Page:
        """Return records of a partition as a cluster or its relay holds them."""
        cluster = self._may_be_seen(alias, where.topic)
        if relay or cluster.is_lake:
            self._tables_made()
            return browse_relay(self.lake, alias, where, generation=generation, **seek)
        return browse_cluster(self.admin(alias), self.reader_options(alias), where, **seek)

    def passport(self, alias: str, where: TopicPartition, offset: int, *, generation: int | None) -> Passport:
        """Return the passport of a record."""
        self._may_be_seen(alias, where.topic)
        self._tables_made()
        registry = Registry(lake=self.lake, flows=self.config.flows, maps=self.known_maps)
        return registry.passport(alias, where, offset, generation=generation)

    def _may_be_seen(self, alias: str, topic: str) -> ClusterConfig:
        cluster = self.config.cluster(alias)
        if NameMatcher(self.config.never_leave(alias)).matches(topic):
            raise TopicDenied(
                f"the settings say that {topic} never leaves {alias}",
                consequence="its records are not shown either",
                remedy=f"look at it on {alias} itself, or take it out of clusters.{alias}.never_leave",
                topic=topic,
            )
        return cluster

    def _tables_made(self) -> None:
        # A dozen looks at the lake, which a person who turns pages would wait for each time.
        sources = frozenset(self.config.sources)
        if sources != self._made_for:
            self.lake.create_all(sources)
            self._made_for = sources
