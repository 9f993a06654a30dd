"""Try a cluster before a settings file names it: does it answer, and with which topics and groups."""

from __future__ import annotations

from dataclasses import dataclass

from mirrorlake.config.schema import ClusterConfig
from mirrorlake.errors import MirrorlakeError
from mirrorlake.kafka import ClusterAdmin, librdkafka_options
from mirrorlake.render import Displayable, Sheet, badge, plural


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Tried(Displayable):
    alias: str
    ok: bool
    brokers: int = 0
    cluster_id: str = ""
    topics: tuple[str, ...] = ()
    problem: str = ""
    remedy: str = ""

    def sheet(self) -> Sheet:
        if not self.ok:
            return Sheet(title=self.alias, badge=badge("failed"), parts=(self.problem, f"Next: {self.remedy}"))
        facts = (plural(self.brokers, "broker"), f"id {self.cluster_id}", plural(len(self.topics), "topic"))
        return Sheet(title=self.alias, badge=badge("answers", "good"), facts=facts)


def try_cluster(config: ClusterConfig, alias: str) -> Tried:
    """Connect to a cluster and return its answer; changes nothing, and never raises for a cluster's failure."""
    if config.is_lake:
        return Tried(alias=alias, ok=True)
    try:
        admin = ClusterAdmin(alias, librdkafka_options(config, role="admin"), probes=True)
        topics = tuple(admin.topic_names())
        return Tried(alias=alias, ok=True, brokers=admin.broker_count(), cluster_id=admin.cluster_id(), topics=topics)
    except MirrorlakeError as error:
        return Tried(alias=alias, ok=False, problem=error.cause, remedy=error.remedy)
