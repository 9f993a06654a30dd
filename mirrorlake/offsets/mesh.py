"""Where readers go on between clusters that mirror each other: pairs, rings and meshes of flows that write where records were.

Law A (never ahead): a position counts the target's own records, and those of every other region, among what may not be
skipped; all maps of the mesh together tell which of them a reader has read (`mirrorlake.model.interleaved`).
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
from mirrorlake.model.loops.routes import MAX_PLACES, TopicPlace, arrival, tree_from, way
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
"""The flow that leads from one place straight to another."""

Routes = Mapping[tuple[TopicPlace, TopicPlace], tuple[TopicPlace, ...]]
"""The places on the way of records, from their origin to where they come."""


def find_hops(related: RelatedFlows) -> Hops:
    """Find which flow of a mesh leads from which topic to which.

    A topic counts from when a flow brings it, landed there or not: what its cluster wrote into it itself is not known then,
    so it counts as not read (law A).
    """
    found: dict[tuple[TopicPlace, TopicPlace], FlowConfig] = {}
    flows = sorted(related.mesh, key=lambda each: (each.target, each.name))
    places = list(
        dict.fromkeys(TopicPlace(flow.source, topic) for flow in flows for topic in related.topics[flow.name])
    )
    seen = set(places)
    for place in places:
        for flow in flows:
            end = arrival(flow.route, place.topic) if flow.source == place.alias else None
            if end is None:
                continue
            found.setdefault((place, end), flow)
            if end not in seen and len(places) < MAX_PLACES:
                seen.add(end)
                places.append(end)
    return found


def find_routes(related: RelatedFlows) -> Routes:
    """Find the ways of a mesh's records, each from its origin."""
    routes = [flow.route for flow in related.mesh]
    trees = {start: tree_from(start, routes) for start, _ in find_hops(related)}
    return {(start, place): way(tree, place) for start, tree in trees.items() for place in tree.clusters}


class Mesh:
    """The logs of a flow's remote topics and of all that feeds them; `known` is what `stable_ends` says of them."""

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
        """Find where readers go on, by reader and target partition.

        `translated` are the positions to translate, on the flow's source, whoever set them; `readers` what the readers have committed
        themselves, on every cluster of the mesh; `checks` what is said of each position on the source of a flow into the remote topics.
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
            return replace(held, reason=f"a transaction into {flow.target} is under way: not all records are known")
        answer = self._interleaved(remote.partition).answer(goal, read, known_to=self._known[remote])
        earliest = self._earliest[remote]
        waiting = [one.again for one in checked]
        again = None if None in waiting else answer.again + sum(count for count in waiting if count is not None)
        reason = next((one.reason for one in checked if one.reason), "")
        if answer.again:
            whose = answer.decides
            first = f"{whose.alias}'s own record" if whose is not None else f"what {goal.alias} has not handed on yet"
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
        """Find what a reader has read by place, and what is said of its positions where they lead straight to the target."""
        flows = {flow.name: flow for flow in self._related.all_flows}
        straight = {flow.name for flow in self._related.flows}
        read: dict[TopicPlace, int] = {}
        checked: list[PositionCheck] = []
        for name, (source, offset) in own:
            place = TopicPlace(flows[name].source, source.topic)
            read[place] = offset
            if name in straight and flows[name].remote_topic(source.topic) == goal.topic:
                check = checks.get((name, (source, offset)), PositionCheck())
                # Copies at the end of the source need not be landed there: the maps know that they are copies.
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
        """What the flows carried of the newest life of each topic; 24 bytes a stretch on the way, all of the mesh's topics."""
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
        """What rules kept back; a loop is not a loss, for such a record comes another way."""
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
        """Find where the offsets of a life end that the source's log still holds: where it was cut, 0 for a life that is over."""
        known = self._related.topics[flow].get(source.topic)
        if known is None or source.generation < known.generation:
            return 0
        later = (
            cut for cut in known.truncations if cut.partition == source.partition and cut.generation > source.generation
        )
        return min((cut.first_offset for cut in later), default=END)
