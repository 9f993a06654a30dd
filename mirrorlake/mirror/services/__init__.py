"""Where sessions, clients, settings and clocks are wired together; the facade asks here for what a step needs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from mirrorlake.config.schema.mirror import ClusterConfig, FlowConfig, MirrorConfig
from mirrorlake.config.schema.selection import NameMatcher
from mirrorlake.errors import TopicDenied
from mirrorlake.kafka.groups import Groups
from mirrorlake.kafka.options import librdkafka_options, spark_options
from mirrorlake.kafka.record_reader import RecordReader
from mirrorlake.lag.judge import Retention
from mirrorlake.lag.lag import Lag
from mirrorlake.lag.sampler import Sampler, SampleSites
from mirrorlake.mirror.services.connections import local_session, utc_now
from mirrorlake.mirror.services.streams import Streams
from mirrorlake.model.flow import TopicPartition
from mirrorlake.offsets.rebuild import RebuildPlan, make_rebuild_plan
from mirrorlake.records.browse import browse_cluster, browse_relay
from mirrorlake.records.passport import Registry
from mirrorlake.records.record import Page, Passport
from mirrorlake.verify.compare import Side

__all__ = ["Wiring", "local_session", "utc_now"]


class Wiring(Streams):
    """Make the parts that the steps of one mirror rest on, each once.

    Args:
        config: the settings.
        spark: the session to use; None takes the active one, or starts a local one when it is first needed.
        now: the clock.
        display: makes what shows the progress of one call.
    """

    def take_up(self, config: MirrorConfig) -> None:
        """Go on with other settings of the same lake; what belongs to unchanged clusters and flows is kept."""
        before, self.config, self.read_at = self.config, config, self.now()
        for alias in [alias for alias in self._admins if before.clusters[alias] != config.clusters.get(alias)]:
            del self._admins[alias]
            self._groups.pop(alias, None)
        self._mm2_writers.clear()

    def check_references(self, config: MirrorConfig) -> None:
        """Check that every reference of the settings can be resolved here.

        Raises:
            ConfigError: one cannot.
            UsageError: a function that a rule names does not exist.
        """
        other = Wiring(config, spark=None, now=self.now)
        for cluster in config.clusters.values():
            librdkafka_options(cluster, role="admin")
        for flow in config.flows:
            librdkafka_options(config.cluster(flow.target), role="producer", extra=flow.producer)
            other.view(flow)

    def sampler(self, flows: Sequence[FlowConfig] | None = None) -> Sampler:
        """Build a sampler of all positions of the mirror, or of these flows without any group.

        Keep one for as long as it samples, because it remembers.
        """
        return Sampler(
            self.lake, self.sample_sites if flows is None else partial(self._sites_of, flows, {}), now=self.now
        )

    def sample_sites(self) -> SampleSites:
        """Build the list of sites to sample from the settings as they are now."""
        admins = self.clusters()
        return self._sites_of(self.config.flows, {alias: self.groups(alias) for alias in admins})

    def _sites_of(self, flows: Sequence[FlowConfig], groups: Mapping[str, Groups]) -> SampleSites:
        sources = {flow.source for flow in flows}
        clusters = {*sources, *(flow.target for flow in flows)} - {*self.config.lake_clusters}
        return SampleSites(
            flows=flows,
            sampling=self.config.sampling,
            sources={alias: self.source(alias) for alias in sources},
            admins={alias: self.admin(alias) for alias in clusters},
            groups=groups,
            ledger=self.ledger,
        )

    def reader(self, alias: str) -> RecordReader:
        """Open a reader of a cluster's records."""
        return RecordReader(alias, self.reader_options(alias))

    def lag(self, flows: Sequence[FlowConfig]) -> Lag:
        """Build the lag report of these flows."""
        return Lag(
            self.lake,
            flows,
            look=lambda: self.sampler().look(),
            runs=lambda names: self.known_maps([flow for flow in flows if flow.name in names]).runs.drop("source"),
            readers=self.reader,
            now=self.now,
            retention_of=Retention(self.config, source=self.source, target=self.admin),
            paused=lambda: self.control().state(),
        )

    def rebuild_plan(self, *, like: str, target: str, recorded: bool) -> RebuildPlan:
        """Plan the rebuild that gives a target the order of another; `recorded` reads that order from the lake alone."""
        return make_rebuild_plan(self.lake, self, like=like, target=target, recorded=recorded)

    def source_side(self, alias: str) -> Side | None:
        """Return a source as verify reads it; None for a lake cluster, whose relay is all there is."""
        return None if self.config.cluster(alias).is_lake else self.side(alias)

    def side(self, alias: str) -> Side:
        """Return a cluster as verify reads it."""
        return Side(admin=self.admin(alias), options=spark_options(self.config.cluster(alias)))

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
        registry = Registry(self.lake, self)
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
