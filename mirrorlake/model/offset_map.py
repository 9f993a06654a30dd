"""The offset map: which downstream offset stands for an upstream one, exactly, in both directions.

A run says that a stretch of upstream offsets went to a stretch of downstream offsets without a break there:

    upstream     100 101 102  ·  104 105        · is a hole: a control record, an aborted or a compacted record
    downstream   500 501 502    503 504         dense, because one transaction of one producer wrote them

Law A (never ahead): a position never skips a record that has not been read.
Law B (monotonic): a later upstream offset never translates earlier.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from mirrorlake.model.flow import SourcePartition, TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """Upstream offsets `first_upstream..last_upstream` without `holes`, at `first_downstream` and onwards.

    `holes` are pairs `(first offset, length)`, ascending, inside the run. `count` records were written.
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
        """The downstream offset of the run's last record."""
        return self.first_downstream + self.count - 1

    def downstream_of(self, upstream_offset: int) -> int | None:
        """Return the counterpart of an upstream offset inside the run, or None in a hole."""
        skipped = 0
        for first, length in self.holes:
            if upstream_offset < first:
                break
            if upstream_offset < first + length:
                return None
            skipped += length
        return self.first_downstream + upstream_offset - self.first_upstream - skipped

    def upstream_of(self, downstream_offset: int) -> int:
        """Return the counterpart of a downstream offset inside the run."""
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


@dataclass(frozen=True, slots=True)
class Exact:
    """The counterpart; it was written in one transaction with the ledger record that says so."""

    offset: int
    partition: TopicPartition | SourcePartition
    status: str = field(default="exact", init=False)


@dataclass(frozen=True, slots=True)
class InHole:
    """The offset holds no record for the other side.

    `resume_at` is where a reader that stood here goes on, None while the record after the hole is not republished. `kind` is
    the gap's (see `mirrorlake.model.gaps`): `transactional`, `compacted`, `expired`, `recreated`; None where the lander has
    not accounted for it yet, and for a downstream offset that another writer or a transaction marker holds.
    """

    resume_at: int | None
    kind: str | None = None
    status: str = field(default="in_a_hole", init=False)


@dataclass(frozen=True, slots=True)
class Filtered:
    """The record stands in the relay and a rule of the flow withheld it from the target; `version` is the rule's then."""

    resume_at: int | None
    rule: str = ""
    version: str = ""
    status: str = field(default="filtered", init=False)


@dataclass(frozen=True, slots=True)
class Quarantined:
    """The record was put into the table `quarantine` instead of onto the target: the rule could not judge it."""

    resume_at: int | None
    reason: str
    rule: str = ""
    version: str = ""
    status: str = field(default="quarantined", init=False)


@dataclass(frozen=True, slots=True)
class OtherGeneration:
    """The newest life of the topic has not come to this offset, but an earlier life of it has.

    Ask again with that `generation`; `next_offset` is the first offset of the newest life that has no counterpart yet.
    """

    generation: int
    next_offset: int
    status: str = field(default="other_generation", init=False)


@dataclass(frozen=True, slots=True)
class NotYetRepublished:
    """The offset is at or behind `next_offset`, the first one that has no counterpart yet."""

    next_offset: int
    status: str = field(default="not_yet_republished", init=False)


@dataclass(frozen=True, slots=True)
class BeforeFirst:
    """The offset is before `first_offset`, the first one that was ever republished."""

    first_offset: int
    status: str = field(default="before_the_first", init=False)


@dataclass(frozen=True, slots=True)
class UnknownPartition:
    """Nothing of this partition (or of this generation of its topic) was ever republished."""

    status: str = field(default="unknown_partition", init=False)


Translation = (
    Exact | InHole | Filtered | Quarantined | NotYetRepublished | BeforeFirst | OtherGeneration | UnknownPartition
)


class OffsetMap:
    """The runs of one source partition, in upstream order.

    Args:
        runs: runs of one source partition, in any order. Copies of the same run are one run.

    Raises:
        ValueError: runs overlap upstream, or break law B.

    Example:
        >>> source, target = SourcePartition("orders", 1, 0), TopicPartition("east.orders", 0)
        >>> run = Run(source=source, target=target, first_upstream=0, last_upstream=4, first_downstream=10,
        ...           count=4, holes=((2, 1),))
        >>> OffsetMap([run]).translate(3)
        Exact(offset=12, partition=TopicPartition(topic='east.orders', partition=0), status='exact')
    """

    def __init__(self, runs: Iterable[Run]) -> None:
        unique = {(run.first_upstream, run.first_downstream, run.target): run for run in runs}
        self.runs = tuple(sorted(unique.values(), key=lambda run: run.first_upstream))
        self._starts = [run.first_upstream for run in self.runs]
        for before, after in pairwise(self.runs):
            if before.last_upstream >= after.first_upstream:
                raise ValueError(f"law F: {after.source} was republished twice: {before} and {after}")
            if before.target == after.target and before.last_downstream >= after.first_downstream:
                raise ValueError(f"law B: {after.source} goes backwards: {before} and {after}")

    def translate(self, upstream_offset: int) -> Translation:
        """Return where the record at `upstream_offset` stands on the target, or why it stands nowhere."""
        if not self.runs:
            return UnknownPartition()
        index = bisect_right(self._starts, upstream_offset) - 1
        if index < 0:
            return BeforeFirst(self.runs[0].first_upstream)
        run = self.runs[index]
        if upstream_offset <= run.last_upstream:
            offset = run.downstream_of(upstream_offset)
            return InHole(self._resume(upstream_offset)) if offset is None else Exact(offset, run.target)
        if index + 1 < len(self.runs):
            return InHole(self.runs[index + 1].first_downstream)
        return NotYetRepublished(run.last_upstream + 1)

    def _resume(self, upstream_offset: int) -> int | None:
        run = self.runs[bisect_right(self._starts, upstream_offset) - 1]
        after = next(first + length for first, length in run.holes if first <= upstream_offset < first + length)
        return run.downstream_of(after)

    def translate_back(self, downstream_offset: int, *, partition: TopicPartition) -> Translation:
        """Return which upstream record stands at `downstream_offset` of a target partition."""
        runs = [run for run in self.runs if run.target == partition]
        if not runs:
            return UnknownPartition()
        index = bisect_right([run.first_downstream for run in runs], downstream_offset) - 1
        if index < 0:
            return BeforeFirst(runs[0].first_downstream)
        run = runs[index]
        if downstream_offset <= run.last_downstream:
            return Exact(run.upstream_of(downstream_offset), run.source)
        if index + 1 < len(runs):
            return InHole(runs[index + 1].first_upstream)
        return NotYetRepublished(run.last_downstream + 1)
