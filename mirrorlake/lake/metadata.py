"""The table `metadata`: topics and ACLs as they were seen, one row a change. Its rows are made and read here.

A topic that is deleted and created again under its name gets a new topic id (KIP-516). Offsets start again at 0 then, so
each life is a `generation` of its own. Spark's Kafka source compares offsets only and cannot see this.

A partition whose log went back keeps its topic id: from the cut on its offsets are of a new generation, too.
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
from mirrorlake.lake.times import micros
from mirrorlake.model.acls import Acl
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.gaps import Cut
from mirrorlake.model.history import Observed

Role = Literal["source", "target"]
_EVER = 2**62

_NEWEST_TOPICS = """
    SELECT * FROM (
        SELECT *, row_number() OVER (PARTITION BY topic ORDER BY generation DESC, observed_at DESC) AS rank
        FROM {metadata}
        WHERE cluster = :cluster AND role = :role AND kind = 'topic' AND unix_micros(observed_at) <= :until
    ) WHERE rank = 1
"""
_NEWEST_ACLS = """
    SELECT acl FROM (
        SELECT acl, present, row_number() OVER (PARTITION BY acl ORDER BY observed_at DESC) AS rank
        FROM {metadata} WHERE cluster = :cluster AND kind = 'acl'
    ) WHERE rank = 1 AND present
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTopic:
    """A topic's newest recorded life.

    Attributes:
        generation: the life of partitions whose log never went back; 0 before the first.
        cuts: where logs of partitions went back in this life.
        epochs: the leader epoch of each partition at which everything that was landed was still there.
        present: whether the topic existed when it was looked at last.
    """

    name: str
    generation: int = 0
    topic_id: str = ""
    partitions: int = 0
    configs: Mapping[str, str] = field(default_factory=dict)
    cuts: tuple[Cut, ...] = ()
    epochs: Mapping[int, int] = field(default_factory=dict)
    present: bool = True

    @property
    def is_bare(self) -> bool:
        """Whether it sets no `cleanup.policy` itself: that of the brokers holds."""
        return "cleanup.policy" not in self.configs

    def may_compact(self, default_cleanup: str = "") -> bool:
        """Tell whether the cleaner may take records of it; `default_cleanup` is the policy of topics that set none themselves.

        Example:
            >>> KnownTopic(name="orders").may_compact("compact"), KnownTopic(name="orders").may_compact("delete")
            (True, False)
        """
        return "compact" in self.configs.get("cleanup.policy", default_cleanup)

    def generation_of(self, partition: int) -> int:
        """Return the newest life of a partition's offsets."""
        return max((cut.generation for cut in self.cuts if cut.partition == partition), default=self.generation)

    def generation_at(self, partition: int, offset: int) -> int:
        """Return the life that an offset of the source belongs to now: the newest that reaches back to it."""
        lives = (c.generation for c in self.cuts if c.partition == partition and c.first_offset <= offset)
        return max(lives, default=self.generation)

    def starts_at(self, partition: int) -> int:
        """Return the first offset of the newest life of a partition."""
        newest = self.generation_of(partition)
        return next((c.first_offset for c in self.cuts if (c.partition, c.generation) == (partition, newest)), 0)


def newest_topics(
    lake: Lake, cluster: str, role: Role, *, missing_ok: bool = False, until: datetime | None = None
) -> dict[str, KnownTopic]:
    """Read the last state of every topic that was seen on a cluster, up to a time where one is given.

    With `missing_ok` there are none before the lake is made.
    """
    at = _EVER if until is None else micros(until)
    return {
        row.topic: KnownTopic(
            name=row.topic,
            generation=row.generation,
            topic_id=row.topic_id,
            partitions=row.partitions,
            configs=dict(row.configs or {}),
            cuts=tuple(Cut(**cut) for cut in row.cuts or ()),
            epochs=dict(row.leader_epochs or {}),
            present=row.present,
        )
        for row in lake.ask(
            _NEWEST_TOPICS, missing_ok=missing_ok, keep=until is None, cluster=cluster, role=role, until=at
        )
    }


def newest_acls(lake: Lake, cluster: str) -> set[Acl]:
    """Return the ACLs that a cluster had when it was looked at last."""
    return {Acl(**row.acl) for row in lake.ask(_NEWEST_ACLS, cluster=cluster)}


def read_seen(lake: Lake, *, clusters: Iterable[str] | None = None, until: datetime | None = None) -> list[Observed]:
    """Return every observation, oldest first; only of `clusters` and up to `until`, where given."""
    chosen: list[str] = []
    values: dict[str, Any] = {}
    if clusters is not None:
        chosen.append("array_contains(:clusters, cluster)")
        values["clusters"] = sorted(clusters)
    if until is not None:
        chosen.append("unix_micros(observed_at) <= :until")
        values["until"] = micros(until)
    where = f"WHERE {' AND '.join(chosen)}" if chosen else ""
    return [
        Observed(
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
        for row in lake.ask(f"SELECT * FROM {{metadata}} {where} ORDER BY observed_at", missing_ok=True, **values)  # noqa: S608
    ]


def topic_row(cluster: str, role: Role, topic: KnownTopic, at: datetime) -> Row:
    """Make the row that says what a topic is like from now on."""
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
        "cuts": [asdict(cut) for cut in topic.cuts] or None,
        "leader_epochs": topic.epochs or None,
    }


def acl_row(cluster: str, acl: Acl, at: datetime, *, present: bool) -> Row:
    """Make the row that says whether an ACL exists from now on."""
    return {"cluster": cluster, "kind": "acl", "acl": acl.as_dict(), "present": present, "observed_at": at}


def carried_topics(lake: Lake, flow: FlowConfig) -> list[str]:
    """List the topics of the source that were ever seen and that a flow carries; none before the lake is made."""
    return [name for name in newest_topics(lake, flow.source, "source", missing_ok=True) if flow.carries(name)]


class HasConfigs(Protocol):
    """Whatever knows what topics set themselves: a cluster's admin, or a lake cluster's topics."""

    def configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the settings that each topic sets itself."""


class SourceTopics:
    """Know the topics of one source cluster; every change is recorded before it is acted on.

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
        """List the topics that were deleted and created again since they were recorded."""
        return [
            name for name, state in states.items() if name in self.known and self.known[name].topic_id != state.topic_id
        ]

    def observe(
        self,
        states: Mapping[str, TopicState],
        admin: HasConfigs,
        *,
        at: datetime,
        epochs: Callable[[Iterable[TopicPartition]], Mapping[TopicPartition, int]] = lambda _: {},
    ) -> None:
        """Record what changed of topics; a topic that is new or `recreated` begins a generation.

        `epochs` returns the leader epochs of partitions of which nothing was landed yet.
        """
        changed = {name: state for name, state in states.items() if self._differs(state)}
        if not changed:
            return
        configs = admin.configs(changed)
        lives = {name: next_life(self.known.get(name), state) for name, state in changed.items()}
        found: dict[str, dict[int, int]] = {}
        fresh = [TopicPartition(n, p) for n, s in changed.items() for p in range(lives[n].partitions, s.partitions)]
        for tp, epoch in epochs(fresh).items():
            found.setdefault(tp.topic, {})[tp.partition] = epoch
        self._record(
            [
                replace(
                    lives[name],
                    topic_id=state.topic_id,
                    partitions=state.partitions,
                    configs=configs.get(name, {}),
                    epochs={**lives[name].epochs, **found.get(name, {})},
                )
                for name, state in changed.items()
            ],
            at,
        )

    def settle(self, cuts: Mapping[str, Iterable[Cut]], epochs: Mapping[str, Mapping[int, int]], at: datetime) -> None:
        """Record where logs went back, and at which leader epochs everything that was landed was found there."""
        found = [
            replace(
                self.known[name],
                cuts=(*self.known[name].cuts, *cuts.get(name, ())),
                epochs={**self.known[name].epochs, **epochs.get(name, {})},
            )
            for name in {*cuts, *epochs}
        ]
        self._record([topic for topic in found if topic != self.known[topic.name]], at)

    def compare(self, states: Mapping[str, TopicState], configs: Mapping[str, Mapping[str, str]], at: datetime) -> None:
        """Record changed partition counts and settings of topics that are known.

        New topics and new lives are left to `observe`: only the lander may begin a generation.
        """
        if self._changed(states, configs):
            # Another process, or the lander of this one, may have recorded it already.
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
        self._lake.append_rows(METADATA, [topic_row(self._alias, "source", topic, at) for topic in topics])

    def _differs(self, state: TopicState) -> bool:
        before = self.known.get(state.name)
        return before is None or (before.topic_id, before.partitions) != (state.topic_id, state.partitions)


def next_life(known: KnownTopic | None, state: TopicState) -> KnownTopic:
    """Return the life that a topic is in now: the known one, or a new one without partitions yet."""
    if known is None:
        return KnownTopic(name=state.name, generation=1)
    if known.topic_id == state.topic_id:
        return known
    newest = max([known.generation, *(cut.generation for cut in known.cuts)])
    return KnownTopic(name=state.name, generation=newest + 1)
