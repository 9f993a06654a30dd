"""Find a record of one side on the other sides."""

from __future__ import annotations

from collections.abc import Iterable

from mirrorlake.config.schema import FlowConfig
from mirrorlake.errors import UsageError
from mirrorlake.mirror import Mirror
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.offset_map import Exact, Translation
from mirrorlake.records import BrowsedRecord


def named_on(flow: FlowConfig, side: str, topic: str) -> tuple[str, str]:
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


def find_on_target(mirror: Mirror, flow: str, source: TopicPartition, offset: int) -> tuple[int, int] | str:
    """Return partition and offset on the target of a source record, or of the next one there; or why there is none."""
    found = mirror.translate(flow, topic=source.topic, partition=source.partition, offset=offset)
    if isinstance(found, Exact):
        return found.partition.partition, found.offset
    resume = getattr(found, "resume_at", None)
    if resume is None:
        return f"{source}@{offset} has no counterpart: {found.sheet().summary()}"
    return source.partition, resume


def find_on_source(mirror: Mirror, flow: str, records: Iterable[BrowsedRecord]) -> tuple[int, int] | None:
    """Return partition and offset on the source of the first of these target records that the flow wrote, or None."""
    for record in records:
        found = mirror.translate(
            flow, topic=record.topic, partition=record.partition, offset=record.offset, reverse=True
        )
        if isinstance(found, Exact):
            return found.partition.partition, found.offset
    return None


def find_flow(mirror: Mirror, cluster: str, topic: str, partition: int, offset: int) -> tuple[str, str, str]:
    """Return the side of a record, the flow that reads or wrote it, and the topic's name on the source."""
    for flow in mirror.config.flows:
        if flow.source == cluster and flow.carries(topic):
            return "source", flow.name, topic
    for flow in mirror.config.flows:
        if flow.target == cluster:
            source = mirror.translate(flow.name, topic=topic, partition=partition, offset=offset, reverse=True)
            if isinstance(source, Exact):
                return "target", flow.name, source.partition.topic
    raise UsageError(
        f"no flow carries {topic} from {cluster}, and none wrote {topic}-{partition}@{offset} there",
        remedy="mirrorlake topics --cluster shows what is mirrored where",
    )


def _place(found: Translation) -> tuple[str, int, int] | None:
    return (found.partition.topic, found.partition.partition, found.offset) if isinstance(found, Exact) else None
