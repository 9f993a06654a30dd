"""What a verification found: what was compared of each partition, and every difference by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from mirrorlake.show import Badge, Sheet, Shown, Table, badge, plural, table

# More of them say nothing more, and a report is a value that fits into memory.
MOST_DIFFERENCES = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Difference:
    """One record that differs: `where` (`relay` or `target`), what is wrong, and its coordinates there.

    Problems: `missing`, `extra`, `altered` (other bytes in its place), `out_of_order` (it stands in another's place).
    """

    where: str
    problem: str
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionProof:
    """What was compared of one source partition: record counts that were found equal, or not.

    `withheld` records were kept back by the flow's rules; `verified` is 0 where a difference was found.
    """

    topic: str
    generation: int
    partition: int
    landed: int
    republished: int
    withheld: int
    verified: int


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class VerifyReport(Shown):
    """The result for one flow; `equal` when there is no difference. Of very many differences the first ones are listed.

    Example:
        >>> proof = PartitionProof(topic="orders", generation=1, partition=0, landed=9, republished=9, withheld=0, verified=9)
        >>> print(VerifyReport(flow="east->central", equal=True, partitions=(proof,), differences=()))
        verify east->central: ✓ equal · 9 records verified · 1 partition
          topic   generation  partition  landed  republished  withheld  verified
          orders           1          0       9            9         0         9
    """

    flow: str
    equal: bool
    partitions: tuple[PartitionProof, ...]
    differences: tuple[Difference, ...]

    @property
    def verified(self) -> int:
        """How many records stand on source, relay and target alike, in partitions without a difference."""
        return sum(proof.verified for proof in self.partitions)

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON document."""
        return {
            "flow": self.flow,
            "equal": self.equal,
            "differences": [asdict(difference) for difference in self.differences],
            "partitions": [asdict(partition) for partition in self.partitions],
        }

    def sheet(self) -> Sheet:
        """Return the verdict, the differences where there are any, and a row a partition."""
        return Sheet(
            title=f"verify {self.flow}",
            badge=_badge(self),
            facts=(f"{plural(self.verified, 'record')} verified", plural(len(self.partitions), "partition")),
            parts=_parts([self]) if self.partitions or self.differences else ("nothing was landed yet",),
        )


class VerifyReports(Shown, list[VerifyReport]):
    """The reports of several flows: a list of `VerifyReport` that shows itself."""

    @property
    def equal(self) -> bool:
        """Tell whether no flow has a difference."""
        return all(report.equal for report in self)

    def as_dict(self) -> dict[str, Any]:
        """Return the JSON document."""
        return {
            "equal": self.equal,
            "differences": [{"flow": one.flow, **asdict(d)} for one in self for d in one.differences],
            "flows": [one.as_dict() for one in self],
        }

    def sheet(self) -> Sheet:
        """Return the verdict on all flows, a row a flow, the differences and a row a partition; what differs comes first."""
        columns = ["flow", "result", "records verified", "partitions"]
        flows = [
            (one.flow, _badge(one), one.verified, len(one.partitions))
            for one in sorted(self, key=lambda report: report.equal)
        ]
        return Sheet(
            title="verify",
            badge=badge("equal" if self.equal else "different"),
            facts=(plural(len(self), "flow"), f"{plural(sum(one.verified for one in self), 'record')} verified"),
            parts=(*([table("", columns, flows)] if len(flows) > 1 else []), *_parts(self, named=True)),
        )


def _badge(report: VerifyReport) -> Badge:
    found = len(report.differences)
    words = f"{plural(found, 'difference')}{' or more' if found >= MOST_DIFFERENCES else ''}"
    return badge("equal") if report.equal else badge(words, "bad")


def _parts(reports: Sequence[VerifyReport], *, named: bool = False) -> tuple[Table, ...]:
    first = ["flow"] if named else []
    differences = [
        (*([one.flow] if named else []), d.where, badge(d.problem), d.topic, str(d.partition), str(d.offset))
        for one in reports
        for d in one.differences
    ]
    proofs = [
        (
            *([one.flow] if named else []),
            *(p.topic, str(p.generation), str(p.partition)),
            *(p.landed, p.republished, p.withheld, p.verified),
        )
        for one, p in sorted(
            ((one, p) for one in reports for p in one.partitions),
            key=lambda found: found[1].verified == found[1].republished,
        )
    ]
    counted = ["topic", "generation", "partition", "landed", "republished", "withheld", "verified"]
    return (
        *(
            [table("differences", [*first, "where", "problem", "topic", "partition", "offset"], differences)]
            if differences
            else []
        ),
        *([table("partitions" if differences else "", [*first, *counted], proofs)] if proofs else []),
    )
