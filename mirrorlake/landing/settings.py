"""The settings for landing one source."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from mirrorlake.config.schema import FlowConfig
from mirrorlake.kafka import ClusterAdmin
from mirrorlake.model.flow import TopicPartition


class LandListener:
    """Listen to a long-lived lander; Spark itself reports on a query. No method raises."""

    def landed(self, records: int) -> None:
        """Take how many records were landed and accounted for since the last call; 0 if there were none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LandSettings:
    """The settings for landing one source.

    `never_leave` is a Java regular expression of topics that are not landed even if the subscription matches them. `tasks` is how
    many tasks land the source; None for as many as its traffic needs.
    """

    alias: str
    flows: Sequence[FlowConfig]
    subscribe_pattern: str
    kafka_options: Mapping[str, str] = field(repr=False)
    reader_options: Mapping[str, Any] = field(repr=False)
    on_gap: str = "halt"
    max_records_per_batch: int = 2_000_000
    max_bytes_per_batch: int | None = None
    live: bool = True
    tasks: int | None = 1
    trigger: timedelta = timedelta(0)
    never_leave: str = ""
    listener: LandListener = field(default_factory=LandListener)

    def list_topics(self, source: ClusterAdmin) -> list[str]:
        return [name for name in source.topic_names() if any(_takes(flow, name) for flow in self.flows)]

    def first_offsets(self, source: ClusterAdmin, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the first offset to land of new partitions; omit those that begin at the log start.

        A topic begins at the earliest start among the flows that take it.
        """
        latest: list[TopicPartition] = []
        by_time: dict[int, list[TopicPartition]] = {}
        for tp in partitions:
            starts = [flow.start for flow in self.flows if _takes(flow, tp.topic)]
            if any(start.kind == "earliest" for start in starts):
                continue
            times = [start.timestamp_ms for start in starts if start.timestamp_ms is not None]
            (by_time.setdefault(min(times), []) if times else latest).append(tp)
        found = source.last_stable_offsets(latest)
        for time_ms, several in by_time.items():
            found |= source.offsets_for_time(several, time_ms)
        return found


def _takes(flow: FlowConfig, topic: str) -> bool:
    return flow.selection.matches(topic) and not flow.denies(topic)
