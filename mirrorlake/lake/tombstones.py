"""The table `tombstones`: records that an erasure wrote to remote topics, and that no flow sent (law E)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mirrorlake.lake.lake import Lake
from mirrorlake.lake.schema import TOMBSTONES
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.withheld import lies_in, ranges_of


@dataclass(frozen=True, slots=True, kw_only=True)
class Tombstones:
    """Tombstones of one erasure in one target partition.

    Attributes:
        removal: the id of the erasure.
        flow: the flow that had sent the erased records.
        partition: the target partition.
        topic_id: Kafka's id of the remote topic then.
        ranges: their downstream offsets as pairs `(first, length)`, ascending.
        reason: the person's reason.
    """

    removal: str
    flow: str
    partition: TopicPartition
    topic_id: str
    ranges: tuple[tuple[int, int], ...]
    reason: str = ""

    @property
    def records(self) -> int:
        """The number of tombstones."""
        return sum(length for _, length in self.ranges)

    def holds(self, offset: int) -> bool:
        """Return whether a downstream offset is one of these tombstones."""
        return lies_in(offset, self.ranges)


def write_tombstones(
    lake: Lake,
    target: str,
    offsets: Mapping[TopicPartition, Sequence[int]],
    *,
    removal: str,
    flow: str,
    reason: str,
    ids: Mapping[str, str],
    at: datetime,
) -> None:
    """Record the offsets of tombstones before their transaction commits; create the table if it is missing."""
    lake.create_side_table(TOMBSTONES)
    rows = []
    for tp, several in sorted(offsets.items()):
        ranges = ranges_of(sorted(several))
        rows.append(
            {
                "removal": removal,
                "flow": flow,
                "target": target,
                "topic": tp.topic,
                "partition": tp.partition,
                "first_offset": min(several),
                "last_offset": max(several),
                "ranges": [{"first": first, "length": length} for first, length in ranges],
                "record_count": len(several),
                "reason": reason,
                "sent_at": at,
                "target_topic_id": ids.get(tp.topic),
            }
        )
    lake.append_rows(TOMBSTONES, rows)


def read_tombstones(lake: Lake, target: str, *, at: tuple[TopicPartition, int] | None = None) -> list[Tombstones]:
    """List the tombstones on a target, or those at one downstream offset (`at`); a lake of an older release has none.

    Example:
        >>> sum(one.records for one in read_tombstones(lake, "central"))  # doctest: +SKIP
        3
    """
    text = "SELECT * FROM {tombstones} WHERE target = :target"
    if at is None:
        return [_of(row) for row in lake.query_rows(text, target=target, missing_ok=True, cache=True)]
    tp, offset = at
    here = " AND topic = :topic AND partition = :partition AND first_offset <= :offset AND last_offset >= :offset"
    rows = lake.query_rows(
        text + here, target=target, topic=tp.topic, partition=tp.partition, offset=offset, missing_ok=True
    )
    return [one for one in map(_of, rows) if one.holds(offset)]


def _of(row: Any) -> Tombstones:
    return Tombstones(
        removal=row.removal,
        flow=row.flow,
        partition=TopicPartition(row.topic, row.partition),
        topic_id=row.target_topic_id or "",
        ranges=tuple((int(part["first"]), int(part["length"])) for part in row.ranges or ()),
        reason=row.reason or "",
    )
