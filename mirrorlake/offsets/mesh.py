"""Positions of readers between clusters that mirror each other, by flows that write hop headers.

Law A (never ahead): a position skips neither an unread record of the target's own nor one of another region. All maps of the
mesh together show which of them a reader has read (`mirrorlake.model.interleaved`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from mirrorlake.config.schema import FlowConfig
from mirrorlake.kafka import ClusterAdmin
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.groups import PositionCheck, Resume
from mirrorlake.model.interleaved import END, CopiedSpans, Interleaved
from mirrorlake.model.loops.routes import MAX_PLACES, TopicPlace, arrival, ways_from
from mirrorlake.offsets.neighbours import ReadPosition, to_mapped_range
from mirrorlake.offsets.offset_maps import OffsetMaps
from mirrorlake.offsets.shared_partitions import Positions, PositionsByFlow, RelatedFlows
from mirrorlake.rules import RULE
from mirrorlake.topics import refused

_Key = tuple[str, str, int]
"""A flow, its source topic and its partition."""

_CARRIED = """
    SELECT DISTINCT flow, source_topic, generation, source_partition, target_topic, target_partition, first_upstream,
        last_upstream, first_downstream, record_count, holes
    FROM {runs} WHERE array_contains(:flows, flow) AND array_contains(:topics, source_topic)
"""
_WITHHELD = """
    SELECT flow, topic, generation, partition, ranges FROM {kept}
    WHERE array_contains(:flows, flow) AND (rule IS NULL OR rule <> :loop)
"""

Hops = Mapping[tuple[TopicPlace, TopicPlace], FlowConfig]
"""The flow that leads from one topic directly to another."""

Routes = Mapping[tuple[TopicPlace, TopicPlace], tuple[TopicPlace, ...]]
"""The topics on the route of records, by origin and destination."""


def find_hops(related: RelatedFlows) -> Hops:
    """Return the flow of a mesh between each two topics that it connects.

    A topic counts from the moment a flow brings records to it, also before it is landed from there. Its cluster's own
    records are unknown until then and count as unread (law A).
    """
    found: dict[tuple[TopicPlace, TopicPlace], FlowConfig] = {}
    flows = sorted(related.mesh, key=lambda each: (each.target, each.name))
    places = list(
        dict.fromkeys(TopicPlace(flow.source, topic) for flow in flows for topic in related.topics[flow.name])
    )
    seen = set(places)
    for place in places:
        for flow in flows:
            end = arrival(flow, place.topic) if flow.source == place.alias else None
            if end is None:
                continue
            found.setdefault((place, end), flow)
            if end not in seen and len(places) < MAX_PLACES:
                seen.add(end)
                places.append(end)
    return found


def find_routes(related: RelatedFlows) -> Routes:
    starts = {start for start, _ in find_hops(related)}
    return {(start, place): way for start in starts for place, way in ways_from(start, related.mesh).items()}


class Mesh:
    """The logs of a flow's remote topics and of the topics that feed them; `known` is the result of `stable_ends`."""

    def __init__(
        self, related: RelatedFlows, maps: OffsetMaps, *, target: ClusterAdmin, known: Mapping[TopicPartition, int]
    ) -> None:
        self._related = related
        self._maps = maps
        self._target = target
        self._known = known
        self._places = find_hops(related)
        self._ways = find_routes(related)
        self._logs: dict[int, Interleaved] = {}
        self._earliest: Mapping[TopicPartition, int] = {}

    def resume(
        self, translated: Positions, readers: PositionsByFlow, checks: Mapping[tuple[str, ReadPosition], PositionCheck]
    ) -> dict[tuple[str, TopicPartition], Resume]:
        """Return the positions of readers, by reader and target partition.

        `translated` are the positions on the flow's source to translate, whether the reader or mirrorlake set them.
        `readers` are the readers' own commits on every cluster of the mesh. `checks` are the checks of positions on
        the sources of flows into the remote topics.
        """
        flow = self._related.flows[0]
        asked = {
            (reader, TopicPartition(flow.remote_topic(source.topic), source.partition)): (source, held.offset)
            for (reader, source), held in translated.items()
        }
        wanted = {remote for _, remote in asked}
        existing = self._target.describe({tp.topic for tp in wanted})
        there = {tp for tp in wanted if tp.topic in existing and tp.partition < existing[tp.topic].partitions}
        self._earliest = self._target.log_start_offsets(there)
        own: dict[tuple[str, int], list[tuple[str, ReadPosition]]] = {}
        for name, positions in readers.items():
            for (reader, source), held in positions.items():
                own.setdefault((reader, source.partition), []).append((name, (source, held.offset)))
        return {
            (reader, remote): self._resume_one(one, remote, own.get((reader, remote.partition), ()), checks)
            for (reader, remote), one in asked.items()
        }

    def _resume_one(
        self,
        translated: ReadPosition,
        remote: TopicPartition,
        own: Sequence[tuple[str, ReadPosition]],
        checks: Mapping[tuple[str, ReadPosition], PositionCheck],
    ) -> Resume:
        flow = self._related.flows[0]
        goal = TopicPlace(flow.target, remote.topic)
        read, checked = self._read(goal, own, checks)
        source, offset = translated
        held = Resume(source=source, upstream_offset=offset, target=remote, downstream_offset=None, exact=False)
        why = refused(flow, self._related.mesh) or next((one.reason for one in checked if not one.is_safe), None)
        if why is not None:
            return replace(held, reason=why)
        if remote not in self._earliest:
            return replace(held, reason=f"{remote} does not exist on {flow.target} yet")
        if remote not in self._known:
            return replace(held, reason=f"a transaction into {flow.target} is open: not all records are known")
        answer = self._interleaved(remote.partition).answer(goal, read, known_to=self._known[remote])
        earliest = self._earliest[remote]
        waiting = [one.again for one in checked]
        again = None if None in waiting else answer.again + sum(count for count in waiting if count is not None)
        reason = next((one.reason for one in checked if one.reason), "")
        if answer.again:
            whose = answer.decides
            first = (
                f"{whose.alias}'s own record" if whose is not None else f"a record that {goal.alias} has not sent on"
            )
            reason = f"the logs interleave: {first} is the first that it has not read" + (reason and f"; {reason}")
        return replace(
            held,
            downstream_offset=earliest if answer.position is None else max(answer.position, earliest),
            exact=all(one.exact for one in checked) and not answer.again,
            records_again=again,
            reason=reason,
        )

    def _read(
        self,
        goal: TopicPlace,
        own: Sequence[tuple[str, ReadPosition]],
        checks: Mapping[tuple[str, ReadPosition], PositionCheck],
    ) -> tuple[dict[TopicPlace, int], list[PositionCheck]]:
        """Return a reader's positions by topic, and the checks of those that lead directly to the target."""
        flows = {flow.name: flow for flow in self._related.all_flows}
        straight = {flow.name for flow in self._related.flows}
        read: dict[TopicPlace, int] = {}
        checked: list[PositionCheck] = []
        for name, (source, offset) in own:
            place = TopicPlace(flows[name].source, source.topic)
            read[place] = offset
            if name in straight and flows[name].remote_topic(source.topic) == goal.topic:
                check = checks.get((name, (source, offset)), PositionCheck())
                # Copies at the end of the source need not be landed from there: the maps show that they are copies.
                is_sure = check.is_safe and not self._interleaved(source.partition).may_follow(place, goal, offset)
                checked.append(PositionCheck() if is_sure else check)
        return dict(sorted(read.items())), checked

    def _interleaved(self, partition: int) -> Interleaved:
        if partition not in self._logs:
            copied = {
                places: CopiedSpans(
                    self._read_dense_ranges.get((flow.name, places[0].topic, partition), ()),
                    position=self._position(flow, places[0].topic, partition),
                    withheld=self._withheld.get((flow.name, places[0].topic, partition), ()),
                    whole=flow.start.kind == "earliest",
                )
                for places, flow in self._places.items()
            }
            self._logs[partition] = Interleaved(copied, self._ways)
        return self._logs[partition]

    def _position(self, flow: FlowConfig, topic: str, partition: int) -> int:
        known = self._related.topics[flow.name].get(topic)
        life = 1 if known is None else known.generation_of(partition)
        return self._maps.positions[flow.name].get(SourcePartition(topic, life, partition), 0)

    @cached_property
    def _read_dense_ranges(self) -> dict[_Key, list[tuple[int, int, int]]]:
        """The ranges that the flows sent of the newest generation of each topic; 24 bytes a range, for all topics of the mesh."""
        names = [flow.name for flow in self._related.mesh]
        topics = sorted({start.topic for start, _ in self._places})
        found: dict[_Key, list[tuple[int, int, int]]] = {}
        for row in self._maps.ask(_CARRIED, flows=names, topics=topics):
            run = to_mapped_range(row)
            valid_to = self._valid_to(row.flow, run.source)
            for first, last, downstream in run.dense_ranges():
                if first < valid_to:
                    stretch = first, downstream, min(last + 1, valid_to) - first
                    found.setdefault((row.flow, run.source.topic, run.source.partition), []).append(stretch)
        return found

    @cached_property
    def _withheld(self) -> dict[_Key, list[tuple[int, int]]]:
        """The records that rules withheld, without loops: a looping record comes over another route."""
        names = [flow.name for flow in self._related.mesh]
        found: dict[_Key, list[tuple[int, int]]] = {}
        for row in self._maps.ask(_WITHHELD, flows=names, loop=RULE):
            valid_to = self._valid_to(row.flow, SourcePartition(row.topic, row.generation, row.partition))
            for part in row.ranges:
                first, end = part["first"], min(part["first"] + part["length"], valid_to)
                if first < end:
                    found.setdefault((row.flow, row.topic, row.partition), []).append((first, end))
        return found

    def _valid_to(self, flow: str, source: SourcePartition) -> int:
        """Return the end of a generation's offsets in the source's log: its truncation, or 0 for a deleted topic's generation."""
        known = self._related.topics[flow].get(source.topic)
        if known is None or source.generation < known.generation:
            return 0
        later = (
            cut for cut in known.truncations if cut.partition == source.partition and cut.generation > source.generation
        )
        return min((cut.first_offset for cut in later), default=END)
