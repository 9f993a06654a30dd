"""The source's topics as they live: ids, generations, partition counts and settings, kept in the `metadata` table.

A topic that is deleted and created again under its name gets a new topic id (KIP-516). Offsets start again at 0 then, so
each life is a `generation` of its own. Spark's Kafka source compares offsets only and cannot see this.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Protocol

from pyspark.sql import functions as F
from pyspark.sql.window import Window

from mirrorlake.kafka.admin import TopicState
from mirrorlake.relay.lake import Lake
from mirrorlake.relay.schema import METADATA


class Describes(Protocol):
    """Whatever knows topics as they are now: a cluster's admin, or a lake cluster's topics."""

    def describe(self, names: Iterable[str]) -> dict[str, TopicState]:
        """Return id and partition count of the named topics that exist."""

    def configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        """Return the settings that each topic sets itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KnownTopic:
    """A topic's newest recorded life."""

    name: str
    generation: int
    topic_id: str
    partitions: int
    configs: dict[str, str]


class SourceTopics:
    """Know the topics of one source cluster; every change is recorded before it is acted on."""

    def __init__(self, lake: Lake, alias: str) -> None:
        self._lake = lake
        self._alias = alias
        self.known: dict[str, KnownTopic] = {}

    def load(self) -> dict[str, KnownTopic]:
        """Read the newest row of every topic from the lake."""
        newest = Window.partitionBy("topic").orderBy(F.desc("generation"), F.desc("observed_at"))
        rows = (
            self._lake.meta(METADATA)
            .where((F.col("cluster") == self._alias) & (F.col("role") == "source") & (F.col("kind") == "topic"))
            .withColumn("rank", F.row_number().over(newest))
            .where("rank = 1")
            .collect()
        )
        self.known = {
            row.topic: KnownTopic(
                name=row.topic,
                generation=row.generation,
                topic_id=row.topic_id,
                partitions=row.partitions,
                configs=dict(row.configs or {}),
            )
            for row in rows
        }
        return self.known

    def observe(
        self,
        admin: Describes,
        names: Iterable[str],
        *,
        now: Callable[[], datetime],
        before_reborn: Callable[[list[str]], None],
    ) -> list[KnownTopic]:
        """Compare the named topics with what is known, record what changed, and return the topics born again.

        `before_reborn` is called with their names before anything is recorded; it may raise to leave everything as it was.
        """
        states = admin.describe(names)
        changed = {name: state for name, state in states.items() if self._differs(state)}
        if not changed:
            return []
        lives = [name for name in changed if name in self.known and self.known[name].topic_id != changed[name].topic_id]
        if lives:
            before_reborn(lives)
        configs = admin.configs(changed)
        for name, state in changed.items():
            before = self.known.get(name)
            self.known[name] = KnownTopic(
                name=name,
                generation=1 if before is None else before.generation + (name in lives),
                topic_id=state.topic_id,
                partitions=state.partitions,
                configs=configs.get(name, {}),
            )
        self._append([self.known[name] for name in changed], now())
        return [self.known[name] for name in lives]

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
                (
                    self._alias,
                    "source",
                    "topic",
                    topic.name,
                    topic.generation,
                    topic.topic_id,
                    topic.partitions,
                    topic.configs,
                    None,
                    True,
                    at,
                )
                for topic in topics
            ],
        )

    def _differs(self, state: TopicState) -> bool:
        before = self.known.get(state.name)
        return before is None or before.topic_id != state.topic_id or before.partitions != state.partitions
