"""Write and read the table `metadata`: topics and ACLs as they were observed, one row a change.

A topic that is deleted and recreated gets a new topic id (KIP-516). Its offsets start again at 0, so each topic id is a
`generation` of its own. Spark's Kafka source compares offsets only and cannot detect this.

A truncated partition has the same topic id: its offsets from the truncation on are of a new generation, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Any, Literal, Protocol

from mirrorlake.config.schema import FlowConfig
from mirrorlake.kafka import TopicState
from mirrorlake.lake.lake import Lake
from mirrorlake.lake.rows import Row
from mirrorlake.lake.schema import METADATA
from mirrorlake.lake.times import TICK
from mirrorlake.model.acls import Acl
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.gaps import LogTruncation

Role = Literal["source", "target"]

_NEWEST_TOPICS = """
    SELECT * FROM (
        SELECT *, row_number() OVER (PARTITION BY topic ORDER BY generation DESC, observed_at DESC) AS rank
        FROM {metadata} WHERE cluster = :cluster AND role = :role AND kind = 'topic'
    ) WHERE rank = 1
"""
_INCARNATIONS = """
    SELECT topic, topic_id, observed_at FROM {metadata} WHERE cluster = :cluster AND role = 'target' AND kind = 'topic'
"""
_NEWEST_ACLS = """
    SELECT acl FROM (
        SELECT acl, present, row_number() OVER (PARTITION BY acl ORDER BY observed_at DESC) AS rank
        FROM {metadata} WHERE cluster = :cluster AND kind = 'acl'
    ) WHERE rank = 1 AND present
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTopic:
    """The newest recorded generation of a topic.

    `generation` is of partitions that were never truncated, 0 before the first. `leader_epochs` are those at which all landed
    records were still there. `present` is whether the topic existed at the last observation.
    """

    name: str
    generation: int = 0
    topic_id: str = ""
    partitions: int = 0
    configs: Mapping[str, str] = field(default_factory=dict)
    truncations: tuple[LogTruncation, ...] = ()
    leader_epochs: Mapping[int, int] = field(default_factory=dict)
    present: bool = True

    @property
    def inherits_cleanup_policy(self) -> bool:
        """Whether the topic sets no `cleanup.policy` itself, so that the brokers' applies."""
        return "cleanup.policy" not in self.configs

    def may_compact(self, default_cleanup: str = "") -> bool:
        """Return whether the log cleaner may remove its records; `default_cleanup` is the policy of topics that set none."""
        return "compact" in self.configs.get("cleanup.policy", default_cleanup)

    def generation_of(self, partition: int) -> int:
        """Return the newest generation of a partition's offsets."""
        return max((cut.generation for cut in self.truncations if cut.partition == partition), default=self.generation)

    def generation_at(self, partition: int, offset: int) -> int:
        """Return the present generation of a source offset: the newest that begins at or before it."""
        lives = (c.generation for c in self.truncations if c.partition == partition and c.first_offset <= offset)
        return max(lives, default=self.generation)

    def sources(self) -> list[SourcePartition]:
        """List its partitions in their newest generations."""
        return [SourcePartition(self.name, self.generation_of(number), number) for number in range(self.partitions)]

    def starts_at(self, partition: int) -> int:
        """Return the first offset of a partition's newest generation."""
        newest = self.generation_of(partition)
        return next((c.first_offset for c in self.truncations if (c.partition, c.generation) == (partition, newest)), 0)


def newest_topics(lake: Lake, cluster: str, role: Role, *, missing_ok: bool = False) -> dict[str, KnownTopic]:
    """Return the last state of every topic observed on a cluster; with `missing_ok`, {} before the lake exists."""
    return {
        row.topic: KnownTopic(
            name=row.topic,
            generation=row.generation,
            topic_id=row.topic_id,
            partitions=row.partitions,
            configs=dict(row.configs or {}),
            truncations=tuple(LogTruncation(**cut) for cut in row.cuts or ()),
            leader_epochs=dict(row.leader_epochs or {}),
            present=row.present,
        )
        for row in lake.query(_NEWEST_TOPICS, missing_ok=missing_ok, cache=True, cluster=cluster, role=role)
    }


def source_at(known: Mapping[str, KnownTopic], tp: TopicPartition, offset: int) -> SourcePartition:
    """Return a partition in its present generation at an offset; in the first if its topic was never observed."""
    generation = known[tp.topic].generation_at(tp.partition, offset) if tp.topic in known else 1
    return SourcePartition(tp.topic, generation, tp.partition)


def newest_acls(lake: Lake, cluster: str) -> set[Acl]:
    return {Acl(**row.acl) for row in lake.query(_NEWEST_ACLS, cluster=cluster)}


def topic_row(cluster: str, role: Role, topic: KnownTopic, at: datetime) -> Row:
    return {
        "cluster": cluster,
        "role": role,
        "kind": "topic",
        "topic": topic.name,
        "generation": topic.generation,
        "topic_id": topic.topic_id,
        "partitions": topic.partitions,
        "configs": topic.configs,
        "present": topic.present,
        "observed_at": at,
        "cuts": [asdict(cut) for cut in topic.truncations] or None,
        "leader_epochs": topic.leader_epochs or None,
    }


def acl_row(cluster: str, acl: Acl, at: datetime, *, present: bool) -> Row:
    return {"cluster": cluster, "kind": "acl", "acl": acl.as_dict(), "present": present, "observed_at": at}


def list_carried_topics(lake: Lake, flow: FlowConfig) -> list[str]:
    """List the source topics ever observed that a flow carries; [] before the lake exists."""
    return [name for name in newest_topics(lake, flow.source, "source", missing_ok=True) if flow.carries(name)]


class HasConfigs(Protocol):
    """A source of the topics' own settings: a cluster's admin, or a lake cluster's topics."""

    def configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]: ...


class SourceTopics:
    """The recorded topics of one source cluster; every change is recorded before it takes effect.

    `default_cleanup` is the brokers' policy for topics that set none themselves, as of the lander's last start.
    """

    def __init__(self, lake: Lake, alias: str) -> None:
        self._lake = lake
        self._alias = alias
        self.known: dict[str, KnownTopic] = {}
        self.default_cleanup = ""

    def load(self) -> dict[str, KnownTopic]:
        """Read the last state of every topic from the lake."""
        self.known = newest_topics(self._lake, self._alias, "source")
        return self.known

    def recreated(self, states: Mapping[str, TopicState]) -> list[str]:
        """List the topics that were deleted and recreated since they were recorded."""
        return [
            name for name, state in states.items() if name in self.known and self.known[name].topic_id != state.topic_id
        ]

    def observe(
        self,
        states: Mapping[str, TopicState],
        admin: HasConfigs,
        *,
        at: datetime,
        read_leader_epochs: Callable[[Iterable[TopicPartition]], Mapping[TopicPartition, int]] = lambda _: {},
    ) -> None:
        """Record changed topics; a new or `recreated` topic begins a generation.

        `read_leader_epochs` returns the leader epochs of partitions of which nothing was landed yet.
        """
        before = {name: (topic.topic_id, topic.partitions) for name, topic in self.known.items()}
        changed = {
            name: state for name, state in states.items() if before.get(name) != (state.topic_id, state.partitions)
        }
        if not changed:
            return
        configs = admin.configs(changed)
        generations = {name: next_generation(self.known.get(name), state) for name, state in changed.items()}
        found: dict[str, dict[int, int]] = {}
        fresh = [
            TopicPartition(n, p) for n, s in changed.items() for p in range(generations[n].partitions, s.partitions)
        ]
        for tp, epoch in read_leader_epochs(fresh).items():
            found.setdefault(tp.topic, {})[tp.partition] = epoch
        self._record(
            [
                replace(
                    generations[name],
                    topic_id=state.topic_id,
                    partitions=state.partitions,
                    configs=configs.get(name, {}),
                    leader_epochs={**generations[name].leader_epochs, **found.get(name, {})},
                )
                for name, state in changed.items()
            ],
            at,
        )

    def record_truncations(
        self,
        truncations: Mapping[str, Iterable[LogTruncation]],
        leader_epochs: Mapping[str, Mapping[int, int]],
        at: datetime,
    ) -> None:
        found = [
            replace(
                self.known[name],
                truncations=(*self.known[name].truncations, *truncations.get(name, ())),
                leader_epochs={**self.known[name].leader_epochs, **leader_epochs.get(name, {})},
            )
            for name in {*truncations, *leader_epochs}
        ]
        self._record([topic for topic in found if topic != self.known[topic.name]], at)

    def compare(self, states: Mapping[str, TopicState], configs: Mapping[str, Mapping[str, str]], at: datetime) -> None:
        """Record changes of known topics only: `observe` records the others, because only the lander may begin a generation."""
        if self._changed(states, configs):
            # Another process, or this one's lander, may have recorded the change already.
            self.load()
        self._record([topic for topic in self._changed(states, configs) if topic.generation], at)

    def _changed(self, states: Mapping[str, TopicState], configs: Mapping[str, Mapping[str, str]]) -> list[KnownTopic]:
        found = []
        for name, state in states.items():
            before = self.known.get(name, KnownTopic(name=name))
            after = replace(before, partitions=state.partitions, configs=dict(configs.get(name, {})))
            if after != before and (not before.generation or before.topic_id == state.topic_id):
                found.append(after)
        return found

    def _record(self, topics: Iterable[KnownTopic], at: datetime) -> None:
        topics = list(topics)
        self.known |= {topic.name: topic for topic in topics}
        self._lake.append(METADATA, [topic_row(self._alias, "source", topic, at) for topic in topics])


def next_generation(known: KnownTopic | None, state: TopicState) -> KnownTopic:
    """Return a topic's present generation: the known one, or a new one without partitions yet."""
    if known is None:
        return KnownTopic(name=state.name, generation=1)
    if known.topic_id == state.topic_id:
        return known
    newest = max([known.generation, *(cut.generation for cut in known.truncations)])
    return KnownTopic(name=state.name, generation=newest + 1)


def unseen_incarnations(
    lost: Mapping[str, str], seen: Iterable[Any], *, now: datetime
) -> list[tuple[KnownTopic, datetime]]:
    """Return the unobserved lost incarnations of remote topics, dated before all observations of each topic.

    If a topic is recreated between two observations, its first row is of the new incarnation; mapped ranges into the old one must
    not count as that. `lost` are the ids of the lost incarnations by topic, `seen` rows of `metadata`.
    """
    by_topic: dict[str, list[Any]] = {}
    for one in seen:
        by_topic.setdefault(one.topic, []).append(one)
    found = []
    for name, topic_id in sorted(lost.items()):
        mine = by_topic.get(name, [])
        if all(one.topic_id != topic_id for one in mine):
            at = min((one.observed_at for one in mine), default=now) - TICK
            found.append((KnownTopic(name=name, generation=1, topic_id=topic_id), at))
    return found


class Observations:
    """Record changes of a target's topics and of any cluster's ACLs; `SourceTopics` records a source's topics."""

    def __init__(self, lake: Lake, *, now: Callable[[], datetime]) -> None:
        self._lake = lake
        self._now = now

    def record_topics(
        self,
        cluster: str,
        states: Mapping[str, TopicState],
        configs: Mapping[str, Mapping[str, str]],
        *,
        scope: Iterable[str],
    ) -> None:
        """Record changes of a target's topics; a topic of `scope` without a state is gone."""
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
        self._lake.append(METADATA, [topic_row(cluster, "target", topic, at) for topic in changed])

    def record_incarnations(
        self,
        cluster: str,
        lost: Mapping[str, str],
        states: Mapping[str, TopicState],
        configs: Mapping[str, Mapping[str, str]],
    ) -> None:
        """Record lost remote topics with their old ids, and the topics that now have their names."""
        seen = self._lake.query(_INCARNATIONS, missing_ok=True, cluster=cluster)
        unseen = unseen_incarnations(lost, seen, now=self._now())
        self._lake.append(METADATA, [topic_row(cluster, "target", topic, at) for topic, at in unseen])
        self.record_topics(cluster, states, configs, scope=lost)

    def record_acls(self, cluster: str, acls: Iterable[Acl]) -> None:
        known, present, at = newest_acls(self._lake, cluster), set(acls), self._now()
        changed = [*sorted(present - known), *sorted(known - present)]
        self._lake.append(METADATA, [acl_row(cluster, acl, at, present=acl in present) for acl in changed])
