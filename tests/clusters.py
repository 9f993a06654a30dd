"""A cluster in memory, as its admin client tells it."""

from __future__ import annotations

from collections.abc import Iterable

from mirrorlake.errors import ClusterUnreachable
from mirrorlake.kafka import TopicState
from mirrorlake.model.flow import TopicPartition


class MemoryCluster:
    """A cluster with topics of one partition each: where each begins and ends, and its id."""

    alias = "east"

    def __init__(self, **spans: tuple[int, int]) -> None:
        self.spans = dict(spans)
        self.ids = dict.fromkeys(spans, "1")
        self.leaderless: set[str] = set()
        self.epoch = 0
        self.cleanup = "delete"

    def cluster_id(self) -> str:
        return "c"

    def topic_names(self) -> list[str]:
        return sorted(self.spans)

    def describe(self, names: Iterable[str]) -> dict[str, TopicState]:
        there = [name for name in names if name in self.spans]
        led = {name: frozenset({0} if name in self.leaderless else ()) for name in there}
        return {
            name: TopicState(name=name, topic_id=self.ids[name], partitions=1, leaderless=led[name]) for name in there
        }

    def configs(self, names: Iterable[str]) -> dict[str, dict[str, str]]:
        return {name: {} for name in names}

    def log_start_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self._span(tp.topic)[0] for tp in partitions}

    def last_stable_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        return {tp: self._span(tp.topic)[1] for tp in partitions}

    def _span(self, topic: str) -> tuple[int, int]:
        if topic in self.leaderless:
            raise ClusterUnreachable(f"{topic}-0 has no leader", alias=self.alias)
        return self.spans[topic]

    def offsets_for_time(self, partitions: Iterable[TopicPartition], timestamp_ms: int) -> dict[TopicPartition, int]:
        return dict.fromkeys(partitions, timestamp_ms // 1000)

    def high_watermarks_and_epochs(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        return {tp: (end, self.epoch) for tp, end in self.last_stable_offsets(partitions).items()}

    def default_cleanup(self, topics: Iterable[str]) -> str:
        return self.cleanup if "orders" in topics else ""
