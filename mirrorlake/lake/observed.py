"""What was seen of a cluster's topics and ACLs, kept in the table `metadata`, one row a change."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

from mirrorlake.kafka.admin import TopicState
from mirrorlake.lake.lake import Lake
from mirrorlake.lake.relay_part import micros
from mirrorlake.lake.schema import METADATA
from mirrorlake.model.acls import Acl
from mirrorlake.model.history import Seen, state_of


def read_seen(lake: Lake, *, clusters: Iterable[str] | None = None, until: datetime | None = None) -> list[Seen]:
    """Read the recorded observations, oldest first; only of `clusters` and up to `until`, where given."""
    if not lake.exists(lake.meta_location(METADATA)):
        return []
    chosen: list[str] = []
    values: dict[str, Any] = {}
    if clusters is not None:
        chosen.append("array_contains(:clusters, cluster)")
        values["clusters"] = sorted(clusters)
    if until is not None:
        chosen.append("unix_micros(observed_at) <= :until")
        values["until"] = micros(until)
    where = f"WHERE {' AND '.join(chosen)}" if chosen else ""
    found = lake.ask(f"SELECT * FROM {{metadata}} {where} ORDER BY observed_at", **values)  # noqa: S608
    return [
        Seen(
            at=row.observed_at,
            cluster=row.cluster,
            role=row.role,
            topic=row.topic,
            generation=row.generation or 0,
            topic_id=row.topic_id or "",
            partitions=row.partitions or 0,
            configs=dict(row.configs or {}),
            acl=None if row.acl is None else Acl(**row.acl),
            present=row.present,
        )
        for row in found
    ]


def moment(micros: int) -> datetime:
    """Return microseconds since 1970 as a time in UTC."""
    return datetime.fromtimestamp(micros // 1_000_000, timezone.utc).replace(microsecond=micros % 1_000_000)


def unseen_lives(cluster: str, lost: Mapping[str, str], seen: Iterable[Seen], *, now: datetime) -> list[Seen]:
    """Return lost lives of remote topics that nobody had looked at, dated before everything that was seen of the topic.

    A topic that is created again between two looks shows its new life first; runs into the old one must not pass for it.

    Args:
        cluster: the target.
        lost: the ids of the lost lives by topic.
        seen: what was seen of the target's topics.
        now: the time.
    """
    by_topic: dict[str, list[Seen]] = {}
    for one in seen:
        by_topic.setdefault(one.topic or "", []).append(one)
    found = []
    for name, topic_id in sorted(lost.items()):
        mine = by_topic.get(name, [])
        if all(one.topic_id != topic_id for one in mine):
            at = min((one.at for one in mine), default=now) - timedelta(microseconds=1)
            found.append(Seen(at=at, cluster=cluster, role="target", topic=name, generation=1, topic_id=topic_id))
    return found


class Observations:
    """Record what is seen of a target's topics, and of any cluster's ACLs.

    The topics of a source are `SourceTopics`' business, which counts generations while landing.
    """

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
        known = state_of(s for s in read_seen(self._lake, clusters=[cluster]) if s.role == "target").topics
        changed = []
        for name in sorted({*scope, *states}):
            before, state = known.get((cluster, name)), states.get(name)
            if state is None:
                if before is not None and before.present:
                    changed.append(replace(before, at=self._now(), present=False))
                continue
            generation = 1 if before is None else before.generation + (before.topic_id != state.topic_id)
            seen = Seen(
                at=self._now(),
                cluster=cluster,
                role="target",
                topic=name,
                generation=generation,
                topic_id=state.topic_id,
                partitions=state.partitions,
                configs=dict(configs.get(name, {})),
            )
            if before is None or replace(before, at=seen.at) != seen:
                changed.append(seen)
        self._append(changed)

    def lives(
        self,
        cluster: str,
        lost: Mapping[str, str],
        states: Mapping[str, TopicState],
        configs: Mapping[str, Mapping[str, str]],
    ) -> None:
        """Record that remote topics were lost, with the ids they had, and what stands in their place now."""
        seen = [s for s in read_seen(self._lake, clusters=[cluster]) if s.role == "target"]
        self._append(unseen_lives(cluster, lost, seen, now=self._now()))
        self.topics(cluster, states, configs, scope=lost)

    def acls(self, cluster: str, acls: Iterable[Acl]) -> None:
        """Record ACLs of a cluster that appeared or disappeared."""
        known = state_of(read_seen(self._lake, clusters=[cluster])).acls.get(cluster, set())
        held = set(acls)
        at = self._now()
        self._append(
            [Seen(at=at, cluster=cluster, acl=acl) for acl in sorted(held - known)]
            + [Seen(at=at, cluster=cluster, acl=acl, present=False) for acl in sorted(known - held)]
        )

    def _append(self, seen: Iterable[Seen]) -> None:
        self._lake.append_rows(
            METADATA,
            [
                {
                    "cluster": s.cluster,
                    "kind": "acl",
                    "acl": s.acl.as_dict(),
                    "present": s.present,
                    "observed_at": s.at,
                }
                if s.acl is not None
                else {
                    "cluster": s.cluster,
                    "role": s.role,
                    "kind": "topic",
                    "topic": s.topic,
                    "generation": s.generation,
                    "topic_id": s.topic_id,
                    "partitions": s.partitions,
                    "configs": dict(s.configs),
                    "present": s.present,
                    "observed_at": s.at,
                }
                for s in seen
            ],
        )
