"""Positions of readers on the target: consumer groups, Spark queries, offsets in a file.

Law A (never ahead): a position never skips a record that the reader has not read. It is exact if the offset map has the
answer. Otherwise the reader waits at the last republished position, or gets no position but a reason.

Several source partitions may feed a target partition: of one flow (placement by key) or of several flows
(a merged topic). All records that the reader reads on any of their sources count, so every flow gives the same
answer.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.errors import ClusterError
from mirrorlake.kafka import ClusterAdmin, those_led
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.groups import Contribution, PositionCheck, Resume, limiting, position_among
from mirrorlake.offsets.maps import OffsetMaps, Positions, PositionsByFlow, RelatedFlows, load_related_maps, stable_ends
from mirrorlake.offsets.neighbours import (
    NeighbourOffsets,
    ReadPast,
    ReadPosition,
    Redriven,
    count_read_again,
    find_neighbours,
    find_redriven,
)
from mirrorlake.offsets.pairs import Pairs
from mirrorlake.offsets.position_check import PositionChecker

_Key = tuple[str, TopicPartition]
Resumes = dict[_Key, Resume]
"""The positions of readers on the target, by reader and target partition."""

_Neighbours = dict[ReadPosition, dict[TopicPartition, NeighbourOffsets]]


def resume_readers(
    context: Context,
    related: RelatedFlows,
    readers: PositionsByFlow,
    *,
    translated: Positions | None = None,
    lost: Collection[str] = (),
) -> Resumes:
    """Return the positions of readers on the target of the first of related flows.

    `readers` are the positions up to which they have read. Between clusters that mirror each other, `translated` are
    the positions on the flow's source to translate, whether the reader or mirrorlake set them; None for the readers'
    own. Sources in `lost` are not called.
    """
    flow = related.flow
    translated = readers.get(flow.name, {}) if translated is None else translated
    if not translated:
        return {}
    # Before the maps, which then include every commit below these ends.
    known = stable_ends(context.admin(flow.target), related.shared_remotes(), related.flows)
    query = _ResumeQuery(context, related, load_related_maps(context, related, lost), known, lost)
    return query.resume(readers) if not related.hops else query.resume_with_hops(translated, readers)


@dataclass(frozen=True)
class _ResumeQuery:
    context: Context
    related: RelatedFlows
    maps: OffsetMaps
    known: Mapping[TopicPartition, int]
    lost: Collection[str]

    @cached_property
    def target(self) -> ClusterAdmin:
        return self.context.admin(self.related.flow.target)

    def resume_with_hops(self, translated: Positions, readers: PositionsByFlow) -> Resumes:
        """Return the positions of a flow that writes hop headers; `readers` are the positions that the readers committed."""
        pairs = Pairs(self.related, self.maps, self.target, self.known)
        paired = pairs.find_readers(translated, readers)
        asked = {(one.source, one.offset) for one in paired}
        _, checks, redriven = self._find_neighbours(self.related.flow, asked)
        done = {(one.name, one.source) for one in paired}
        plain = {key: at for key, at in translated.items() if key not in done}
        return self.resume({**readers, self.related.flow.name: plain}) | pairs.resume(paired, checks, redriven)

    def resume(self, readers: PositionsByFlow) -> Resumes:
        feeding = self._read_contributions(readers)
        starts = self.target.log_start_offsets(those_led(self.target, {target for _, target in feeding}))
        bare = {target for (_, target), parts in feeding.items() if position_among(parts) is None}
        ends = self.target.last_stable_offsets(bare & starts.keys())
        # Records of another mirror before a takeover, of an earlier generation of the source topic, or of other producers.
        strange = {tp for tp, end in ends.items() if end > starts[tp]}
        resumes = {
            (reader, target): self._resume_one(target, parts, starts.get(target), among_strangers=target in strange)
            for (reader, target), parts in feeding.items()
        }
        return self._with_records_again(resumes, feeding)

    def _read_contributions(self, readers: PositionsByFlow) -> dict[_Key, list[Contribution]]:
        """Return what feeds the target partitions that the first flow's positions lead to, by reader."""
        feeding: dict[_Key, list[Contribution]] = {}
        mine = set[_Key]()
        for flow in self.related.flows:
            committed = readers.get(flow.name, {})
            asked = list(self._completed(flow, committed))
            neighbours, checks, _ = self._find_neighbours(flow, {one for _, one in asked})
            for reader, (source, offset) in asked:
                for target, around in neighbours[source, offset].items():
                    if flow is self.related.flow and (reader, source) in committed:
                        mine.add((reader, target))
                    feeding.setdefault((reader, target), []).append(
                        Contribution(flow.name, source, offset, checks[source, offset], **around._asdict())
                    )
        return {key: parts for key, parts in feeding.items() if key in mine}

    def _completed(self, flow: FlowConfig, positions: Positions) -> Iterator[tuple[str, ReadPosition]]:
        """Yield the positions by reader, and 0 for uncommitted partitions of the same topics that share a target partition."""
        newest: dict[tuple[str, str, int], int] = {}
        for (reader, source), at in sorted(positions.items(), key=lambda item: item[0][1].generation):
            newest[reader, source.topic, source.partition] = source.generation
            yield reader, (source, at.offset)
        shared, topics = self.related.shared_remotes(), self.related.topics[flow.name]
        for reader, topic, generation in sorted({(reader, s.topic, s.generation) for reader, s in positions}):
            if topic in topics and flow.remote_topic(topic) in shared:
                for partition in range(topics[topic].partitions):
                    source = SourcePartition(topic, generation, partition)
                    # Before a truncation it was another generation, which the reader has left.
                    if newest.get((reader, topic, partition), 0) < generation:
                        yield reader, (source, 0)

    def _find_neighbours(
        self, flow: FlowConfig, asked: set[ReadPosition]
    ) -> tuple[_Neighbours, dict[ReadPosition, PositionCheck], Redriven]:
        neighbours: _Neighbours = {}
        unsure: dict[ReadPosition, int | None] = {}
        for one, found in find_neighbours(self.maps, flow.name, asked).items():
            source, offset = one
            # Later records may go to any of these partitions, and a reader must have a position there before they do.
            remote, numbers = flow.remote_topic(source.topic), flow.placement.targets(source.partition)
            neighbours[one] = {TopicPartition(remote, p): NeighbourOffsets() for p in numbers} | found.by_target
            first = found.republished_from
            if first is None or offset < first or all(unread is None for _, unread in neighbours[one].values()):
                unsure[one] = first
        redriven = find_redriven(self.maps, flow.redrive_name, asked)
        for one, again in redriven.items():
            for target, first in again.items():
                last_read, unread = neighbours[one].get(target, NeighbourOffsets())
                neighbours[one][target] = NeighbourOffsets(last_read, first if unread is None else min(unread, first))
        topics = None if flow.source in self.lost or not unsure else self.context.source(flow.source)
        # On the way back of the first flow only: the others do not translate from its source.
        is_first = flow is self.related.flow
        paired = {source.topic for source, _ in asked if is_first and self.related.way_back(source.topic)}
        try:
            checks = PositionChecker(self.maps, flow, unsure, topics, paired)
        except ClusterError:
            # The positions of its groups are the recorded ones, too.
            if is_first:
                raise
            checks = PositionChecker(self.maps, flow, unsure, None, paired)
        checked = {one: checks.check(*one) if one in unsure else PositionCheck() for one in neighbours}
        return neighbours, checked, redriven

    def _resume_one(
        self, target: TopicPartition, parts: Sequence[Contribution], first: int | None, *, among_strangers: bool
    ) -> Resume:
        """Return one reader's position; `first` is the partition's log start: a reader before it would go to the end by default."""
        several, decides = len(parts) > 1, limiting(parts)
        unsafe = next((one for one in parts if not one.check.is_safe), None)
        if unsafe is not None:
            reason = f"{unsafe}: {unsafe.check.reason}" if several else unsafe.check.reason
            return Resume.of(unsafe, target, reason=reason)
        if several and target not in self.known:
            why = "it does not exist yet, or has no leader" if first is None else "a transaction is open"
            if flows := [flow.name for flow in self.related.flows if flow.delivery != "exactly_once"]:
                why = f"{', '.join(flows)} delivers at least once"
            reason = f"{len(parts)} source partitions feed {target} and {why}: not all records are known"
            return Resume.of(decides, target, reason=reason)
        position = position_among(parts, known_to=self.known[target] if several else None)
        if position is None and first is None:
            reason = f"{target} does not exist on {self.related.flow.target} yet, or has no leader"
            return Resume.of(decides, target, reason=reason)
        if position is None and among_strangers:
            reason = f"{target} has no record of {decides.source} yet; the group will read the other records there"
            return replace(Resume.of(decides, target, reason=reason), downstream_offset=first, records_again=None)
        downstream = first if position is None else max(position, first or 0)
        last_read = max((one.last_read for one in parts if one.last_read is not None), default=-1)
        counts = [one.check.again for one in parts]
        reason = next((one.check.reason for one in parts if one.check.reason), "")
        if several:
            reason = f"{len(parts)} source partitions feed {target}; {decides} decides" + (reason and f"; {reason}")
        return replace(
            Resume.of(decides, target, reason=reason),
            downstream_offset=downstream,
            exact=all(one.check.exact for one in parts) and last_read < (downstream or 0),
            records_again=None if None in counts else sum(count for count in counts if count is not None),
        )

    def _with_records_again(self, resumes: Resumes, feeding: Mapping[_Key, Sequence[Contribution]]) -> Resumes:
        """Add the records that each reader reads again because they come after one that it has not read."""
        asked: dict[str, dict[ReadPast, list[_Key]]] = {}
        redrives = {flow.name: flow.redrive_name for flow in self.related.flows}
        for key, resume in resumes.items():
            if (position := resume.downstream_offset) is None:
                continue
            for one in feeding[key]:
                past = ReadPast(one.source, one.upstream_offset, resume.target, position)
                if one.last_read is not None and one.last_read >= position:
                    asked.setdefault(one.flow, {}).setdefault(past, []).append(key)
                if redrives[one.flow] in self.maps.sources:
                    asked.setdefault(redrives[one.flow], {}).setdefault(past, []).append(key)
        for flow, readers in asked.items():
            for past, again in count_read_again(self.maps, flow, readers).items():
                for key in readers[past]:
                    counted = resumes[key].records_again
                    total = None if counted is None else counted + again
                    resumes[key] = replace(resumes[key], records_again=total, exact=False)
        return resumes
