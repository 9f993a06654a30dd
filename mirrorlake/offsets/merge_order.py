"""The order of the records of several source partitions in one target partition, repeated on another target.

    recorded at central   e1 e1 w1 e2 w1 w1        by the offset map: target partition, first downstream offset
    sent to backup        e1 e1 w1 | e2 w1 w1      the bar: the end of the sent records; the rest follows in this order

A rebuild is exact as long as the other target's records are the beginning of the recorded order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mirrorlake.model.flow import SourcePartition, TopicPartition

Origin = tuple[str, SourcePartition]
"""A flow and one of its source partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordedRange:
    """Consecutive records of one source partition on a target partition, up to `last_upstream`."""

    flow: str
    source: SourcePartition
    target: TopicPartition
    first_upstream: int
    last_upstream: int
    first_downstream: int
    count: int


def in_recorded_order(stretches: Iterable[RecordedRange]) -> list[RecordedRange]:
    """Sort the ranges of each target partition, and join those with no record of another source between them.

    Raises:
        ValueError: a source partition feeds several target partitions; its one position does not distinguish their orders.
    """
    joined: list[RecordedRange] = []
    places: dict[Origin, TopicPartition] = {}
    for one in sorted(stretches, key=lambda s: (s.target, s.first_downstream)):
        if places.setdefault((one.flow, one.source), one.target) != one.target:
            raise ValueError(f"{one.source} of {one.flow} feeds several partitions of {one.target.topic}")
        last = joined[-1] if joined else None
        if last is not None and (last.flow, last.source, last.target) == (one.flow, one.source, one.target):
            joined[-1] = RecordedRange(
                flow=one.flow,
                source=one.source,
                target=one.target,
                first_upstream=last.first_upstream,
                last_upstream=one.last_upstream,
                first_downstream=last.first_downstream,
                count=last.count + one.count,
            )
        else:
            joined.append(one)
    return joined


def ranges_to_send(ordered: Sequence[RecordedRange], sent: Mapping[Origin, int]) -> list[RecordedRange]:
    """Return the ranges still to be sent; `sent` is the next upstream offset to send by source partition.

    Raises:
        ValueError: the target has more than the beginning of the recorded order.
    """
    waiting: dict[TopicPartition, RecordedRange] = {}
    left = []
    for one in ordered:
        position = sent.get((one.flow, one.source), 0)
        before = waiting.get(one.target)
        if (
            before is not None
            and (before.flow, before.source) != (one.flow, one.source)
            and position > one.first_upstream
        ):
            raise ValueError(
                f"{one.target} holds {one.source}@{one.first_upstream} of {one.flow}, but not yet "
                f"{before.source}@{before.last_upstream} of {before.flow}, which comes before it"
            )
        if position <= one.last_upstream:
            waiting.setdefault(one.target, one)
            left.append(one)
    return left
