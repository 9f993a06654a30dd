"""Interleaved logs: the position of a reader between clusters that mirror each other under one name.

Each log then has records of several origins, in another order on each cluster:

    east   E1 E2 W1 W2 W3        a group on east that has read E1 E2 goes to 0 on west: it has not read W1
    west   W1 W2 W3 E1 E2        one that has read all five goes to 5

A record is read if its copy is before one of the reader's own positions. The records of one origin reach every
cluster in their own order, over one route (`model/loops/routes.py`), so the offsets on that route alone show which of
them are read.

Law A (never ahead): no position skips a record, of whatever origin, that the reader has not read on any cluster. Records that
the maps do not know yet count as unread.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from mirrorlake.model.loops.routes import TopicPlace
from mirrorlake.model.offset_map import resume_offset

Span = tuple[int, int]
"""Offsets from the first up to, not including, the second."""

END = 2**63 - 1


class CopiedSpans:
    """The records that one flow brought from one partition to another: ranges `(first upstream, first downstream, records)`.

    They come in any order, and duplicates count once. `position` is the next upstream offset that the flow sends.
    `withheld` are upstream spans that its rules withheld (loops do not count). `whole` is whether the flow began with
    the partition's first record.
    """

    def __init__(
        self,
        stretches: Iterable[tuple[int, int, int]],
        *,
        position: int,
        withheld: Iterable[Span] = (),
        whole: bool = True,
    ) -> None:
        found = sorted(set(stretches))
        # Downstream offsets fall if the remote topic was deleted and created again.
        lives = [i for i, (one, two) in enumerate(pairwise(found), 1) if two[1] < one[1] + one[2]]
        if lives:
            found, whole = found[lives[-1] :], False
        self._ups = [up for up, _, _ in found]
        self._downs = [down for _, down, _ in found]
        self._up_ends = [up + count for up, _, count in found]
        self._down_ends = [down + count for _, down, count in found]
        self.position = max([position, *self._up_ends[-1:]])
        begins = self._ups[0] if found else self.position
        self.never: list[Span] = merged([*withheld, *([] if whole else [(0, begins)])])

    def came_from(self, downstream: int) -> int:
        """Return the first upstream offset whose copy is at or past a downstream offset, or that is not sent yet."""
        index = bisect_right(self._down_ends, downstream)
        if index == len(self._downs):
            return self.position
        return self._ups[index] + max(0, downstream - self._downs[index])

    def place(self, upstream: int) -> int | None:
        """Return the downstream offset of the first record at or past an upstream offset, or None."""
        index = bisect_right(self._up_ends, upstream)
        if index == len(self._ups):
            return None
        return self._downs[index] + max(0, upstream - self._ups[index])

    def place_before(self, upstream: int) -> int | None:
        """Return the downstream offset of the last record before an upstream offset, or None."""
        index = bisect_left(self._ups, upstream) - 1
        return None if index < 0 else min(self._down_ends[index], self._downs[index] + upstream - self._ups[index]) - 1

    def sent(self, span: Span) -> Iterator[Span]:
        for index in range(bisect_right(self._up_ends, span[0]), len(self._ups)):
            if self._ups[index] >= span[1]:
                return
            yield max(span[0], self._ups[index]), min(span[1], self._up_ends[index])

    def sent_before(self, upstream: int) -> Iterator[Span]:
        """Yield the sent upstream offsets before an offset, the last ones first."""
        for index in range(bisect_left(self._ups, upstream) - 1, -1, -1):
            yield self._ups[index], min(upstream, self._up_ends[index])

    def copies(self, span: Span) -> Iterator[Span]:
        """Yield the downstream offsets of the records of an upstream span."""
        for first, last in self.sent(span):
            place = self.place(first)
            if place is not None:
                yield place, place + last - first

    def taken(self) -> Iterator[Span]:
        """Yield the downstream offsets that the flow wrote."""
        return zip(self._downs, self._down_ends, strict=True)


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """The position of a reader, None without a known record; `again` records before it in other logs are read again."""

    position: int | None
    again: int
    decides: TopicPlace | None


class Interleaved:
    """The logs of one partition on all clusters of a mirror, and the records each flow brought between them.

    `ways` is the route from each origin to each topic that its records reach, both ends included.
    """

    def __init__(
        self,
        carried: Mapping[tuple[TopicPlace, TopicPlace], CopiedSpans],
        ways: Mapping[tuple[TopicPlace, TopicPlace], Sequence[TopicPlace]],
    ) -> None:
        self._carried = carried
        self._ways = ways
        self._taken: dict[TopicPlace, list[Span]] = {}

    def answer(self, target: TopicPlace, read: Mapping[TopicPlace, int], *, known_to: int) -> ResumePoint:
        """Return a reader's position on a topic, by the positions it has committed itself, by topic.

        Law A: a record of any origin that the reader could have read, and has not, is at or past the position. Records may be missing
        in the maps from the offset `known_to` on the target on.
        """
        last_read: list[int] = []
        limits: list[tuple[int, TopicPlace]] = []
        unread: dict[TopicPlace, list[Span]] = {}
        for origin in {start for start, end in self._ways if end == target} | {target}:
            spans = self._unread(origin, read)
            if spans is not None:
                unread[origin] = spans
                last, first = self._standing(origin, target, spans, read, known_to)
                last_read += [] if last is None else [last]
                limits += [] if first is None else [(first, origin)]
        position = resume_offset(last_read, (first for first, _ in limits))
        if position is None:
            return ResumePoint(None, 0, None)
        position = min(position, known_to)
        again = sum(self._again(origin, target, spans, read, position) for origin, spans in unread.items())
        return ResumePoint(position, again, min(limits)[1] if limits else None)

    def may_follow(self, source: TopicPlace, target: TopicPlace, position: int) -> bool:
        """Return whether a record before a position may still come to the target over the flow between the two.

        Records that other flows brought to the source, and that no flow forwards from there, are known not to.
        """
        carried = self._carried.get((source, target))
        if carried is None or carried.position >= position:
            return False
        passing = {
            before
            for way in self._ways.values()
            for before, here, after in zip(way, way[1:], way[2:], strict=False)
            if (here, after) == (source, target)
        }
        ended = [flow for (start, end), flow in self._carried.items() if end == source and start not in passing]
        return bool(without((carried.position, position), merged(one for flow in ended for one in flow.taken())))

    def _hops(self, origin: TopicPlace, place: TopicPlace) -> list[CopiedSpans] | None:
        way = [origin] if origin == place else self._ways.get((origin, place))
        if way is None:
            return None
        hops = [self._carried.get(pair) for pair in pairwise(way)]
        return [hop if hop is not None else CopiedSpans([], position=0) for hop in hops]

    def _unread(self, origin: TopicPlace, read: Mapping[TopicPlace, int]) -> list[Span] | None:
        """Return the offsets of an origin that the reader has read on no cluster, or None if it could read none of them."""
        found: list[Span] | None = None
        for place, position in read.items():
            hops = self._hops(origin, place)
            if hops is None:
                continue
            spans: list[Span] = [(position, END)]
            for hop in reversed(hops):
                spans = [(hop.came_from(first), END if last == END else hop.came_from(last)) for first, last in spans]
                spans = merged([*spans, *hop.never])
            found = spans if found is None else common(found, spans)
        return found

    def _standing(
        self, origin: TopicPlace, target: TopicPlace, unread: list[Span], read: Mapping[TopicPlace, int], known_to: int
    ) -> tuple[int | None, int | None]:
        """Return the target offsets of an origin's last read and first unread record."""
        hops = self._hops(origin, target) or []
        # Read records are before the last, endless span.
        until = unread[-1][0] if unread else END
        if origin == target:
            first_own = self._first_own(target, unread, read, known_to)
            before = self._first_hop(target, read)
            mine = (self._own(target, span) for span in before.sent_before(until)) if before is not None else iter(())
            last_own = next((spans[-1][1] - 1 for spans in mine if spans), None)
            return last_own, first_own
        first = next((own for span in unread for sent in hops[0].sent(span) for own in self._own(origin, sent)), None)
        first_unread: int | None = None if first is None else first[0]
        last_read: int | None = until - 1
        for hop in hops:
            first_unread = None if first_unread is None else hop.place(first_unread)
            last_read = None if last_read is None else hop.place_before(last_read + 1)
        return last_read, first_unread

    def _first_hop(self, origin: TopicPlace, read: Mapping[TopicPlace, int]) -> CopiedSpans | None:
        """Return the flow that first takes the records of an origin to a cluster of the reader, or None."""
        for place in sorted(read):
            if place != origin and (hops := self._hops(origin, place)):
                return hops[0]
        return None

    def _first_own(
        self, place: TopicPlace, unread: Sequence[Span], read: Mapping[TopicPlace, int], known_to: int
    ) -> int | None:
        """Return the first of these offsets that is, or may be, a record produced to this topic, or None.

        The flow that forwards the records has distinguished markers from records up to its position; past that they
        are unknown.
        """
        hop = self._first_hop(place, read)
        unsure = [(0, known_to)] if hop is None else merged([*hop.never, (hop.position, max(hop.position, known_to))])
        found = [next((own[0] for span in common(unsure, unread) for own in self._own(place, span)), END)]
        if hop is not None:
            sent = (one for span in unread for one in hop.sent(span))
            found.append(next((own[0] for one in sent for own in self._own(place, one)), END))
        return None if min(found) == END else min(found)

    def _own(self, place: TopicPlace, span: Span) -> list[Span]:
        """Return the offsets of a span that no flow wrote."""
        taken = self._taken.get(place)
        if taken is None:
            into = [carried for (_, end), carried in self._carried.items() if end == place]
            taken = self._taken[place] = merged(one for carried in into for one in carried.taken())
        return without(span, taken)

    def _again(
        self, origin: TopicPlace, target: TopicPlace, unread: list[Span], read: Mapping[TopicPlace, int], position: int
    ) -> int:
        hops = self._hops(origin, target) or []
        since = position
        for hop in reversed(hops):
            since = hop.came_from(since)
        sent = hops[0] if hops else self._first_hop(target, read)
        if sent is None:
            return 0
        known = merged(own for span in sent.sent((since, unread[-1][0])) for own in self._own(origin, span))
        spans = [left for span in known for left in without(span, unread)]
        for hop in hops:
            spans = [copy for span in spans for copy in hop.copies(span)]
        return sum(last - first for first, last in spans)


def merged(spans: Iterable[Span]) -> list[Span]:
    """Return spans in order, with touching ones merged."""
    found: list[Span] = []
    for first, last in sorted(spans):
        if found and first <= found[-1][1]:
            found[-1] = found[-1][0], max(found[-1][1], last)
        elif first < last:
            found.append((first, last))
    return found


def common(one: Sequence[Span], two: Sequence[Span]) -> list[Span]:
    found: list[Span] = []
    i = j = 0
    while i < len(one) and j < len(two):
        first, last = max(one[i][0], two[j][0]), min(one[i][1], two[j][1])
        if first < last:
            found.append((first, last))
        if one[i][1] < two[j][1]:
            i += 1
        else:
            j += 1
    return found


def without(span: Span, taken: Sequence[Span]) -> list[Span]:
    found: list[Span] = []
    first = span[0]
    index = max(0, bisect_right(taken, (first, END)) - 1)
    for begin, end in taken[index:]:
        if begin >= span[1]:
            break
        if first < begin:
            found.append((first, begin))
        first = max(first, end)
    if first < span[1]:
        found.append((first, span[1]))
    return found
