"""Return groups to the old source: translate what they read on remote topics back by the flow's offset map.

Law A (never ahead): a group goes on right after the last record that it has read, of all target partitions that its source
partition feeds, and never past the first that it has not. What it has read on the source itself is never taken back.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa

from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.errors import MirrorlakeError
from mirrorlake.kafka import Committed
from mirrorlake.lake import newest_topics
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.groups import GroupPlan, GroupPosition, Resume, decide
from mirrorlake.model.offset_map import resume_offset
from mirrorlake.offsets import OffsetMaps, load_offset_maps, to_mapped_range, with_redrives

_CommittedByGroup = Mapping[str, Mapping[TopicPartition, Committed]]
_FROM = tuple[TopicPartition, SourcePartition]


def plan_groups_back(context: Context, flow: FlowConfig, *, only: Collection[str] | None = None) -> GroupPlan:
    """Plan the position of each group at the flow's source, from its commits on the remote topics."""
    maps = load_offset_maps(context, with_redrives(context, [flow]))
    known = newest_topics(context.lake, flow.source, "source", missing_ok=True)
    feeding: dict[SourcePartition, set[TopicPartition]] = {}
    for row in maps.ask(_FEEDING, flow=flow.name):
        source = SourcePartition(row.source_topic, row.generation, row.source_partition)
        # Earlier generations of a topic have no offsets on the source any more.
        if source.topic in known and source.generation == known[source.topic].generation_of(source.partition):
            feeding.setdefault(source, set()).add(TopicPartition(row.target_topic, row.target_partition))
    unsure: dict[str, MirrorlakeError] = {}
    held = _committed(context, flow, {tp for targets in feeding.values() for tp in targets}, only, unsure)
    around = _find_neighbours(maps, flow, held)
    source_groups = context.groups(flow.source)
    active = source_groups.active()
    places = [s.tp for s in feeding]
    there = source_groups.committed(held, places, unsure=unsure)
    rows: list[GroupPosition] = []
    for group, positions in held.items():
        for source, targets in feeding.items():
            read_from = sorted(targets & positions.keys())
            if not read_from:
                continue
            resume = _resume(source, sorted(targets), positions, around)
            at = there.get(group, {}).get(resume.target)
            metadata = positions[read_from[0]].metadata if len(targets) == 1 else ""
            rows.append(
                decide(
                    group,
                    resume,
                    metadata=metadata,
                    target_offset=at.offset if at is not None else None,
                    is_active=group in active,
                    where=flow.source,
                )
            )
    rows.sort(key=lambda row: (row.group, row.resume.target))
    return GroupPlan(flow.name, tuple(rows)).unsure(unsure)


def _committed(
    context: Context,
    flow: FlowConfig,
    partitions: Collection[TopicPartition],
    only: Collection[str] | None,
    unsure: dict[str, MirrorlakeError],
) -> _CommittedByGroup:
    groups = context.groups(flow.target)
    names = [
        name
        for name in groups.states()
        if flow.group_selection.matches(name) and not name.startswith("mirrorlake.") and (only is None or name in only)
    ]
    return {group: held for group, held in groups.committed(names, partitions, unsure=unsure).items() if held}


def _find_neighbours(
    maps: OffsetMaps, flow: FlowConfig, held: _CommittedByGroup
) -> dict[tuple[_FROM, int], tuple[int | None, int | None]]:
    """Return the upstream offsets of the records before and at each target position."""
    asked = sorted({(tp.topic, tp.partition, one.offset) for found in held.values() for tp, one in found.items()})
    # A partition without a group position counts as not read.
    asked += sorted({(topic, partition, 0) for topic, partition, _ in asked if (topic, partition, 0) not in asked})
    points = pa.Table.from_pylist([dict(zip(_POINTS.names, one, strict=True)) for one in asked], _POINTS)
    found: dict[tuple[_FROM, int], tuple[int | None, int | None]] = {}
    rows = maps.ask(_NEIGHBOURS, flow=flow.name, is_ordered=True, tables={"points": points})
    # A quarantine is sent again in any order of its offsets.
    for row in rows + maps.ask(_NEIGHBOURS, flow=flow.redrive_name, is_ordered=False, tables={"points": points}):
        run, at = to_mapped_range(row), int(row.at)
        last = run.upstream_of(min(at - 1, run.last_downstream)) if run.first_downstream < at else None
        unread = run.upstream_of(max(at, run.first_downstream)) if run.last_downstream >= at else None
        key = (run.target, run.source), at
        before = found.get(key, (None, None))
        found[key] = (
            max((one for one in (before[0], last) if one is not None), default=None),
            min((one for one in (before[1], unread) if one is not None), default=None),
        )
    return found


def _resume(
    source: SourcePartition,
    targets: list[TopicPartition],
    positions: Mapping[TopicPartition, Committed],
    around: Mapping[tuple[_FROM, int], tuple[int | None, int | None]],
) -> Resume:
    places = {tp: positions[tp].offset if tp in positions else 0 for tp in targets}
    known = [around.get(((tp, source), at), (None, None)) for tp, at in places.items()]
    read = [last for last, _ in known if last is not None]
    position = resume_offset(read, [unread for _, unread in known if unread is not None])
    first = next(tp for tp in targets if tp in positions)
    # Only if records went to several partitions may it have read some past the first unread one.
    again = 0 if position is None or max(read, default=-1) < position else None
    reason = "" if position is not None else "nothing of this partition stands in the remote topic"
    return Resume(
        source=SourcePartition(first.topic, 1, first.partition),
        upstream_offset=places[first],
        target=source.tp,
        downstream_offset=position,
        exact=again == 0 and position is not None,
        records_again=again,
        reason=reason,
    )


_POINTS = pa.schema({"topic": pa.string(), "partition": pa.int32(), "at": pa.int64()})
_KEY = "source_topic, generation, source_partition, target_topic, target_partition"
_FEEDING = f"SELECT DISTINCT {_KEY} FROM {{runs}} WHERE flow = :flow"  # noqa: S608  names of columns
_NEIGHBOURS = f"""
    WITH placed AS (
        SELECT {", ".join(f"r.{name.strip()}" for name in _KEY.split(","))}, p.at, r.first_upstream, r.last_upstream,
            r.first_downstream, r.record_count, r.holes,
            CASE WHEN r.first_downstream < p.at THEN 1 ELSE 0 END AS begins_before,
            CASE WHEN r.first_downstream + r.record_count > p.at THEN 1 ELSE 0 END AS ends_after
        FROM {{runs}} AS r JOIN {{points}} AS p ON p.topic = r.target_topic AND p.partition = r.target_partition
        WHERE r.flow = :flow
    ),
    ranked AS (
        SELECT *,
            row_number() OVER (PARTITION BY {_KEY}, at, begins_before ORDER BY first_downstream DESC) AS from_last,
            row_number() OVER (PARTITION BY {_KEY}, at, ends_after ORDER BY first_downstream) AS from_first
        FROM placed
    )
    SELECT {_KEY}, at, first_upstream, last_upstream, first_downstream, record_count, holes FROM ranked
    WHERE (begins_before = 1 AND from_last = 1) OR (ends_after = 1 AND (from_first = 1 OR NOT :is_ordered))
"""  # noqa: S608  names of columns
