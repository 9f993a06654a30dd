"""Read the topics of a flow's source: a Kafka cluster, or a lake cluster that is published into."""

from __future__ import annotations

import uuid
from collections.abc import Iterable
from typing import Protocol

from mirrorlake.config.schema import ClusterConfig
from mirrorlake.kafka import TopicSetting, TopicState
from mirrorlake.lake import KnownTopic, Lake, PublishLog, newest_topics
from mirrorlake.model.acls import Acl
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.patterns import TopicPattern

_IDS = uuid.UUID("6f0f8d1c-7c35-4b39-9b0e-6b1f4d1f6a10")


class SourceAcls(Protocol):
    def list(self) -> list[Acl] | None:
        """Return every ACL, or None without an authorizer."""


class TopicSource(Protocol):
    """A flow's source: `ClusterAdmin` or `LakeTopics`."""

    @property
    def acls(self) -> SourceAcls: ...

    def topic_names(self) -> list[str]: ...

    def require_topics(self, selection: TopicPattern) -> None:
        """Raise if the principal may not see the selected topics; an empty selection is allowed."""

    def describe(self, names: Iterable[str]) -> dict[str, TopicState]: ...

    def configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]: ...

    def log_start_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]: ...

    def last_stable_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]: ...


class _NoAcls:
    def list(self) -> list[Acl] | None:
        return None


class LakeTopics:
    """The topics of a lake cluster: those of its settings and the published ones.

    A topic has one generation (1), and its id follows from alias and name. Its partition count is the larger of the settings'
    and the recorded one: counts only grow.
    """

    def __init__(self, alias: str, config: ClusterConfig, lake: Lake) -> None:
        self.alias = alias
        self.acls: SourceAcls = _NoAcls()
        self._config = config
        self._lake = lake

    def topic_names(self) -> list[str]:
        """Return the topics that the settings name or that were published, sorted."""
        return sorted({*self._config.topics, *self._recorded()})

    def require_topics(self, selection: TopicPattern) -> None:
        """Do nothing: nothing is hidden, and a topic may be published later."""

    def describe(self, names: Iterable[str]) -> dict[str, TopicState]:
        recorded = self._recorded()
        return {
            name: self.state(name, recorded.get(name))
            for name in sorted(set(names))
            if name in recorded or name in self._config.topics
        }

    def state(self, name: str, recorded: KnownTopic | None) -> TopicState:
        """Return a topic by the settings and its newest record, also before it is published."""
        held = recorded.partitions if recorded else 0
        return TopicState(
            name=name,
            topic_id=str(uuid.uuid5(_IDS, f"{self.alias}/{name}")),
            partitions=max(held, self._config.partitions_of(name)),
        )

    def configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        topics = self._config.topics
        return {name: dict(topics[name].configs) if name in topics else {} for name in names}

    def log_start_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return 0 for each partition: the relay never expires published records."""
        return dict.fromkeys(partitions, 0)

    def last_stable_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        if not self._lake.exists(self._lake.relay_location(self.alias)):
            return dict.fromkeys(partitions, 0)
        reached = PublishLog(self._lake, self.alias).tail().reached
        return {tp: reached.get(SourcePartition(tp.topic, 1, tp.partition), 0) for tp in partitions}

    def settings(self, names: Iterable[str]) -> dict[str, dict[str, TopicSetting]]:
        return {
            name: {key: TopicSetting(value=value, is_own=True) for key, value in configs.items()}
            for name, configs in self.configs(names).items()
        }

    def _recorded(self) -> dict[str, KnownTopic]:
        return newest_topics(self._lake, self.alias, "source", missing_ok=True)
