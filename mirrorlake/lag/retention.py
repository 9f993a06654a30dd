"""How long the topic is kept that a hop reads from."""

from __future__ import annotations

from collections.abc import Callable

from mirrorlake.config.schema.mirror import MirrorConfig
from mirrorlake.lag.judge import HopPlace, Kept
from mirrorlake.topics.sources import TopicSource


def kept_by(
    config: MirrorConfig, *, source: Callable[[str], TopicSource], target: Callable[[str], TopicSource]
) -> Kept:
    """Return a function that looks up `retention.ms` of the topic that a hop reads from, and asks once per topic.

    None where age deletes nothing: in the relay, on a lake cluster, in a topic that is compacted only. What it returns raises
    `ClusterError` where the cluster does not answer.

    Args:
        config: the settings.
        source: returns a source by its alias.
        target: returns a target by its alias.
    """
    known: dict[tuple[str, str], int | None] = {}

    def kept(place: HopPlace) -> int | None:
        flow = config.flow(place.flow)
        at_source = place.hop == "landed" or place.cluster == place.source
        alias = flow.source if at_source else flow.target
        if place.hop == "republished" or config.cluster(alias).is_lake:
            return None
        topic = place.topic if at_source else flow.remote_topic(place.topic)
        if (alias, topic) not in known:
            known[alias, topic] = _retention_ms(source(alias) if at_source else target(alias), topic)
        return known[alias, topic]

    return kept


def _retention_ms(cluster: TopicSource, topic: str) -> int | None:
    if "delete" not in (cluster.config_value(topic, "cleanup.policy") or "delete"):
        return None
    return int(cluster.config_value(topic, "retention.ms") or -1)
