"""The result of a verification: what was compared of each partition, and every difference by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from mirrorlake.render import Badge, Displayable, JsonDisplayable, Sheet, Table, badge, format_count, plural, table

# More differences add nothing, and a report must fit into memory.
MAX_DIFFERENCES = 1000
COUNTS = ("landed", "republished", "withheld", "verified", "proven_before", "not_republished", "not_compared")
# A terminal of 80 columns drops these first.
_LEAST = ("proven before", "withheld", "generation", "records landed")
# In other reports `landed` is a position; in this one it is a count.
_TITLES = {"landed": "records landed"}
PROBLEMS = ("missing", "extra", "doubled", "altered", "out_of_order", "not_republished")


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """A difference: `where` (`relay` or `target`), the problem, its coordinates, and the number of records.

    Problems: `missing`, `extra`, `altered` (other bytes at its offset), `out_of_order` (at the offset of another
    record), `doubled` (the relay holds the record `records` times, or the target holds a second copy), and
    `not_republished` (`records` of the relay, from this offset on, that the flow has not reached).
    """

    where: str
    problem: str
    topic: str
    partition: int
    offset: int
    records: int = 1

    @classmethod
    def at(cls, place: Any, offset: int, *, where: str, problem: str, records: int = 1) -> Difference:
        """Build a difference at an offset of any object with a `topic` and a `partition`."""
        return cls(
            where=where, problem=problem, topic=place.topic, partition=place.partition, offset=offset, records=records
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProof:
    """The compared record counts of one source partition.

    `withheld` records were stopped by the flow's rules. `verified` is 0 if there is a difference. `proven_before` of
    the verified records were compared by an earlier verification and not read again. `not_republished` records wait
    for the flow. `not_compared` records were sent and have left the relay or the target, were sent after the cut, or
    precede the flow's `start`.
    """

    topic: str
    generation: int
    partition: int
    landed: int
    republished: int
    withheld: int
    verified: int
    proven_before: int = 0
    not_republished: int = 0
    not_compared: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """Offsets or records missing on one side, and why (law E); `certainty` is `certain` or `likely`.

    `where` is `source` (never landed: the kinds of `mirrorlake.model.gaps`) or `relay` (landed and removed since:
    `expired`, `erased`).
    """

    where: str
    kind: str
    offsets: int
    certainty: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeftOutPartition:
    """A source partition that was not read, and why: only its relay and target were compared."""

    topic: str
    partition: int
    why: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class VerifyReport(JsonDisplayable):
    """The result for one flow; `equal` without a difference and with every source partition read.

    Only the first 1000 differences are listed.

    Example:
        >>> proof = PartitionProof(topic="orders", generation=1, partition=0, landed=9, republished=9, withheld=0, verified=9)
        >>> print(VerifyReport(flow="east->central", equal=True, partitions=(proof,), differences=()))
        verify east->central: ✓ equal · 9 records verified · 1 partition
          topic   generation  partition  records landed  republished  withheld  verified  proven before  not republished  not compared
          orders           1          0               9            9         0         9              0                0             0
    """

    flow: str
    equal: bool
    partitions: tuple[PartitionProof, ...]
    differences: tuple[Difference, ...]
    explained: tuple[Explained, ...] = ()
    left_out: tuple[LeftOutPartition, ...] = ()
    json_include: ClassVar[tuple[str, ...]] = ("verified", "proven_before", "not_compared")

    @property
    def verified(self) -> int:
        """The number of records equal on source, relay and target, in partitions without a difference."""
        return sum(proof.verified for proof in self.partitions)

    @property
    def proven_before(self) -> int:
        """The number of verified records that an earlier verification proved; they were not read again."""
        return sum(proof.proven_before for proof in self.partitions)

    @property
    def not_compared(self) -> int:
        """The number of landed records that this verification did not compare."""
        return sum(proof.not_compared for proof in self.partitions)

    def sheet(self) -> Sheet:
        """Return the verdict, any differences, and a row a partition."""
        return Sheet(
            title=f"verify {self.flow}",
            badge=_badge(self),
            facts=(*_facts([self]), plural(len(self.partitions), "partition")),
            parts=_parts([self]) if self.partitions or self.differences else ("nothing was landed yet",),
        )


class VerifyReports(Displayable, list[VerifyReport]):
    """The reports of several flows; `verification` is their id in the table `proofs`."""

    def __init__(self, reports: Iterable[VerifyReport] = (), *, verification: str = "") -> None:
        super().__init__(reports)
        self.verification = verification

    @property
    def equal(self) -> bool:
        """Whether no flow has a difference and every source partition was read."""
        return all(report.equal for report in self)

    def as_dict(self) -> dict[str, Any]:
        """Return the reports as `--json` prints them."""
        return {
            "equal": self.equal,
            "differences": [{"flow": one.flow, **asdict(d)} for one in self for d in one.differences],
            "left_out": [{"flow": one.flow, **asdict(left)} for one in self for left in one.left_out],
            "flows": [one.as_dict() for one in self],
            "verification": self.verification,
        }

    def sheet(self) -> Sheet:
        """Return the verdict, a row a flow, the differences and a row a partition; differing flows come first."""
        columns = ["flow", "result", "records verified", "not compared", "partitions"]
        flows = [
            (one.flow, _badge(one), one.verified, one.not_compared, len(one.partitions))
            for one in sorted(self, key=lambda report: report.equal)
        ]
        return Sheet(
            title="verify",
            badge=_whole_badge(self),
            facts=(plural(len(self), "flow"), *_facts(self)),
            parts=(*([table("", columns, flows)] if len(flows) > 1 else []), *_parts(self, named=True)),
        )


def _badge(report: VerifyReport) -> Badge:
    found = len(report.differences)
    words = f"{plural(found, 'difference')}{' or more' if found >= MAX_DIFFERENCES else ''}"
    return badge(words, "bad") if found else _whole_badge([report])


def _whole_badge(reports: Sequence[VerifyReport]) -> Badge:
    if any(one.differences for one in reports):
        return badge("different")
    if not all(one.equal for one in reports):
        return badge("not all compared", "warn")
    # An empty mirror has nothing to compare, so it is not called equal.
    return badge("equal") if any(one.verified for one in reports) else badge("nothing compared", "warn")


def _facts(reports: Sequence[VerifyReport]) -> tuple[str, ...]:
    left = sum(one.not_compared for one in reports)
    before = sum(one.proven_before for one in reports)
    facts = [f"{plural(sum(one.verified for one in reports), 'record')} verified"]
    facts += [f"{format_count(before)} of them proven before"] if before else []
    facts += [f"{plural(left, 'record')} not compared"] if left else []
    return tuple(facts)


def _parts(reports: Sequence[VerifyReport], *, named: bool = False) -> tuple[Table, ...]:
    def of(report: VerifyReport) -> list[str]:
        return [report.flow] if named else []

    differences = [
        (*of(one), d.where, badge(d.problem), d.topic, str(d.partition), str(d.offset), d.records)
        for one in reports
        for d in one.differences
    ]
    unproven_first = sorted(
        ((one, p) for one in reports for p in one.partitions),
        key=lambda found: found[1].verified == found[1].republished,
    )
    proofs = [
        (*of(one), p.topic, str(p.generation), str(p.partition), *(getattr(p, name) for name in COUNTS))
        for one, p in unproven_first
    ]
    first, counts = ["flow"] if named else [], [_TITLES.get(name, name.replace("_", " ")) for name in COUNTS]
    why = [(*of(one), e.where, e.kind, e.offsets, e.certainty) for one in reports for e in one.explained]
    wrong = table("differences", [*first, "where", "problem", "topic", "partition", "offset", "records"], differences)
    left = [(*of(one), p.topic, str(p.partition), p.why) for one in reports for p in one.left_out]
    title = "partitions" if differences or left else ""
    return (
        *([wrong] if differences else []),
        *([table("source not compared", [*first, "topic", "partition", "why"], left)] if left else []),
        *(
            [table(title, [*first, "topic", "generation", "partition", *counts], proofs, least=_LEAST)]
            if proofs
            else []
        ),
        *([table("explained", [*first, "where", "kind", "offsets", "certainty"], why)] if why else []),
    )
