"""Where sessions, clients, settings and clocks are wired together; the facade asks here for what a step needs."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timezone
from functools import cached_property, partial
from typing import Any

from pyspark.sql import SparkSession

from mirrorlake.config.schema import FlowConfig, MirrorConfig
from mirrorlake.errors import UsageError
from mirrorlake.kafka.admin import ClusterAdmin
from mirrorlake.kafka.groups import Groups
from mirrorlake.kafka.ledger import LedgerReader
from mirrorlake.kafka.mm2 import Mm2Writer, mm2_writer, tell_checkpoints
from mirrorlake.kafka.options import librdkafka_options, spark_options
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.groups import GroupPlan
from mirrorlake.relay.audit import Audit
from mirrorlake.relay.lake import Lake
from mirrorlake.relay.session import prepare, session
from mirrorlake.rules.viewed import View
from mirrorlake.sandbox.jars import jars
from mirrorlake.sandbox.java import find_java
from mirrorlake.steps import groups as groups_step
from mirrorlake.steps import verify as verify_step
from mirrorlake.steps.keep import Keeper
from mirrorlake.steps.maps import KnownMaps, known_maps
from mirrorlake.steps.producer import LakeProducer
from mirrorlake.steps.publish import Publisher
from mirrorlake.steps.quarantine import Quarantine
from mirrorlake.streams.duties import Duty
from mirrorlake.streams.land import LandSettings
from mirrorlake.streams.mm2 import mm2_duties
from mirrorlake.streams.republish import RepublishSettings
from mirrorlake.streams.sources import LakeTopics, TopicSource


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


class Wiring:
    """Make what the steps of one mirror stand on, each once.

    Args:
        config: the settings.
        spark: the session to use; None takes the active one, or starts a local one when it is first needed.
        now: the clock.
    """

    def __init__(self, config: MirrorConfig, *, spark: SparkSession | None, now: Callable[[], datetime]) -> None:
        self._config = config
        self._spark = spark
        self._now = now
        self._admins: dict[str, ClusterAdmin] = {}
        self._keeping = threading.Lock()
        self._mm2_writers: dict[str, Mm2Writer] = {}
        self._publishing = threading.Lock()
        self._publishers: dict[str, Publisher] = {}

    @cached_property
    def spark(self) -> SparkSession:
        """The Spark session."""
        spark = self._spark or local_session()
        prepare(spark)
        return spark

    @cached_property
    def lake(self) -> Lake:
        """The lake."""
        return Lake(self.spark, self._config.lake)

    def admin(self, alias: str) -> ClusterAdmin:
        """Return the admin of a cluster.

        Raises:
            UsageError: it is a lake cluster.
        """
        if alias not in self._admins:
            if self._config.cluster(alias).is_lake:
                raise UsageError(
                    f"{alias} is a lake cluster: applications publish into its relay, and no broker stands behind it",
                    consequence="there is nothing to land, and nothing to take over",
                    remedy=f"mirrorlake publish --cluster {alias} --topic T FILE; its flows carry on what is published",
                )
            options = librdkafka_options(self._config.cluster(alias), role="admin")
            self._admins[alias] = ClusterAdmin(alias, options)
        return self._admins[alias]

    def clusters(self) -> Mapping[str, ClusterAdmin]:
        """Return the admin of every Kafka cluster that a flow touches."""
        touched = {*self._config.sources, *self._config.targets} - {*self._config.lake_clusters}
        return {alias: self.admin(alias) for alias in touched}

    def source(self, alias: str) -> TopicSource:
        """Return a source as steps ask it for its topics, Kafka's or a lake cluster's."""
        cluster = self._config.cluster(alias)
        return LakeTopics(alias, cluster, self.lake) if cluster.is_lake else self.admin(alias)

    def sources(self) -> Mapping[str, TopicSource]:
        """Return every source of a flow."""
        return {alias: self.source(alias) for alias in self._config.sources}

    def ledger(self, flow: FlowConfig) -> LedgerReader:
        """Return a reader of the flow's ledger; the caller closes it."""
        return LedgerReader(flow.target, flow.ledger_topic, self.reader_options(flow.target))

    def reader_options(self, alias: str) -> dict[str, str]:
        """Return librdkafka's options of a consumer of the cluster; none for a lake cluster, which nobody consumes."""
        cluster = self._config.cluster(alias)
        return {} if cluster.is_lake else librdkafka_options(cluster, role="consumer")

    def publisher(self, alias: str) -> Publisher:
        """Return what publishes into a lake cluster, one for all of this mirror's threads."""
        with self._publishing:
            if alias not in self._publishers:
                self._publishers[alias] = Publisher(alias, self._config.cluster(alias), self.lake, now=self._now)
            return self._publishers[alias]

    def producer(self, alias: str, config: Mapping[str, Any] | None) -> LakeProducer:
        """Return a new producer into a lake cluster."""
        return LakeProducer(
            self.publisher(alias),
            # One file a batch, which holds its partitions one after another.
            to_frame=lambda rows: self.spark.createDataFrame(rows).coalesce(1),
            config=config,
            now_ms=lambda: int(self._now().timestamp() * 1000),
        )

    def land_settings(self, alias: str) -> LandSettings:
        """Return what landing a source needs to know."""
        cluster = self._config.cluster(alias)
        flows = self._config.flows_from(alias)
        return LandSettings(
            alias=alias,
            subscribe_pattern=self._config.subscribe_pattern(alias),
            matches=lambda name: any(flow.selection.matches(name) for flow in flows),
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

    def republish_settings(self, flow: FlowConfig) -> RepublishSettings:
        """Return what republishing a flow needs to know, its duties included."""
        cluster = self._config.cluster(flow.target)
        return RepublishSettings(
            flow=flow,
            producer_options=librdkafka_options(cluster, role="producer", extra=flow.producer),
            reader_options=self.reader_options(flow.target),
            view=self.view(flow),
            duties=self._duties(flow),
        )

    def view(self, flow: FlowConfig) -> View | None:  # noqa: ARG002 - rules come with the next step
        """Return what a flow makes of its records on their way; None where they go out as they are."""
        return None

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
        audit = Audit(self.lake, now=self._now)
        return Quarantine(self.lake, self.admin(flow.target), self.republish_settings(flow), audit=audit)

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
        has_groups = not self._config.cluster(flow.source).is_lake
        if has_groups and flow.sync.groups:
            every_s = flow.sync.groups_interval.total_seconds()
            duties.append(Duty(name="groups", every_s=every_s, do=self.group_sync(flow).once))
        elif has_groups and flow.mm2.checkpoints:
            look, writer = self.group_sync(flow).plan, self._mm2_writer(flow)
            every_s = flow.sync.groups_interval.total_seconds()
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
            beside=self._config.flows,
            sources=self.sources(),
            admins=self.clusters(),
            lake=self.lake,
            now=self._now,
            lock=self._keeping,
        )

    def _mm2_writer(self, flow: FlowConfig) -> Mm2Writer:
        if flow.name not in self._mm2_writers:
            cluster, admin = self._config.cluster(flow.target), self.admin(flow.target)
            self._mm2_writers[flow.name] = mm2_writer(flow, cluster, admin, now=self._now)
        return self._mm2_writers[flow.name]

    def _group_sides(self, flow: FlowConfig) -> groups_step.GroupSides:
        return groups_step.GroupSides(
            source=Groups(flow.source, self.reader_options(flow.source)),
            target=Groups(flow.target, self.reader_options(flow.target)),
            source_admin=self.admin(flow.source),
            target_admin=self.admin(flow.target),
        )

    def group_sync(self, flow: FlowConfig, *, recorded: bool = False) -> groups_step.GroupSync:
        """Return what reads, plans and sets the groups of a flow; `recorded` takes their positions from the lake."""
        if self._config.cluster(flow.source).is_lake:
            target = Groups(flow.target, self.reader_options(flow.target))
            nobody = GroupPlan(flow.name, ())
            kept = groups_step.GroupRecords(self.lake, flow, self._now)
            return groups_step.GroupSync(look=dict, plan=lambda _: nobody, target=target, records=kept)
        sides = self._group_sides(flow)

        def look() -> groups_step.Positions:
            if recorded:
                return groups_step.recorded_positions(self.lake, flow)
            return groups_step.source_positions(self.lake, flow, groups=sides.source, admin=sides.source_admin)

        def plan(positions: groups_step.Positions) -> GroupPlan:
            maps = self.known_maps([flow])
            return groups_step.plan_groups(self.lake, flow, positions, maps=maps, sides=sides, recorded=recorded)

        records = groups_step.GroupRecords(self.lake, flow, self._now)
        tell = partial(tell_checkpoints, self._mm2_writer(flow)) if flow.mm2.checkpoints else len
        return groups_step.GroupSync(look=look, plan=plan, target=sides.target, records=records, tell=tell)

    def known_maps(self, flows: Iterable[FlowConfig]) -> KnownMaps:
        """Return the offset maps of the flows, their ledgers' newest runs included."""
        return known_maps(self.lake, flows, admins=self.clusters(), ledger=self.ledger)

    def source_side(self, alias: str) -> verify_step.Side | None:
        """Return a source as verify reads it; None for a lake cluster, whose relay is all there is."""
        return None if self._config.cluster(alias).is_lake else self.side(alias)

    def side(self, alias: str) -> verify_step.Side:
        """Return a cluster as verify reads it."""
        return verify_step.Side(admin=self.admin(alias), options=spark_options(self._config.cluster(alias)))
