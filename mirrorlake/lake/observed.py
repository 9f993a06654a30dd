"""Record in the table `metadata` what is seen of targets' topics and of any cluster's ACLs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime

from mirrorlake.kafka import TopicState
from mirrorlake.lake.lake import Lake
from mirrorlake.lake.metadata import KnownTopic, acl_row, newest_acls, newest_topics, read_seen, topic_row
from mirrorlake.lake.schema import METADATA
from mirrorlake.lake.times import TICK
from mirrorlake.model.acls import Acl
from mirrorlake.model.history import Observed


def unseen_lives(
    lost: Mapping[str, str], seen: Iterable[Observed], *, now: datetime
) -> list[tuple[KnownTopic, datetime]]:
    """Return lost lives of remote topics that nobody had looked at, dated before everything that was seen of the topic.

    A topic that is created again between two looks shows its new life first; runs into the old one must not pass for it.
    `lost` are the ids of the lost lives by topic.
    """
    by_topic: dict[str, list[Observed]] = {}
    for one in seen:
        by_topic.setdefault(one.topic or "", []).append(one)
    found = []
    for name, topic_id in sorted(lost.items()):
        mine = by_topic.get(name, [])
        if all(one.topic_id != topic_id for one in mine):
            at = min((one.at for one in mine), default=now) - TICK
            found.append((KnownTopic(name=name, generation=1, topic_id=topic_id), at))
    return found


class Observations:
    """Record changes of a target's topics, and of any cluster's ACLs; a source's topics are the business of `SourceTopics`."""

    def __init__(self, lake: Lake, *, now: Callable[[], datetime]) -> None:
        self._lake = lake
        self._now = now

    def topics(
        self,
        cluster: str,
        states: Mapping[str, TopicState],
        configs: Mapping[str, Mapping[str, str]],
        *,
        scope: Iterable[str],
    ) -> None:
        """Record what changed among a target's topics; a topic of `scope` that has no state is gone."""
        known, changed = newest_topics(self._lake, cluster, "target"), []
        for name in sorted({*scope, *states}):
            before, state = known.get(name), states.get(name)
            if state is not None:
                generation = 1 if before is None else before.generation + (before.topic_id != state.topic_id)
                after = KnownTopic(
                    name=name,
                    generation=generation,
                    topic_id=state.topic_id,
                    partitions=state.partitions,
                    configs=dict(configs.get(name, {})),
                )
            elif before is not None:
                after = replace(before, present=False)
            else:
                continue
            if after != before:
                changed.append(after)
        at = self._now()
        self._lake.append_rows(METADATA, [topic_row(cluster, "target", topic, at) for topic in changed])

    def lives(
        self,
        cluster: str,
        lost: Mapping[str, str],
        states: Mapping[str, TopicState],
        configs: Mapping[str, Mapping[str, str]],
    ) -> None:
        """Record that remote topics were lost, with the ids they had, and what stands in their place now."""
        seen = [one for one in read_seen(self._lake, clusters=[cluster]) if one.role == "target"]
        unseen = unseen_lives(lost, seen, now=self._now())
        self._lake.append_rows(METADATA, [topic_row(cluster, "target", topic, at) for topic, at in unseen])
        self.topics(cluster, states, configs, scope=lost)

    def acls(self, cluster: str, acls: Iterable[Acl]) -> None:
        """Record ACLs of a cluster that appeared or disappeared."""
        known, held, at = newest_acls(self._lake, cluster), set(acls), self._now()
        changed = [*sorted(held - known), *sorted(known - held)]
        self._lake.append_rows(METADATA, [acl_row(cluster, acl, at, present=acl in held) for acl in changed])
