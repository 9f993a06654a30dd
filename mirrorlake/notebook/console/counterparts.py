"""Find a record of one side on the other sides."""

from __future__ import annotations

from mirrorlake.config.schema import FlowConfig
from mirrorlake.mirror import Mirror
from mirrorlake.model.offset_map import Exact, Translation
from mirrorlake.records import BrowsedRecord


def named_on(flow: FlowConfig, side: str, topic: str) -> tuple[str, str]:
    """Return the cluster and topic name of a side."""
    return (flow.target, flow.remote_topic(topic)) if side == "target" else (flow.source, topic)


def find_counterparts(mirror: Mirror, flow: str, side: str, record: BrowsedRecord) -> dict[str, tuple[str, int, int]]:
    """Return topic, partition and offset of a record by side, without the sides that do not have it (yet)."""
    here = (record.topic, record.partition, record.offset)
    there = _place(
        mirror.translate(
            flow,
            topic=record.topic,
            partition=record.partition,
            offset=record.offset,
            generation=record.generation,
            reverse=side == "target",
        )
    )
    if side == "target":
        return {"target": here} if there is None else {"target": here, "source": there, "relay": there}
    same = {"source": here, "relay": here}
    return same if there is None else {**same, "target": there}


def _place(found: Translation) -> tuple[str, int, int] | None:
    return (found.partition.topic, found.partition.partition, found.offset) if isinstance(found, Exact) else None
