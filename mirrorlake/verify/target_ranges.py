"""Choose the downstream offsets to fetch from a target: due ones and their surroundings."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.ranges import UNBOUNDED, OffsetRange, Ranges
from mirrorlake.verify.cut import FixedCut, range_table
from mirrorlake.verify.feeds import Feed
from mirrorlake.verify.offset_columns import OffsetColumns, join_columns
from mirrorlake.verify.scope import Scope

# Reading this many proven records again costs less than another pass.
_NEAR = 50_000


def ranges_to_fetch(
    cut: FixedCut,
    due: Iterable[Feed],
    held: Mapping[TopicPartition, OffsetRange],
    last_ends: Mapping[TopicPartition, int],
    scope: Scope,
) -> dict[TopicPartition, Ranges]:
    """Return the downstream offsets to fetch: all due ones, up to the nearest proven records."""
    near: dict[TopicPartition, list[OffsetColumns]] = {tp: [] for tp in held}
    for feed in due:
        for tp in {way.tp for way in feed.targets} & held.keys():
            near[tp].append(feed.to(tp).downstream_within(*held[tp]))
    wanted = {tp: _stretched(join_columns(parts)) for tp, parts in near.items()}
    bounds = _neighbours(cut, wanted)
    ranges = {}
    for tp, spans in wanted.items():
        found = []
        for span in spans:
            before, after = bounds[tp, span]
            found.append((max(held[tp].first, before), min(held[tp].end, after)))
        if scope.is_whole and (not spans or bounds[tp, tuple(spans)[-1]][1] < UNBOUNDED):
            # No record may follow the last record of the flows, so the rest is fetched, too.
            found.append((max(held[tp].first, last_ends[tp]), held[tp].end))
        ranges[tp] = Ranges(found)
    return ranges


def _stretched(places: OffsetColumns) -> Ranges:
    joined = Ranges.from_columns(places.downstream, places.downstream + places.lengths + _NEAR)
    return Ranges.from_columns(joined.firsts, joined.ends - _NEAR)


def _neighbours(
    cut: FixedCut, wanted: Mapping[TopicPartition, Ranges]
) -> dict[tuple[TopicPartition, OffsetRange], tuple[int, int]]:
    """Return for each range the end of the records before it and the start of those after it."""
    if not any(wanted.values()):
        return {}
    found = cut.maps.ask(
        "SELECT w.topic, w.partition, w.first, w.end_at, "
        "max(CASE WHEN r.first_downstream < w.first "
        "THEN least(r.first_downstream + r.record_count, w.first) END) AS before, "
        "min(CASE WHEN r.first_downstream + r.record_count > w.end_at "
        "THEN greatest(r.first_downstream, w.end_at) END) AS after "
        "FROM {wanted} AS w JOIN {runs} AS r ON r.target_topic = w.topic AND r.target_partition = w.partition "
        "GROUP BY w.topic, w.partition, w.first, w.end_at",
        tables={"wanted": range_table((tp, span) for tp, spans in wanted.items() for span in spans)},
    )
    return {
        (TopicPartition(row.topic, row.partition), OffsetRange(row.first, row.end_at)): (
            int(row.first if row.before is None else row.before),
            int(UNBOUNDED if row.after is None else row.after),
        )
        for row in found
    }
