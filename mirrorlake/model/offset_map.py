"""The offset map: the exact downstream offset of each upstream offset, in both directions.

A mapped range says that consecutive upstream offsets went to consecutive downstream offsets:

    upstream     100 101 102  ·  104 105        · is a hole: a control record, an aborted or a compacted record
    downstream   500 501 502    503 504         dense, because one transaction of one producer wrote them

Where records go by key, a source partition has mapped ranges to several target partitions. They overlap upstream, but
a record of one range is a hole in all others: no upstream offset is in two (law F). Law B holds on each target
partition.

Law A (never ahead): a position never skips an unread record.
Law B (monotonic): a later upstream offset never translates earlier.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.render import Displayable, Sheet, badge


@dataclass(frozen=True, slots=True, kw_only=True)
class MappedRange:
    """Upstream offsets `first_upstream..last_upstream` without `holes`, at `first_downstream` and onwards.

    `holes` are pairs `(first offset, length)`, ascending, inside the range. `count` records were written.
    """

    source: SourcePartition
    target: TopicPartition
    first_upstream: int
    last_upstream: int
    first_downstream: int
    count: int
    holes: tuple[tuple[int, int], ...] = ()

    def __post_init__(self) -> None:
        missing = sum(length for _, length in self.holes)
        if self.last_upstream - self.first_upstream + 1 - missing != self.count:
            raise ValueError(f"run of {self.source} does not add up: {self}")

    @property
    def last_downstream(self) -> int:
        return self.first_downstream + self.count - 1

    def dense_ranges(self) -> Iterator[tuple[int, int, int]]:
        """Yield the ranges between the holes as `(first upstream offset, last one, downstream offset of the first)`."""
        first, downstream = self.first_upstream, self.first_downstream
        for hole, length in self.holes:
            yield first, hole - 1, downstream
            downstream += hole - first
            first = hole + length
        yield first, self.last_upstream, downstream

    def downstream_of(self, upstream_offset: int) -> int | None:
        """Return the downstream offset of an upstream offset in the range, or None in a hole."""
        for first, last, downstream in self.dense_ranges():
            if first <= upstream_offset <= last:
                return downstream + upstream_offset - first
        return None

    def records_before(self, upstream_offset: int) -> int:
        """Count the range's records before an upstream offset.

        >>> orders = SourcePartition("orders", 1, 0), TopicPartition("east.orders", 0)
        >>> run = MappedRange(source=orders[0], target=orders[1], first_upstream=0, last_upstream=4, first_downstream=10,
        ...           count=4, holes=((2, 1),))
        >>> [run.records_before(offset) for offset in (0, 2, 3, 9)]
        [0, 2, 2, 4]
        """
        until = min(upstream_offset, self.last_upstream + 1)
        missing = sum(min(length, max(0, until - first)) for first, length in self.holes)
        return max(0, until - self.first_upstream - missing)

    def upstream_of(self, downstream_offset: int) -> int:
        upstream_offset = self.first_upstream + downstream_offset - self.first_downstream
        for first, length in self.holes:
            if upstream_offset < first:
                break
            upstream_offset += length
        return upstream_offset


def holes_between(offsets: Sequence[int]) -> tuple[tuple[int, int], ...]:
    """Return the holes of an ascending sequence of offsets as `(first, length)`.

    >>> holes_between([5, 6, 9])
    ((7, 2),)
    """
    return tuple((before + 1, after - before - 1) for before, after in pairwise(offsets) if after - before > 1)


def resume_offset(read: Iterable[int], unread: Iterable[int]) -> int | None:
    """Return the next offset that a reader reads, or None without any record.

    `translate`, `groups` and `move_positions` all use it. Law A: right after the last read record, never past the
    first unread one. Records between the two may be another region's, which the reader never read on its own source.

    Example:
        >>> resume_offset([4], [9]), resume_offset([4, 20], [9]), resume_offset([], [9]), resume_offset([], [])
        (5, 9, 9, None)
    """
    after = max(read, default=None)
    limits = list(unread) if after is None else [*unread, after + 1]
    return min(limits, default=None)


class _OneLine:
    __slots__ = ()
    status: str

    def sheet(self) -> Sheet:
        warns = isinstance(self, Quarantined | NotYetRepublished | UnknownPartition | DeletedTopic)
        return Sheet(title="offset", badge=badge(self.status, "warn" if warns else None), facts=tuple(self._facts()))

    def _facts(self) -> list[str | None]:
        raise NotImplementedError


@dataclass(frozen=True, slots=True)
class Exact(_OneLine, Displayable):
    """The counterpart of an offset; the ledger record of the same transaction proves it."""

    offset: int
    partition: TopicPartition | SourcePartition
    status: str = field(default="exact", init=False)

    def _facts(self) -> list[str | None]:
        return [f"{self.partition}@{self.offset}"]


@dataclass(frozen=True, slots=True)
class NoRecord(_OneLine, Displayable):
    """The offset holds no record for the other side.

    `resume_at` is the next offset that a reader at this offset reads (`resume_offset`). It is None where the records
    around the offset are in several partitions, each with a position of its own.

    `kind` is the gap's (see `mirrorlake.model.gaps`): `transactional`, `compacted`, `expired`, `recreated`; or why
    the record left the relay before it was sent: `erased`, `expired_from_relay`. It is None until the lander has
    accounted for the offset, and for a downstream offset of another writer or of a transaction marker.
    """

    resume_at: int | None
    kind: str | None = None
    status: str = field(default="in_a_hole", init=False)

    def _facts(self) -> list[str | None]:
        return [self.kind or "no record of the other side stands there", _resume(self.resume_at)]


@dataclass(frozen=True, slots=True)
class Filtered(_OneLine, Displayable):
    """The relay holds the record, and a rule of the flow withheld it; `version` is the rule's at that time."""

    resume_at: int | None
    rule: str = ""
    version: str = ""
    status: str = field(default="filtered", init=False)

    def _facts(self) -> list[str | None]:
        return [_rule(self.rule, self.version), _resume(self.resume_at)]


@dataclass(frozen=True, slots=True)
class Quarantined(_OneLine, Displayable):
    """The record is quarantined: the rule could not judge it, or it cannot be sent unchanged."""

    resume_at: int | None
    reason: str
    rule: str = ""
    version: str = ""
    status: str = field(default="quarantined", init=False)

    def _facts(self) -> list[str | None]:
        return [self.reason, _rule(self.rule, self.version), _resume(self.resume_at)]


@dataclass(frozen=True, slots=True)
class OtherGeneration(_OneLine, Displayable):
    """The topic's newest generation has not reached this offset, but an earlier one has.

    Call again with that `generation`. `next_offset` is the first offset of the newest generation without a
    counterpart.
    """

    generation: int
    next_offset: int
    status: str = field(default="other_generation", init=False)

    def _facts(self) -> list[str | None]:
        known = f"the newest generation of the topic is known up to offset {self.next_offset}"
        return [f"ask again with generation={self.generation}", known]


@dataclass(frozen=True, slots=True)
class NotYetRepublished(_OneLine, Displayable):
    """The offset is at or past `next_offset`, the first one without a counterpart."""

    next_offset: int
    status: str = field(default="not_yet_republished", init=False)

    def _facts(self) -> list[str | None]:
        return [f"the first offset without a counterpart yet is {self.next_offset}"]


@dataclass(frozen=True, slots=True)
class BeforeFirst(_OneLine, Displayable):
    """The offset is before `first_offset`, the first one that was republished.

    `kind` says why if the record left the relay before the flow reached it: `erased` or `expired_from_relay`.
    """

    first_offset: int
    kind: str | None = None
    status: str = field(default="before_the_first", init=False)

    def _facts(self) -> list[str | None]:
        return [f"the first offset that was republished is {self.first_offset}", self.kind]


@dataclass(frozen=True, slots=True)
class UnknownPartition(_OneLine, Displayable):
    """No record of this partition, or of this generation of its topic, was ever republished.

    `hint` offers a topic of a similar name for an unknown topic.
    """

    hint: str = ""
    status: str = field(default="unknown_partition", init=False)

    def _facts(self) -> list[str | None]:
        return ["nothing of this partition was republished", self.hint or None]


@dataclass(frozen=True, slots=True)
class DeletedTopic(_OneLine, Displayable):
    """The record was republished into an earlier `topic` of the target, which was deleted since."""

    topic: str
    status: str = field(default="in_a_deleted_topic", init=False)

    def _facts(self) -> list[str | None]:
        return [f"it was republished into an earlier {self.topic}, which was deleted"]


Translation = (
    Exact
    | NoRecord
    | Filtered
    | Quarantined
    | NotYetRepublished
    | BeforeFirst
    | OtherGeneration
    | DeletedTopic
    | UnknownPartition
)


def _rule(rule: str, version: str) -> str | None:
    return f"rule {rule} {version}".rstrip() if rule else None


def _resume(at: int | None) -> str | None:
    return None if at is None else f"a reader continues at {at}"


class OffsetMap:
    """The mapped ranges of one source partition, in any order; duplicates count once.

    Raises:
        ValueError: an upstream offset is in two mapped ranges, or they break law B on a target partition.

    Example:
        >>> source, target = SourcePartition("orders", 1, 0), TopicPartition("east.orders", 0)
        >>> run = MappedRange(source=source, target=target, first_upstream=0, last_upstream=4, first_downstream=10,
        ...           count=4, holes=((2, 1),))
        >>> OffsetMap([run]).translate(3)
        Exact(offset=12, partition=TopicPartition(topic='east.orders', partition=0), status='exact')
    """

    def __init__(self, runs: Iterable[MappedRange]) -> None:
        unique = {(run.first_upstream, run.first_downstream, run.target): run for run in runs}
        self.runs = tuple(sorted(unique.values(), key=lambda run: run.first_upstream))
        self._stretches = sorted(
            (first, last, downstream, run.target) for run in self.runs for first, last, downstream in run.dense_ranges()
        )
        self._starts = [first for first, *_ in self._stretches]
        for (first, last, *_), (after, *_) in pairwise(self._stretches):
            if last >= after:
                raise ValueError(f"law F: {self.runs[0].source} was republished twice: {first}..{last} and {after}")
        newest: dict[TopicPartition, MappedRange] = {}
        for run in self.runs:
            before = newest.get(run.target)
            if before is not None and before.last_downstream >= run.first_downstream:
                raise ValueError(f"law B: {run.source} goes backwards: {before} and {run}")
            newest[run.target] = run
        self._is_spread = len(newest) > 1

    def translate(self, upstream_offset: int) -> Translation:
        if not self.runs:
            return UnknownPartition()
        index = bisect_right(self._starts, upstream_offset) - 1
        if index < 0:
            return BeforeFirst(self.runs[0].first_upstream)
        first, last, downstream, target = self._stretches[index]
        if upstream_offset <= last:
            return Exact(downstream + upstream_offset - first, target)
        if index + 1 < len(self._stretches):
            _, _, following, _ = self._stretches[index + 1]
            resume_at = resume_offset([downstream + last - first], [following])
            return NoRecord(None if self._is_spread else resume_at)
        return NotYetRepublished(last + 1)

    def translate_back(self, downstream_offset: int, *, partition: TopicPartition) -> Translation:
        """Return the upstream record at `downstream_offset` of a target partition."""
        return standing_at([run for run in self.runs if run.target == partition], downstream_offset)


def standing_at(runs: Iterable[MappedRange], downstream_offset: int) -> Translation:
    """Return the upstream record at a downstream offset, by the mapped ranges of any sources to one target partition."""
    ordered = sorted(runs, key=lambda run: run.first_downstream)
    if not ordered:
        return UnknownPartition()
    index = bisect_right([run.first_downstream for run in ordered], downstream_offset) - 1
    if index < 0:
        return BeforeFirst(ordered[0].first_downstream)
    run = ordered[index]
    if downstream_offset <= run.last_downstream:
        return Exact(run.upstream_of(downstream_offset), run.source)
    if index + 1 < len(ordered):
        following = ordered[index + 1]
        resume_at = resume_offset([run.last_upstream], [following.first_upstream])
        return NoRecord(resume_at if following.source == run.source else None)
    return NotYetRepublished(run.last_downstream + 1)
