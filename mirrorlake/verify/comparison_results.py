"""Results of a hop: named differences, and the ranges that are proven."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mirrorlake.lake import RangeProof
from mirrorlake.model.verify import Difference
from mirrorlake.verify.offset_ranges import OffsetRange, OffsetRanges
from mirrorlake.verify.stream_comparison import Mismatch
from mirrorlake.verify.unit import ComparisonUnit, UnitResult


@dataclass(slots=True)
class HopResult:
    """The result of one hop, of all its partitions."""

    differences: list[Difference] = field(default_factory=list)
    proofs: list[RangeProof] = field(default_factory=list)
    explained: Counter[str] = field(default_factory=Counter)
    beyond: int = 0

    def add(self, results: Sequence[UnitResult], *, where: str) -> None:
        """Add the differences and explanations of compared units."""
        self.differences += name_differences(results, where=where)
        self.beyond += sum(result.beyond for result in results)
        for result in results:
            for reasons in result.explained:
                self.explained.update(reasons)


def name_differences(results: Sequence[UnitResult], *, where: str) -> list[Difference]:
    """Return a named difference for each mismatch."""

    def sides(unit: ComparisonUnit, found: Mismatch) -> tuple[Any, Any]:
        return (found.fed, found.fetched) if unit.fed_is_source else (found.fetched, found.fed)

    contents = {sides(one.unit, found)[0] for one in results for found in one.mismatches} - {None}
    differences = []
    for one in results:
        for found in one.mismatches:
            wanted, held = sides(one.unit, found)
            if held is None:
                problem = "missing"
            elif wanted is None:
                is_copy = (found.target, found.offset) in one.copies and held not in contents
                problem = "doubled" if is_copy else "extra"
            else:
                problem = "out_of_order" if held in contents else "altered"
            differences.append(
                Difference.at(one.unit.partitions[found.target], found.offset, where=where, problem=problem)
            )
    return differences


def provable_ranges(due: OffsetRanges, *, suspects: Iterable[int] = (), end: int, gone: OffsetRanges) -> OffsetRanges:
    """Return the due offsets that are proven equal: the compared range minus `suspects` and `gone`."""
    if not due:
        return due
    hull = OffsetRanges([(due.first, min(due.end, end))])
    return hull - gone - OffsetRanges((offset, offset + 1) for offset in suspects)


def range_passes(spans: Mapping[Any, OffsetRanges]) -> Iterable[dict[Any, OffsetRange]]:
    """Yield the first range of each key, then the second of those that have one, and so on."""
    for number in range(max(map(len, spans.values()), default=0)):
        yield {key: tuple(several)[number] for key, several in spans.items() if number < len(several)}
