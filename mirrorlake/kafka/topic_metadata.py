"""Read all topics of a cluster in a few calls, however many there are; topics that refuse are omitted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any

from confluent_kafka import IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, OffsetSpec, ResourceType

from mirrorlake.kafka.errors import ClientErrors
from mirrorlake.model import flow
from mirrorlake.timing import timing

SET_BY_TOPIC = 1  # DescribeConfigsResponse.ConfigSource.TOPIC_CONFIG: not a default


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """A topic as the cluster describes it; its id changes when it is deleted and created again (KIP-516).

    `replicas` is the smallest number of replicas of a partition, 0 if unknown.
    """

    name: str
    topic_id: str
    partitions: int
    replicas: int = 0
    leaderless: frozenset[int] = frozenset()


def list_partitions(states: Mapping[str, TopicState]) -> list[flow.TopicPartition]:
    return [flow.TopicPartition(name, number) for name, state in states.items() for number in range(state.partitions)]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """One partition as the cluster describes it, brokers by id; `leader` is None without one."""

    partition: int
    leader: int | None = None
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSetting:
    """An effective setting of a topic; `is_own` if the topic sets it itself."""

    value: str
    is_own: bool


class TopicMetadataReader:
    """Read the topics of one cluster; its admin client must outlive this object."""

    def __init__(self, client: AdminClient, errors: ClientErrors) -> None:
        self._client = client
        self._errors = errors

    def layout(self) -> dict[str, tuple[PartitionState, ...]]:
        """Return every topic with its partitions, Kafka's internal ones included, by one request."""
        with self._errors.translating("list topics"):
            found = self._client.list_topics(timeout=timing().admin_timeout_s)
            self._errors.require_advertised(found)
        return {
            name: tuple(
                PartitionState(
                    partition=number,
                    leader=one.leader if one.leader >= 0 else None,
                    replicas=tuple(one.replicas),
                    isr=tuple(one.isrs),
                )
                for number, one in sorted(topic.partitions.items())
            )
            for name, topic in sorted(found.topics.items())
        }

    def settings(self, names: Collection[str]) -> dict[str, dict[str, TopicSetting]]:
        """Return the effective settings of topics; topics that are gone, or whose settings may not be read, are omitted."""
        if not names:
            return {}
        resources = [ConfigResource(ResourceType.TOPIC, name) for name in sorted(names)]
        with self._errors.translating("read topic configurations"):
            futures = self._client.describe_configs(resources, request_timeout=timing().admin_timeout_s)
        found = {}
        for resource, future in futures.items():
            try:
                entries = future.result()
            except KafkaException:
                continue
            found[resource.name] = {
                name: TopicSetting(value=entry.value, is_own=entry.source == SET_BY_TOPIC)
                for name, entry in entries.items()
                if entry.value is not None and not entry.is_sensitive
            }
        return found

    def offset_ranges(self, partitions: Iterable[flow.TopicPartition]) -> dict[flow.TopicPartition, tuple[int, int]]:
        """Return log start offset and high watermark of each partition; leaderless ones are omitted."""
        wanted = list(partitions)
        with ThreadPoolExecutor(2, thread_name_prefix="offsets") as pool:
            first, end = pool.map(partial(self._offsets, wanted), (OffsetSpec.earliest(), OffsetSpec.latest()))
        return {tp: (first[tp], end[tp]) for tp in wanted if tp in first and tp in end}

    def high_watermarks(self, partitions: Iterable[flow.TopicPartition]) -> dict[flow.TopicPartition, int]:
        """Return the high watermark of each partition; those whose leader does not report it now are omitted."""
        return self._offsets(list(partitions), OffsetSpec.latest())

    def _offsets(self, partitions: Collection[flow.TopicPartition], spec: OffsetSpec) -> dict[flow.TopicPartition, int]:
        with self._errors.translating("read offsets"):
            futures = request_offsets(self._client, partitions, spec, IsolationLevel.READ_UNCOMMITTED)
        answers = {}
        for tp, future in futures.items():
            with suppress(KafkaException):
                answers[tp] = int(future.result().offset)
        return answers


def request_offsets(
    client: AdminClient, partitions: Iterable[flow.TopicPartition], spec: OffsetSpec, isolation: IsolationLevel
) -> dict[flow.TopicPartition, Any]:
    request = {TopicPartition(tp.topic, tp.partition): spec for tp in partitions}
    if not request:
        return {}
    futures = client.list_offsets(request, isolation_level=isolation, request_timeout=timing().admin_timeout_s)
    return {flow.TopicPartition(tp.topic, tp.partition): future for tp, future in futures.items()}
