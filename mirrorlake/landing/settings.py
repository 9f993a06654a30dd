"""What landing one source needs to know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from mirrorlake.config.schema import FlowConfig
from mirrorlake.kafka import ClusterAdmin
from mirrorlake.model.flow import TopicPartition


class LandListener:
    """Hear what a long-lived lander does; of a query of its own Spark itself reports. No method raises."""

    def landed(self, records: int) -> None:
        """Hear how many records were landed and accounted for since the last time; 0 where it looked and found none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LandSettings:
    """What landing one source needs to know; `flows` are those from the source.

    `never_leave` is a Java regular expression of topics that are not landed even where the subscription brings them. Of `tasks` None
    stands for as many as the source's traffic wants.
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
        """Return the source's topics that are landed."""
        return [name for name in source.topic_names() if any(_takes(flow, name) for flow in self.flows)]

    def first_offsets(self, source: ClusterAdmin, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return where landing partitions begins while nothing was landed; nothing for the earliest offsets.

        A topic begins as early as the earliest of the flows that take it wants it.
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
