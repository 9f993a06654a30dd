"""Fix the cut that a verification compares, while flows go on running.

The ends of the remote topics are read first, then the ledgers, then the relays: each covers the one read before. Later records
are past the cut and count as not compared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa

from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.errors import ClusterError
from mirrorlake.lake import newest_topics, ranges_of
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.ranges import OffsetRange, Ranges
from mirrorlake.offsets import OffsetMaps, load_offset_maps, stable_ends
from mirrorlake.rules import View
from mirrorlake.verify.feeds import Feed, FeedKey, FeedTarget
from mirrorlake.verify.offset_columns import OffsetColumns

_FEED_COLUMNS = ("flow", "source_topic", "generation", "source_partition")
_RUN_COLUMNS = (
    f"{', '.join(_FEED_COLUMNS)}, first_upstream, last_upstream, holes, target_topic, target_partition, "
    "first_downstream, record_count, view"
)
_SPAN = [("topic", pa.string()), ("partition", pa.int32()), ("first", pa.int64()), ("end_at", pa.int64())]
_WANTED = pa.schema(_SPAN)
_DUE = pa.schema([("flow", pa.string()), ("generation", pa.int32()), *_SPAN])


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
            remotes |= {flow.remote_topic(name) for name in names if flow.source == alias and flow.carries(name)}
    ends = stable_ends(context.admin(flows[0].target), remotes, flows)
    return FixedCut(flows={flow.name: flow for flow in flows}, maps=load_offset_maps(context, flows), ends=ends)


def feeds_within(
    cut: FixedCut, due: Mapping[FeedKey, Ranges], views: Mapping[str, View] = MappingProxyType({})
) -> list[Feed]:
    rows = [
        {"flow": key.flow, **asdict(key.source), "first": span.first, "end_at": span.end}
        for key, spans in due.items()
        for span in spans
    ]
    if not rows:
        return []
    runs = cut.maps.table(
        f"SELECT {_RUN_COLUMNS} FROM {{runs}} AS r WHERE EXISTS (SELECT 1 FROM {{due}} AS d WHERE r.flow = d.flow "  # noqa: S608
        "AND r.source_topic = d.topic AND r.generation = d.generation AND r.source_partition = d.partition "
        "AND r.last_upstream >= d.first AND r.first_upstream < d.end_at)",
        tables={"due": pa.Table.from_pylist(rows, _DUE)},
    )
    feeds = _feeds(runs, views)
    return [replace(feed, offsets=feed.offsets.upstream_within(due[feed.key])) for feed in feeds]


def feeds_into(cut: FixedCut, spans: Mapping[TopicPartition, OffsetRange], views: Mapping[str, View]) -> list[Feed]:
    """Return the feeds of all flows that lead to some downstream offsets."""
    runs = cut.maps.table(
        f"SELECT {_RUN_COLUMNS} FROM {{runs}} AS r JOIN {{wanted}} AS w ON r.target_topic = w.topic "  # noqa: S608
        "AND r.target_partition = w.partition WHERE r.first_downstream < w.end_at "
        "AND r.first_downstream + r.record_count > w.first",
        tables={"wanted": range_table(spans.items())},
    )
    return _feeds(runs, views)


def range_table(ranges: Iterable[tuple[TopicPartition, OffsetRange]]) -> pa.Table:
    rows = [{**asdict(tp), "first": span.first, "end_at": span.end} for tp, span in ranges]
    return pa.Table.from_pylist(rows, _WANTED)


def _feeds(runs: pa.Table, views: Mapping[str, View]) -> list[Feed]:
    columns = [runs.column(name).to_pylist() for name in (*_FEED_COLUMNS, "target_topic", "target_partition", "view")]
    found: dict[tuple[Any, ...], tuple[list[int], list[tuple[Any, ...]]]] = {}
    for row, (*key, topic, partition, version) in enumerate(zip(*columns, strict=True)):
        rows, ways = found.setdefault(tuple(key), ([], []))
        rows.append(row)
        ways.append((topic, partition, version))
    feeds = []
    for (flow, *source), (rows, ways) in found.items():
        distinct = sorted(set(ways), key=lambda way: (*way[:2], way[2] or ""))
        numbers = {way: number for number, way in enumerate(distinct)}
        labels = np.array([numbers[way] for way in ways], np.int64)
        view = views.get(flow)
        feeds.append(
            Feed(
                key=FeedKey(flow, SourcePartition(*source)),
                offsets=OffsetColumns.from_runs(runs.take(pa.array(rows)), labels),
                targets=tuple(
                    FeedTarget(
                        tp=TopicPartition(topic, partition),
                        version=version,
                        view=view if version and view and view.version == version else None,
                    )
                    for topic, partition, version in distinct
                ),
            )
        )
    return feeds


def read_processed_offsets(flow: str, source: SourcePartition, cut: FixedCut) -> OffsetColumns:
    """Read the offsets of a source partition's records that a flow sent or withheld."""
    rows = cut.maps.ask(
        "SELECT first_upstream, last_upstream, holes FROM {fates} WHERE flow = :flow AND source_topic = :topic "
        "AND generation = :generation AND source_partition = :partition",
        flow=flow,
        **asdict(source),
    )
    return OffsetColumns.identity(Ranges.union([ranges_of(row) for row in rows]))
