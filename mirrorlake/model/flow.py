"""Clusters by alias, directed flows between them, and the Kafka names that belong to a flow.

A flow prints as `east->central`. Kafka names allow letters, digits, `.`, `_` and `-` only, so `->` becomes `.` there:
ledger topic `mirrorlake.east.central.ledger`, transactional ids `mirrorlake.east.central.0` and so on.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

_NOT_ALLOWED_IN_KAFKA = re.compile(r"[^A-Za-z0-9._-]")


class Directed(Protocol):
    """What a search over flows reads of a flow: its direction and the topics it carries."""

    @property
    def name(self) -> str: ...

    @property
    def source(self) -> str: ...

    @property
    def target(self) -> str: ...

    def carries(self, topic: str) -> bool:
        """Return whether the flow mirrors this topic: selected, not excluded, not known to come from the target."""


@dataclass(frozen=True, order=True, slots=True)
class TopicPartition:
    """One partition of one topic; prints as Kafka does, `orders-3`."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


@dataclass(frozen=True, order=True, slots=True)
class SourcePartition:
    """One partition of one generation of a source topic.

    A topic that is deleted and created again starts at offset 0 under the same name. Its `generation` (1, 2, …,
    counted by topic id, KIP-516) separates the old offsets from the new ones. After a truncation, a partition's
    later offsets belong to a new generation.
    """

    topic: str
    generation: int
    partition: int

    @property
    def tp(self) -> TopicPartition:
        """The partition on the source, whatever its generation."""
        return TopicPartition(self.topic, self.partition)

    def __str__(self) -> str:
        suffix = f"~{self.generation}" if self.generation > 1 else ""
        return f"{self.topic}{suffix}-{self.partition}"


@dataclass(frozen=True, slots=True, order=True, kw_only=True)
class RecordRange:
    """Upstream offsets `first..end - 1` of a source partition, and the number of records in them."""

    topic: str
    generation: int
    partition: int
    first: int
    end: int
    records: int

    @property
    def source(self) -> SourcePartition:
        return SourcePartition(self.topic, self.generation, self.partition)


# The columns of a source partition in tables.
SOURCE_KEY = ("topic", "generation", "partition")


def furthest(known: Iterable[Mapping[SourcePartition, int]]) -> dict[SourcePartition, int]:
    positions: dict[SourcePartition, int] = {}
    for each in known:
        advance(positions, each)
    return positions


def advance(positions: dict[SourcePartition, int], moved: Mapping[SourcePartition, int]) -> None:
    """Advance positions in place, never backwards."""
    for source, offset in moved.items():
        positions[source] = max(positions.get(source, 0), offset)


def kafka_name(flow: str) -> str:
    return _NOT_ALLOWED_IN_KAFKA.sub("_", flow.replace("->", "."))


def ledger_topic(flow: str) -> str:
    """Return the name of the flow's ledger on the target."""
    return f"mirrorlake.{kafka_name(flow)}.ledger"


def transactional_id(flow: str, lane: int) -> str:
    """Return the id that fences every older owner of this lane; never derived from worker or attempt."""
    return f"mirrorlake.{kafka_name(flow)}.{lane}"
