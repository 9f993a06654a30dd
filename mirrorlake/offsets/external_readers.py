"""Readers with offsets outside of Kafka: Spark queries, and programs with offsets in a file or database.

Their positions are translated like those of consumer groups (law A), and returned in the given shape.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.errors import UsageError
from mirrorlake.kafka import Committed
from mirrorlake.lake import Lake, SourceTopics, kafka_positions, last_kafka_offsets
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.groups import Resume
from mirrorlake.offsets.maps import related_flows
from mirrorlake.offsets.resume import resume_readers
from mirrorlake.render import Displayable, Sheet, badge, plural, table

_SHAPES = '{"orders": {"0": 17}} as Spark has it, or [{"topic": "orders", "partition": 0, "offset": 17}]'


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class MovedPositions(Displayable):
    """Positions on the target in the given shape, and the verdict on each.

    `document` omits positions without a safe counterpart; `held` explains them.
    """

    document: Any
    resumes: tuple[Resume, ...]

    @property
    def held(self) -> tuple[Resume, ...]:
        """The positions without a safe counterpart."""
        return tuple(resume for resume in self.resumes if resume.downstream_offset is None)

    def sheet(self) -> Sheet:
        """Show the position of each partition, those without a safe counterpart first, and the document."""
        columns = ["source", "upstream", "target", "downstream", "reads again", "reason"]
        rows = [
            (
                *(str(r.source), str(r.upstream_offset), str(r.target)),
                None if r.downstream_offset is None else str(r.downstream_offset),
                r.records_again,
                r.reason or ("exact" if r.exact else None),
            )
            for r in sorted(self.resumes, key=lambda r: r.downstream_offset is not None)
        ]
        return Sheet(
            title="positions",
            badge=badge(f"{len(self.held)} held back", "warn") if self.held else badge("ok"),
            facts=(plural(len(rows), "partition"),),
            parts=(*([table("", columns, rows)] if rows else []), json.dumps(self.document)),
        )


def spark_positions(lake: Lake, checkpoint_location: str) -> dict[str, dict[str, int]]:
    """Return the next offsets of a Spark query on Kafka from its checkpoint location, as `startingOffsets`.

    A planned but unfinished batch counts as unread, because Spark would run it again, too.
    """
    found = last_kafka_offsets(lake, checkpoint_location)
    if not found:
        raise UsageError(
            f"{checkpoint_location} holds no finished batch of a query that reads Kafka",
            remedy="name the folder that holds `offsets` and `commits`",
        )
    return found


def move_positions(lake: Lake, flow: FlowConfig, document: Any, clusters: Context) -> MovedPositions:
    """Return the positions on the target of a flow for a reader with these positions (next offset to read).

    `document` is Spark's `startingOffsets`, where -2 (earliest) and -1 (latest) stay unchanged; or a list of `topic`,
    `partition`, `offset`.

    UsageError also for earliest or latest of a source partition whose records are in other partitions of the target.
    """
    is_spark = isinstance(document, Mapping)
    given = _given(document)
    stray = sorted({tp.topic for tp in given if not flow.carries(tp.topic)})
    if stray:
        raise UsageError(
            f"{flow.name} does not carry {', '.join(stray)}",
            remedy="leave these topics out, or name the flow that carries them",
        )
    known = SourceTopics(lake, flow.source).load()
    sources = {
        tp: SourcePartition(
            tp.topic, known[tp.topic].generation_at(tp.partition, offset) if tp.topic in known else 1, tp.partition
        )
        for tp, offset in given.items()
    }
    moved: dict[TopicPartition, int] = {}
    if flow.placement.kind == "keep":
        moved = {TopicPartition(flow.remote_topic(tp.topic), tp.partition): o for tp, o in given.items() if o < 0}
    elif any(offset < 0 for offset in given.values()):
        raise UsageError(
            f"{flow.name} places records in other partitions than the source, so earliest and latest cannot be translated",
            remedy="give a number as the offset of each partition",
        )
    readers = {flow.name: {("", sources[tp]): Committed(offset) for tp, offset in given.items() if offset >= 0}}
    found = resume_readers(lake, related_flows(lake, flow, clusters.config.flows), readers, clusters)
    resumes = {target: resume for (_, target), resume in found.items()}
    moved |= {
        target: resume.downstream_offset for target, resume in resumes.items() if resume.downstream_offset is not None
    }
    return MovedPositions(document=_shaped(moved, as_spark=is_spark), resumes=tuple(resumes.values()))


def _given(document: Any) -> dict[TopicPartition, int]:
    try:
        if isinstance(document, Mapping):
            return kafka_positions({topic: {p: int(o) for p, o in parts.items()} for topic, parts in document.items()})
        return {TopicPartition(row["topic"], int(row["partition"])): int(row["offset"]) for row in document}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        text = json.dumps(document, default=str)[:80]
        raise UsageError(f"these are not positions: {text}", remedy=f"give them as {_SHAPES}") from error


def _shaped(moved: Mapping[TopicPartition, int], *, as_spark: bool) -> Any:
    if not as_spark:
        return [
            {"topic": tp.topic, "partition": tp.partition, "offset": offset} for tp, offset in sorted(moved.items())
        ]
    document: dict[str, dict[str, int]] = {}
    for tp, offset in sorted(moved.items()):
        document.setdefault(tp.topic, {})[str(tp.partition)] = offset
    return document
