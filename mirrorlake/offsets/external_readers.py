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
from mirrorlake.lake import SourceTopics, kafka_positions, last_kafka_offsets, source_at
from mirrorlake.model.flow import TopicPartition
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
                *map(str, (one.source, one.upstream_offset, one.target)),
                None if one.downstream_offset is None else str(one.downstream_offset),
                one.records_again,
                one.reason or ("exact" if one.exact else None),
            )
            for one in sorted(self.resumes, key=lambda one: one.downstream_offset is not None)
        ]
        return Sheet(
            title="positions",
            badge=badge(f"{len(self.held)} held back", "warn") if self.held else badge("ok"),
            facts=(plural(len(rows), "partition"),),
            parts=(*([table("", columns, rows)] if rows else []), json.dumps(self.document)),
        )


def move_spark_query(context: Context, flow: FlowConfig, checkpoint_location: str) -> MovedPositions:
    """Translate the next offsets of a Spark query on Kafka; a planned but unfinished batch counts as unread, as for Spark."""
    document = last_kafka_offsets(context.lake, checkpoint_location)
    if not document:
        raise UsageError(
            f"{checkpoint_location} holds no finished batch of a query that reads Kafka",
            remedy="name the folder that holds `offsets` and `commits`",
        )
    return move_positions(context, flow, document)


def move_positions(context: Context, flow: FlowConfig, document: Any) -> MovedPositions:
    """Return the positions on the target of a flow for a reader with these positions (next offset to read).

    `document` is Spark's `startingOffsets`, where -2 (earliest) and -1 (latest) stay unchanged; or a list of `topic`,
    `partition`, `offset`.

    UsageError also for earliest or latest of a source partition whose records are in other partitions of the target.
    """
    lake, given = context.lake, _read(document)
    if stray := sorted({tp.topic for tp in given if not flow.carries(tp.topic)}):
        raise UsageError(
            f"{flow.name} does not carry {', '.join(stray)}",
            remedy="leave these topics out, or name the flow that carries them",
        )
    moved = {TopicPartition(flow.remote_topic(tp.topic), tp.partition): at for tp, at in given.items() if at < 0}
    if moved and flow.placement.kind != "keep":
        raise UsageError(
            f"{flow.name} places records in other partitions than the source, so earliest and latest cannot be translated",
            remedy="give a number as the offset of each partition",
        )
    known = SourceTopics(lake, flow.source).load()
    readers = {flow.name: {("", source_at(known, tp, at)): Committed(at) for tp, at in given.items() if at >= 0}}
    resumes = resume_readers(context, related_flows(context, flow), readers).values()
    moved |= {one.target: one.downstream_offset for one in resumes if one.downstream_offset is not None}
    shaped: Any = [{"topic": tp.topic, "partition": tp.partition, "offset": at} for tp, at in sorted(moved.items())]
    if isinstance(document, Mapping):
        by_topic: dict[str, dict[str, int]] = {}
        for tp, at in sorted(moved.items()):
            by_topic.setdefault(tp.topic, {})[str(tp.partition)] = at
        shaped = by_topic
    return MovedPositions(document=shaped, resumes=tuple(resumes))


def _read(document: Any) -> dict[TopicPartition, int]:
    try:
        if isinstance(document, Mapping):
            return {tp: int(at) for tp, at in kafka_positions(document).items()}
        return {TopicPartition(row["topic"], int(row["partition"])): int(row["offset"]) for row in document}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        text = json.dumps(document, default=str)[:80]
        raise UsageError(f"these are not positions: {text}", remedy=f"give them as {_SHAPES}") from error
