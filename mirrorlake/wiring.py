"""Where sessions, clients, settings and clocks are wired together; the facade asks here for what a step needs."""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timezone
from functools import cached_property, partial

from pyspark.sql import SparkSession

from mirrorlake.config.schema import FlowConfig, MirrorConfig
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
from mirrorlake.steps.quarantine import Quarantine
from mirrorlake.streams.duties import Duty
from mirrorlake.streams.land import LandSettings
from mirrorlake.streams.mm2 import mm2_duties
from mirrorlake.streams.republish import RepublishSettings


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
        """Return the admin of a cluster."""
        if alias not in self._admins:
            options = librdkafka_options(self._config.cluster(alias), role="admin")
            self._admins[alias] = ClusterAdmin(alias, options)
        return self._admins[alias]

    def clusters(self) -> Mapping[str, ClusterAdmin]:
        """Return the admin of every cluster that a flow touches."""
        return {alias: self.admin(alias) for alias in {*self._config.sources, *self._config.targets}}

    def ledger(self, flow: FlowConfig) -> LedgerReader:
        """Return a reader of the flow's ledger; the caller closes it."""
        return LedgerReader(flow.target, flow.ledger_topic, self.reader_options(flow.target))

    def reader_options(self, alias: str) -> dict[str, str]:
        """Return librdkafka's options of a consumer of the cluster."""
        return librdkafka_options(self._config.cluster(alias), role="consumer")

    def producer_options(self, flow: FlowConfig) -> dict[str, str]:
        """Return librdkafka's options of the flow's producers."""
        return librdkafka_options(self._config.cluster(flow.target), role="producer", extra=flow.producer)

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
        return RepublishSettings(
            flow=flow,
            producer_options=self.producer_options(flow),
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
        every_s = flow.sync.groups_interval.total_seconds()
        if flow.sync.groups:
            duties.append(Duty(name="groups", every_s=every_s, do=self.group_sync(flow).once))
        elif flow.mm2.checkpoints:
            look, writer = self.group_sync(flow).plan, self._mm2_writer(flow)
            duties.append(Duty(name="mm2.checkpoints", every_s=every_s, do=lambda: tell_checkpoints(writer, look())))
        duties += mm2_duties(
            flow,
            self._mm2_writer(flow),
            source=self.admin(flow.source),
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

    def side(self, alias: str) -> verify_step.Side:
        """Return a cluster as verify reads it."""
        return verify_step.Side(admin=self.admin(alias), options=spark_options(self._config.cluster(alias)))
