"""Two clusters that mirror each other under one name: a reader's position on one of them, by the maps of both flows.

Each log then has records of both clusters, in another order:

    east   E1 E2 W1 W2 W3        a group on east that has read E1 E2 goes to 0 on west: it has not read W1
    west   W1 W2 W3 E1 E2        one that has read all five goes to 5

The position is the smaller of the first unread record by the forward map and the first of the target's own records
whose copy is past the source position. Records that the way back withheld, that it began after, or that it has not
sent yet count as unread.

Law A (never ahead): no position skips a record, of either cluster, that the reader has read on none of the two.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from mirrorlake.config.schema import FlowConfig
from mirrorlake.kafka import ClusterAdmin, list_partitions
from mirrorlake.lake import spans_of
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.groups import PositionCheck, Resume
from mirrorlake.model.offset_map import resume_offset
from mirrorlake.offsets.maps import OffsetMaps, Positions, PositionsByFlow, RelatedFlows, to_mapped_range
from mirrorlake.offsets.neighbours import ReadPosition
from mirrorlake.rules import RULE
from mirrorlake.topics import refused

Span = tuple[int, int]
"""Offsets from the first up to, not including, the second."""

END = 2**63 - 1


class Copies:
    """The records that one flow brought from one partition to another: ranges `(first upstream, first downstream, records)`.

    The ranges come in any order, and duplicates count once. `position` is the next upstream offset that the flow
    sends. `never` are upstream offsets that it will not send: `withheld` by rules (loops do not count: those records
    came from the other side), and those before its first record unless it began with the partition's first
    (`is_whole`).
    """

    def __init__(
        self,
        ranges: Iterable[tuple[int, int, int]],
        *,
        position: int,
        withheld: Iterable[Span] = (),
        is_whole: bool = True,
    ) -> None:
        found = sorted(set(ranges))
        # Downstream offsets fall if the remote topic was deleted and created again.
        begins = [i for i, (one, two) in enumerate(pairwise(found), 1) if two[1] < one[1] + one[2]]
        if begins:
            found, is_whole = found[begins[-1] :], False
        self._ups = [up for up, _, _ in found]
        self._downs = [down for _, down, _ in found]
        self._up_ends = [up + count for up, _, count in found]
        self._down_ends = [down + count for _, down, count in found]
        self.position = max([position, *self._up_ends[-1:]])
        first = self._ups[0] if found else self.position
        self.never = [*withheld, *([] if is_whole else [(0, first)])]

    def upstream_of(self, downstream: int) -> int:
        """Return the first upstream offset whose copy is at or past a downstream offset, or that is not sent yet."""
        index = bisect_right(self._down_ends, downstream)
        if index == len(self._downs):
            return self.position
        return self._ups[index] + max(0, downstream - self._downs[index])

    def copy_from(self, upstream: int) -> int | None:
        """Return the downstream offset of the first record at or past an upstream offset."""
        index = bisect_right(self._up_ends, upstream)
        if index == len(self._ups):
            return None
        return self._downs[index] + max(0, upstream - self._ups[index])

    def last_sent_before(self, upstream: int) -> int | None:
        index = bisect_left(self._ups, upstream) - 1
        return None if index < 0 else min(upstream, self._up_ends[index]) - 1

    def copy_before(self, upstream: int) -> int | None:
        """Return the downstream offset of the last record before an upstream offset."""
        last = self.last_sent_before(upstream)
        return None if last is None else self.copy_from(last)

    def sent(self, first: int, end: int = END) -> Iterator[Span]:
        """Yield the upstream offsets that were sent, from the first up to the end."""
        for index in range(bisect_right(self._up_ends, first), len(self._ups)):
            if self._ups[index] >= end:
                return
            yield max(first, self._ups[index]), min(end, self._up_ends[index])

    @cached_property
    def written(self) -> list[Span]:
        """The downstream offsets of the copies, in order."""
        return list(zip(self._downs, self._down_ends, strict=True))


@dataclass(frozen=True, slots=True)
class PairPosition:
    """A reader's position, or None without a record; it reads `again` known records at or past it a second time.

    `is_own_first` is whether the first unread record is the target's own; None if no unread one is known.
    """

    position: int | None
    again: int
    is_own_first: bool | None


@dataclass(frozen=True, slots=True)
class Pair:
    """One partition on both clusters: the copies from source to target, and those on the way back.

    `is_one_topic` is false if the way back brings its copies to another topic of the source.
    """

    forward: Copies
    back: Copies
    is_one_topic: bool = True

    def resume(self, read: int, *, read_there: int = 0, copies_read: int | None = None, known_to: int) -> PairPosition:
        """Return the position on the target of a reader that has read up to `read`, and on the target up to `read_there`.

        `copies_read` is its position among the copies of the way back, if those come to another topic of the source.
        From the downstream offset `known_to` on, records may be missing in the maps.
        """
        own = max(self.back.upstream_of(read if copies_read is None else copies_read), read_there)
        # What it has read on the target itself it has read, wherever its copies come from.
        read = max(read, self.forward.upstream_of(read_there)) if read_there else read
        unsure = [(max(first, read_there), end) for first, end in self.back.never]
        unsure.append((max(own, self.back.position), known_to))
        first_own = _first_outside([*unsure, *self._first_sent(own)], self.forward.written)
        first_copy = self.forward.copy_from(read)
        last_read = self.forward.copy_before(read), self.back.last_sent_before(own)
        position = resume_offset(
            (offset for offset in last_read if offset is not None),
            (offset for offset in (first_copy, first_own) if offset is not None),
        )
        if position is None:
            return PairPosition(None, 0, is_own_first=None)
        position = min(position, known_to)
        again = sum(end - first for first, end in self.forward.sent(self.forward.upstream_of(position), read))
        again += sum(end - first for first, end in self.back.sent(position, own))
        unread = [(offset, is_own) for offset, is_own in ((first_copy, False), (first_own, True)) if offset is not None]
        is_own_first = min(unread)[1] if unread else None
        return PairPosition(position, again, is_own_first)

    def _first_sent(self, own: int) -> Iterator[Span]:
        for span in self.back.sent(own):
            if _first_outside([span], self.forward.written) is not None:
                yield span
                return

    def may_follow(self, position: int) -> bool:
        """Return whether a record before a source position may still come to the target: one that is no copy from there."""
        copies = self.back.written if self.is_one_topic else ()
        return _first_outside([(self.forward.position, position)], copies) is not None


def _first_outside(spans: Iterable[Span], taken: Sequence[Span]) -> int | None:
    """Return the first offset of some spans that is not in the taken ones, which are in order."""
    found = None
    for first, end in spans:
        index = bisect_right(taken, first, key=lambda span: span[1])
        while first < end and index < len(taken) and taken[index][0] <= first:
            first = taken[index][1]
            index += 1
        if first < end and (found is None or first < found):
            found = first
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class PairReader:
    """One reader's positions on a pair: on the source, on the target (0 without one), and among the way back's copies."""

    name: str
    source: SourcePartition
    target: TopicPartition
    offset: int
    offset_there: int
    copies_read: int


class Pairs:
    """The topics of a flow whose remote topics come back; `known` is the result of `stable_ends`."""

    def __init__(
        self, related: RelatedFlows, maps: OffsetMaps, *, target: ClusterAdmin, known: Mapping[TopicPartition, int]
    ) -> None:
        self._related = related
        self._maps = maps
        self._target = target
        self._known = known
        self._built: dict[tuple[str, int], Pair] = {}

    def find_readers(self, translated: Positions, readers: PositionsByFlow) -> list[PairReader]:
        """Return the readers of topics that come back, with all their positions.

        `translated` are the positions on the flow's source to translate, `readers` those that the readers committed
        themselves, and all that they have on the target.
        """
        flow = self._related.flows[0]
        there = {
            (name, source.topic, source.partition): held.offset
            for back in self._related.back
            for (name, source), held in readers.get(back.name, {}).items()
        }
        on_source = {
            (name, source.topic, source.partition): held.offset
            for (name, source), held in readers.get(flow.name, {}).items()
        }
        found = []
        for (name, source), held in translated.items():
            back, remote = self._related.way_back(source.topic), flow.remote_topic(source.topic)
            if back is None:
                copies_read = None
            elif back.remote_topic(remote) == source.topic:
                copies_read = held.offset
            else:
                copies_read = on_source.get((name, back.remote_topic(remote), source.partition))
            if copies_read is not None:
                found.append(
                    PairReader(
                        name=name,
                        source=source,
                        target=TopicPartition(remote, source.partition),
                        offset=held.offset,
                        offset_there=there.get((name, remote, source.partition), 0),
                        copies_read=copies_read,
                    )
                )
        return found

    def resume(
        self, readers: Sequence[PairReader], checks: Mapping[ReadPosition, PositionCheck]
    ) -> dict[tuple[str, TopicPartition], Resume]:
        """Return the positions of readers, by reader and target partition; `checks` are those of their source positions."""
        wanted = {one.target for one in readers}
        there = wanted.intersection(list_partitions(self._target.describe({tp.topic for tp in wanted})))
        earliest = self._target.log_start_offsets(there)
        return {
            (one.name, one.target): self._resume_one(one, checks[one.source, one.offset], earliest) for one in readers
        }

    def _resume_one(self, reader: PairReader, check: PositionCheck, earliest: Mapping[TopicPartition, int]) -> Resume:
        source, target = reader.source, reader.target
        flow = self._related.flows[0]
        pair = self._pair(source.topic, source.partition)
        # Copies at the end of the source need not be landed from there: the maps show that they are copies.
        if check.is_safe and not pair.may_follow(reader.offset):
            check = PositionCheck()
        held = Resume(source=source, upstream_offset=reader.offset, target=target, downstream_offset=None, exact=False)
        why = refused(flow, self._related.hops)
        if not why and not check.is_safe:
            why = check.reason
        if not why and target not in earliest:
            why = f"{target} does not exist on {flow.target} yet"
        if not why and target not in self._known:
            why = f"a transaction into {flow.target} is open: not all records are known"
        if why:
            return replace(held, reason=why)
        found = pair.resume(
            reader.offset,
            read_there=reader.offset_there,
            copies_read=reader.copies_read,
            known_to=self._known[target],
        )
        reason = check.reason
        if found.again:
            whose = f"{flow.target if found.is_own_first else flow.source}'s own record"
            if found.is_own_first is None:
                whose = f"a record that {flow.target} has not sent on"
            reason = f"the logs interleave: {whose} is the first that it has not read" + (reason and f"; {reason}")
        first = earliest[target]
        return replace(
            held,
            downstream_offset=first if found.position is None else max(found.position, first),
            exact=check.exact and not found.again,
            records_again=None if check.again is None else found.again + check.again,
            reason=reason,
        )

    def _pair(self, topic: str, partition: int) -> Pair:
        if (topic, partition) not in self._built:
            flow, back = self._related.flows[0], self._related.way_back(topic)
            remote = flow.remote_topic(topic)
            self._built[topic, partition] = Pair(
                forward=self._copies(flow, topic, partition),
                back=Copies((), position=0) if back is None else self._copies(back, remote, partition),
                is_one_topic=back is not None and back.remote_topic(remote) == topic,
            )
        return self._built[topic, partition]

    def _copies(self, flow: FlowConfig, topic: str, partition: int) -> Copies:
        known = self._related.topics[flow.name].get(topic)
        source = SourcePartition(topic, 1 if known is None else known.generation_of(partition), partition)
        return Copies(
            self._sent.get((flow.name, topic, partition), ()),
            position=self._maps.positions[flow.name].get(source, 0),
            withheld=self._withheld.get((flow.name, topic, partition), ()),
            is_whole=flow.start.kind == "earliest",
        )

    @cached_property
    def _sent(self) -> dict[_Key, list[tuple[int, int, int]]]:
        """The ranges that the flows sent of the newest generation of each topic."""
        found: dict[_Key, list[tuple[int, int, int]]] = {}
        for row in self._maps.ask(_SENT, flows=self._flows):
            run = to_mapped_range(row)
            valid_to = self._valid_to(row.flow, run.source)
            for first, last, downstream in run.dense_ranges():
                if first < valid_to:
                    sent = first, downstream, min(last + 1, valid_to) - first
                    found.setdefault((row.flow, run.source.topic, run.source.partition), []).append(sent)
        return found

    @cached_property
    def _withheld(self) -> dict[_Key, list[Span]]:
        """The records that rules withheld, without loops: a looping record came from the other side."""
        found: dict[_Key, list[Span]] = {}
        for row in self._maps.ask(_WITHHELD, flows=self._flows, loop=RULE):
            source = SourcePartition(row.source_topic, row.generation, row.source_partition)
            valid_to = self._valid_to(row.flow, source)
            spans = ((first, min(end, valid_to)) for first, end in spans_of(row) if first < valid_to)
            found.setdefault((row.flow, source.topic, source.partition), []).extend(spans)
        return found

    @property
    def _flows(self) -> list[str]:
        return [flow.name for flow in (self._related.flows[0], *self._related.back)]

    def _valid_to(self, flow: str, source: SourcePartition) -> int:
        """Return the end of a generation's offsets in the source's log: its truncation, or 0 for a deleted topic's generation."""
        known = self._related.topics[flow].get(source.topic)
        if known is None or source.generation < known.generation:
            return 0
        later = (
            cut for cut in known.truncations if cut.partition == source.partition and cut.generation > source.generation
        )
        return min((cut.first_offset for cut in later), default=END)


_Key = tuple[str, str, int]
"""A flow, its source topic and its partition."""

_SENT = """
    SELECT DISTINCT flow, source_topic, generation, source_partition, target_topic, target_partition, first_upstream,
        last_upstream, first_downstream, record_count, holes
    FROM {runs} WHERE array_contains(:flows, flow)
"""
_WITHHELD = """
    SELECT flow, source_topic, generation, source_partition, first_upstream, last_upstream, holes FROM {fates}
    WHERE kind <> 'sent' AND array_contains(:flows, flow) AND (rule IS NULL OR rule <> :loop)
"""
