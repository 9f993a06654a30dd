"""Fix the cut that a verification compares, while flows go on running.

The ends of the remote topics are read first, then the ledgers, then the relays: each covers the one read before. Later records
are past the cut and count as not compared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass

import numpy as np
import pyarrow as pa

from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.errors import ClusterError
from mirrorlake.lake import newest_topics
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.policy import TopicNameError
from mirrorlake.offsets import OffsetMaps, load_offset_maps, stable_ends
from mirrorlake.verify.offset_columns import OffsetColumns
from mirrorlake.verify.offset_ranges import OffsetRanges

RUN_COLUMNS = (
    "flow, source_topic, generation, source_partition, first_upstream, last_upstream, holes, target_topic, "
    "target_partition, first_downstream, record_count, view"
)
_DUE = pa.schema(
    [
        ("flow", pa.string()),
        ("topic", pa.string()),
        ("generation", pa.int32()),
        ("partition", pa.int32()),
        ("first", pa.int64()),
        ("end_at", pa.int64()),
    ]
)


@dataclass(frozen=True, slots=True, kw_only=True)
class FixedCut:
    """The offset maps of a target's flows, and the downstream offsets up to which they are complete.

    `flows` are these flows by name. A partition that `ends` lacks is compared up to the last mapped offset.
    """

    flows: Mapping[str, FlowConfig]
    maps: OffsetMaps
    ends: Mapping[TopicPartition, int]


def take_cut(context: Context, flows: Iterable[FlowConfig], *, lost: Collection[str] = ()) -> FixedCut:
    """Fix the cut of one target; `flows` are all that lead there. Read the versions of the relays afterwards.

    Sources in `lost` are not asked, which would cost their time-out; the lake knows their topics.

    Raises:
        ClusterError: the target does not answer.
    """
    flows = list(flows)
    remotes: set[str] = set()
    for alias in {flow.source for flow in flows}:
        try:
            is_lost = alias in lost
            names = [*newest_topics(context.lake, alias, "source")] if is_lost else context.source(alias).topic_names()
        except ClusterError:
            # Another flow's source; its remote topics are compared up to where the ledgers go.
            continue
        for flow in flows:
            remotes |= {remote for name in names if flow.source == alias and (remote := _remote(flow, name))}
    ends = stable_ends(context.admin(flows[0].target), remotes, flows)
    return FixedCut(
        flows={flow.name: flow for flow in flows}, maps=load_offset_maps(context.lake, flows, context), ends=ends
    )


def _remote(flow: FlowConfig, topic: str) -> str | None:
    try:
        return flow.remote_topic(topic) if flow.carries(topic) else None
    except TopicNameError:
        return None


def runs_within(cut: FixedCut, due: Iterable[tuple[str, SourcePartition, OffsetRanges]]) -> pa.Table | None:
    """Read the mapped ranges of flows that hold some upstream offsets; None for no offsets."""
    rows = [
        (flow, source.topic, source.generation, source.partition, span.first, span.end)
        for flow, source, spans in due
        for span in spans
    ]
    if not rows:
        return None
    return cut.maps.table(
        f"SELECT {RUN_COLUMNS} FROM {{runs}} AS r WHERE EXISTS (SELECT 1 FROM {{due}} AS d WHERE r.flow = d.flow "  # noqa: S608
        "AND r.source_topic = d.topic AND r.generation = d.generation AND r.source_partition = d.partition "
        "AND r.last_upstream >= d.first AND r.first_upstream < d.end_at)",
        tables={"due": pa.Table.from_pylist([dict(zip(_DUE.names, row, strict=True)) for row in rows], schema=_DUE)},
    )


def read_sent_offsets(flow: str, source: SourcePartition, cut: FixedCut) -> OffsetColumns:
    """Read the offsets of a source partition's records that a flow sent."""
    runs = cut.maps.table(
        "SELECT first_upstream, last_upstream, holes, first_downstream FROM {runs} WHERE flow = :flow "
        "AND source_topic = :topic AND generation = :generation AND source_partition = :partition",
        flow=flow,
        **asdict(source),
    )
    return OffsetColumns.from_runs(runs, np.zeros(len(runs), np.int64))


def read_withheld_offsets(flow: str, source: SourcePartition, cut: FixedCut) -> OffsetColumns:
    """Read the offsets of a source partition's records that a flow withheld."""
    rows = cut.maps.ask(
        "SELECT ranges FROM {kept} WHERE flow = :flow AND topic = :topic AND generation = :generation "
        "AND partition = :partition",
        flow=flow,
        **asdict(source),
    )
    spans = OffsetRanges((part["first"], part["first"] + part["length"]) for row in rows for part in row.ranges)
    return OffsetColumns.identity((span, 0) for span in spans)
