"""The source's topics as they live: ids, generations, partition counts and settings, kept in the `metadata` table.

A topic that is deleted and created again under its name gets a new topic id (KIP-516). Offsets start again at 0 then, so
each life is a `generation` of its own. Spark's Kafka source compares offsets only and cannot see this.

A partition whose log went back keeps its topic id: from the cut on its offsets are of a new generation, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import datetime
from typing import Protocol

from mirrorlake.config.schema.mirror import FlowConfig
from mirrorlake.kafka.admin import TopicState
from mirrorlake.lake.lake import Lake
from mirrorlake.lake.schema import METADATA
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.gaps import Cut

_NEWEST = """
    SELECT * FROM (
        SELECT *, row_number() OVER (PARTITION BY topic ORDER BY generation DESC, observed_at DESC) AS rank
        FROM {metadata} WHERE cluster = :cluster AND role = 'source' AND kind = 'topic'
    ) WHERE rank = 1
"""


class Describes(Protocol):
    """Whatever knows topics as they are now: a cluster's admin, or a lake cluster's topics."""

    def describe(self, names: Iterable[str]) -> dict[str, TopicState]:
        """Return id and partition count of the named topics that exist."""

    def configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the settings that each topic sets itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTopic:
    """A topic's newest recorded life.

    Attributes:
        generation: the life of partitions whose log never went back.
        cuts: where logs of partitions went back in this life.
        epochs: the leader epoch of each partition at which everything that was landed was still there.
    """

    name: str
    generation: int
    topic_id: str
    partitions: int
    configs: dict[str, str]
    cuts: tuple[Cut, ...] = ()
    epochs: dict[int, int] = field(default_factory=dict)

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


class SourceTopics:
    """Know the topics of one source cluster; every change is recorded before it is acted on."""

    def __init__(self, lake: Lake, alias: str) -> None:
        self._lake = lake
        self._alias = alias
        self.known: dict[str, KnownTopic] = {}

    def load(self) -> dict[str, KnownTopic]:
        """Read the newest row of every topic from the lake."""
        self.known = {
            row.topic: KnownTopic(
                name=row.topic,
                generation=row.generation,
                topic_id=row.topic_id,
                partitions=row.partitions,
                configs=dict(row.configs or {}),
                cuts=tuple(
                    Cut(partition=cut["partition"], generation=cut["generation"], first_offset=cut["first_offset"])
                    for cut in row.cuts or ()
                ),
                epochs=dict(row.leader_epochs or {}),
            )
            for row in self._lake.ask(_NEWEST, cluster=self._alias)
        }
        return self.known

    def observe(
        self,
        admin: Describes,
        names: Iterable[str],
        *,
        now: Callable[[], datetime],
        before_reborn: Callable[[list[str]], None],
        epochs: Callable[[Iterable[TopicPartition]], Mapping[TopicPartition, int]] = lambda _: {},
    ) -> list[KnownTopic]:
        """Compare the named topics with what is known, record what changed, and return the recreated topics.

        `before_reborn` is called with their names before anything is recorded; it may raise to leave everything as it was.
        `epochs` returns the leader epochs of partitions of which nothing was landed yet.
        """
        states = admin.describe(names)
        changed = {name: state for name, state in states.items() if self._differs(state)}
        if not changed:
            return []
        lives = [name for name in changed if name in self.known and self.known[name].topic_id != changed[name].topic_id]
        if lives:
            before_reborn(lives)
        configs = admin.configs(changed)
        fresh = [
            TopicPartition(name, partition)
            for name, state in changed.items()
            for partition in range(
                self.known[name].partitions if name in self.known and name not in lives else 0, state.partitions
            )
        ]
        found: dict[str, dict[int, int]] = {}
        for tp, epoch in epochs(fresh).items():
            found.setdefault(tp.topic, {})[tp.partition] = epoch
        for name, state in changed.items():
            before = self.known.get(name)
            held = (
                KnownTopic(name=name, generation=0, topic_id="", partitions=0, configs={}) if before is None else before
            )
            if before is None or name in lives:
                generation = max([held.generation, *(cut.generation for cut in held.cuts)]) + 1
                held = replace(held, generation=generation, cuts=(), epochs={})
            self.known[name] = replace(
                held,
                topic_id=state.topic_id,
                partitions=state.partitions,
                configs=configs.get(name, {}),
                epochs={**held.epochs, **found.get(name, {})},
            )
        self._append([self.known[name] for name in changed], now())
        return [self.known[name] for name in lives]

    def settle(self, cuts: Mapping[str, Iterable[Cut]], epochs: Mapping[str, Mapping[int, int]], at: datetime) -> None:
        """Record where logs went back, and at which leader epochs everything that was landed was found there."""
        changed = []
        for name in {*cuts, *epochs}:
            before = self.known[name]
            after = replace(
                before,
                cuts=(*before.cuts, *cuts.get(name, ())),
                epochs={**before.epochs, **epochs.get(name, {})},
            )
            if after != before:
                changed.append(after)
        self.known |= {topic.name: topic for topic in changed}
        self._append(changed, at)

    def compare(self, states: Mapping[str, TopicState], configs: Mapping[str, Mapping[str, str]], at: datetime) -> None:
        """Record changed partition counts and settings of topics that are known.

        New topics and new lives are left to `observe`: only the lander may begin a generation.
        """
        if self._changed(states, configs):
            # Another process, or the lander of this one, may have recorded it already.
            self.load()
        changed = [topic for topic in self._changed(states, configs) if topic.generation]
        self.known |= {topic.name: topic for topic in changed}
        self._append(changed, at)

    def _changed(self, states: Mapping[str, TopicState], configs: Mapping[str, Mapping[str, str]]) -> list[KnownTopic]:
        found = []
        for name, state in states.items():
            before = self.known.get(name)
            if before is None:
                before = KnownTopic(name=name, generation=0, topic_id="", partitions=0, configs={})
            elif before.topic_id != state.topic_id:
                continue
            after = replace(before, partitions=state.partitions, configs=dict(configs.get(name, {})))
            if after != before:
                found.append(after)
        return found

    def _append(self, topics: Iterable[KnownTopic], at: datetime) -> None:
        self._lake.append_rows(
            METADATA,
            [
                {
                    "cluster": self._alias,
                    "role": "source",
                    "kind": "topic",
                    "topic": topic.name,
                    "generation": topic.generation,
                    "topic_id": topic.topic_id,
                    "partitions": topic.partitions,
                    "configs": topic.configs,
                    "present": True,
                    "observed_at": at,
                    "cuts": [asdict(cut) for cut in topic.cuts] or None,
                    "leader_epochs": topic.epochs or None,
                }
                for topic in topics
            ],
        )

    def _differs(self, state: TopicState) -> bool:
        before = self.known.get(state.name)
        return before is None or before.topic_id != state.topic_id or before.partitions != state.partitions


def carried_topics(lake: Lake, flow: FlowConfig) -> list[str]:
    """List the topics of the source, as the lake knows them, that a flow carries."""
    return [name for name in SourceTopics(lake, flow.source).load() if flow.carries(name)]
