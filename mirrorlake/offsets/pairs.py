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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise

from mirrorlake.config.schema import FlowConfig
from mirrorlake.kafka import ClusterAdmin, those_led
from mirrorlake.lake import ranges_of
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.groups import PositionCheck, Resume
from mirrorlake.model.offset_map import resume_offset
from mirrorlake.model.ranges import UNBOUNDED, Ranges
from mirrorlake.model.withheld import SENT
from mirrorlake.offsets.maps import OffsetMaps, Positions, PositionsByFlow, RelatedFlows
from mirrorlake.offsets.neighbours import ReadPosition, Redriven
from mirrorlake.rules import RULE
from mirrorlake.topics import refused


class Copies:
    """The records that one flow brought from one partition to another: ranges `(first upstream, first downstream, records)`.

    The ranges come in any order, and duplicates count once. `position` is the next upstream offset that the flow
    sends. `sent` and `written` are the upstream and downstream offsets of the copies. `never` are upstream offsets that
    it will not send: `withheld` by rules (loops do not count: those records came from the other side), and those before
    its first record unless it began with the partition's first (`is_whole`).
    """

    def __init__(
        self,
        ranges: Iterable[tuple[int, int, int]],
        *,
        position: int,
        withheld: Iterable[tuple[int, int]] = (),
        is_whole: bool = True,
    ) -> None:
        copies = sorted(set(ranges))
        # Downstream offsets fall if the remote topic was deleted and created again.
        begins = [i for i, (one, two) in enumerate(pairwise(copies), 1) if two[1] < one[1] + one[2]]
        if begins:
            copies, is_whole = copies[begins[-1] :], False
        self._ups = [up for up, _, _ in copies]
        self._downs = [down for _, down, _ in copies]
        self._up_ends = [up + count for up, _, count in copies]
        self._down_ends = [down + count for _, down, count in copies]
        self.position = max([position, *self._up_ends[-1:]])
        self.sent = Ranges(zip(self._ups, self._up_ends, strict=True))
        self.written = Ranges(zip(self._downs, self._down_ends, strict=True))
        self.never = Ranges([*withheld, *([] if is_whole else [(0, (*self._ups, self.position)[0])])])

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
        unread_own = self.back.never & Ranges([(read_there, UNBOUNDED)])
        unread_own |= self.back.sent & Ranges([(own, UNBOUNDED)])
        unread_own |= Ranges([(max(own, self.back.position), known_to)])
        unread_own -= self.forward.written
        first_own, first_copy = unread_own.first if unread_own else None, self.forward.copy_from(read)
        last_read = self.forward.copy_before(read), self.back.last_sent_before(own)
        unread = [offset for offset in (first_copy, first_own) if offset is not None]
        position = resume_offset((offset for offset in last_read if offset is not None), unread)
        if position is None:
            return PairPosition(None, 0, is_own_first=None)
        position = min(position, known_to)
        again = (self.forward.sent & Ranges([(self.forward.upstream_of(position), read)])).count
        again += (self.back.sent & Ranges([(position, own)])).count
        return PairPosition(position, again, is_own_first=min(unread) != first_copy if unread else None)

    def may_follow(self, position: int) -> bool:
        """Return whether a record before a source position may still come to the target: one that is no copy from there."""
        waiting = Ranges([(self.forward.position, position)])
        return bool(waiting - self.back.written if self.is_one_topic else waiting)


@dataclass(frozen=True, slots=True, kw_only=True)
class PairReader:
    """One reader's positions on a pair: on the source, on the target (0 without one), and among the way back's copies."""

    name: str
    source: SourcePartition
    target: TopicPartition
    offset: int
    offset_there: int
    copies_read: int


@dataclass(frozen=True)
class Pairs:
    """The topics of a flow whose remote topics come back; `known` is the result of `stable_ends`."""

    related: RelatedFlows
    maps: OffsetMaps
    target: ClusterAdmin
    known: Mapping[TopicPartition, int]

    def find_readers(self, translated: Positions, readers: PositionsByFlow) -> list[PairReader]:
        """Return the readers of topics that come back, with all their positions.

        `translated` are the positions on the flow's source to translate, `readers` those that the readers committed
        themselves, and all that they have on the target.
        """

        def positions_of(flows: Iterable[FlowConfig]) -> dict[tuple[str, str, int], int]:
            each = (position for flow in flows for position in readers.get(flow.name, {}).items())
            return {(name, source.topic, source.partition): at.offset for (name, source), at in each}

        there, on_source = positions_of(self.related.back), positions_of([self.related.flow])
        paired = []
        for (name, source), at in translated.items():
            back, remote = self.related.way_back(source.topic), self.related.flow.remote_topic(source.topic)
            if back is None:
                continue
            copies_read: int | None = at.offset
            if (home := back.remote_topic(remote)) != source.topic:
                copies_read = on_source.get((name, home, source.partition))
            if copies_read is not None:
                paired.append(
                    PairReader(
                        name=name,
                        source=source,
                        target=TopicPartition(remote, source.partition),
                        offset=at.offset,
                        offset_there=there.get((name, remote, source.partition), 0),
                        copies_read=copies_read,
                    )
                )
        return paired

    def resume(
        self, readers: Sequence[PairReader], checks: Mapping[ReadPosition, PositionCheck], redriven: Redriven
    ) -> dict[tuple[str, TopicPartition], Resume]:
        """Return the positions of readers, by reader and target partition; `checks` and `redriven` are of their source positions."""
        earliest = self.target.log_start_offsets(those_led(self.target, {one.target for one in readers}))
        pairs = {at: self._pair(*at) for at in {(one.source.topic, one.source.partition) for one in readers}}
        resumes = {}
        for one in readers:
            at, pair = (one.source, one.offset), pairs[one.source.topic, one.source.partition]
            starts = earliest.get(one.target), redriven.get(at, {}).get(one.target)
            resumes[one.name, one.target] = self._resume_one(one, pair, checks[at], *starts)
        return resumes

    def _resume_one(
        self, reader: PairReader, pair: Pair, check: PositionCheck, first: int | None, first_redriven: int | None
    ) -> Resume:
        target, alias = reader.target, self.related.flow.target
        # Copies at the end of the source need not be landed from there: the maps show that they are copies.
        if check.is_safe and not pair.may_follow(reader.offset):
            check = PositionCheck()
        why = refused(self.related.flow, self.related.hops)
        if not why and not check.is_safe:
            why = check.reason
        if not why and first is None:
            why = f"{target} does not exist on {alias} yet, or has no leader"
        if not why and target not in self.known:
            why = f"a transaction into {alias} is open: not all records are known"
        resume = Resume(source=reader.source, upstream_offset=reader.offset, target=target, reason=why or check.reason)
        if why or first is None:
            return resume
        found = pair.resume(
            reader.offset, read_there=reader.offset_there, copies_read=reader.copies_read, known_to=self.known[target]
        )
        if first_redriven is not None and (found.position is None or first_redriven < found.position):
            again = found.again + (found.position or first_redriven) - first_redriven
            found = replace(found, position=first_redriven, again=again)
        if found.again:
            whose = f"{alias if found.is_own_first else self.related.flow.source}'s own record"
            if found.is_own_first is None:
                whose = f"a record that {alias} has not sent on"
            reasons = f"the logs interleave: {whose} is the first that it has not read", check.reason
            resume = replace(resume, reason="; ".join(filter(None, reasons)))
        return replace(
            resume,
            downstream_offset=first if found.position is None else max(found.position, first),
            exact=check.exact and not found.again,
            records_again=None if check.again is None else found.again + check.again,
        )

    def _pair(self, topic: str, partition: int) -> Pair:
        back, remote = self.related.way_back(topic), self.related.flow.remote_topic(topic)
        return Pair(
            forward=self._copies(self.related.flow, topic, partition),
            back=Copies((), position=0) if back is None else self._copies(back, remote, partition),
            is_one_topic=back is not None and back.remote_topic(remote) == topic,
        )

    def _copies(self, flow: FlowConfig, topic: str, partition: int) -> Copies:
        known = self.related.topics[flow.name].get(topic)
        source = SourcePartition(topic, 1 if known is None else known.generation_of(partition), partition)
        sent, withheld = self._fates.get((flow.name, topic, partition), ((), ()))
        position, is_whole = self.maps.positions[flow.name].get(source, 0), flow.start.kind == "earliest"
        return Copies(sent, position=position, withheld=withheld, is_whole=is_whole)

    @cached_property
    def _fates(self) -> dict[tuple[str, str, int], tuple[list[tuple[int, int, int]], list[tuple[int, int]]]]:
        """What flows sent of the newest generation of each topic, and withheld, by flow, source topic and partition."""
        fates: dict[tuple[str, str, int], tuple[list[tuple[int, int, int]], list[tuple[int, int]]]] = {}
        flows = [flow.name for flow in (self.related.flow, *self.related.back)]
        for row in self.maps.ask(_FATES, flows=flows, loop=RULE):
            source = SourcePartition(row.source_topic, row.generation, row.source_partition)
            sent, withheld = fates.setdefault((row.flow, source.topic, source.partition), ([], []))
            valid_to, downstream = self._valid_to(row.flow, source), row.first_downstream
            for first, end in ranges_of(row):
                if first >= valid_to:
                    break
                if row.kind == SENT:
                    sent.append((first, downstream, min(end, valid_to) - first))
                    downstream += end - first
                else:
                    withheld.append((first, min(end, valid_to)))
        return fates

    def _valid_to(self, flow: str, source: SourcePartition) -> int:
        """Return the end of a generation's offsets in the source's log: its truncation, or 0 for a deleted topic's generation."""
        known = self.related.topics[flow].get(source.topic)
        if known is None or source.generation < known.generation:
            return 0
        cuts = (cut for cut in known.truncations if cut.partition == source.partition)
        return min((cut.first_offset for cut in cuts if cut.generation > source.generation), default=UNBOUNDED)


# A record that a loop's rule withheld came from the other side.
_FATES = f"""
    SELECT DISTINCT flow, source_topic, generation, source_partition, kind, first_upstream, last_upstream,
        first_downstream, holes
    FROM {{fates}} WHERE array_contains(:flows, flow) AND (kind = '{SENT}' OR rule IS NULL OR rule <> :loop)
"""  # noqa: S608
