"""What both hops share: naming what differs, and writing down what is proven."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from mirrorlake.lake import RangeProof
from mirrorlake.model.verify import Difference
from mirrorlake.verify.merge import Mismatch
from mirrorlake.verify.spans import OffsetSpan, Spans
from mirrorlake.verify.unit import Compared, Unit


@dataclass(slots=True)
class HopResult:
    """What one hop says, of all its partitions."""

    differences: list[Difference] = field(default_factory=list)
    proofs: list[RangeProof] = field(default_factory=list)
    explained: Counter[str] = field(default_factory=Counter)
    beyond: int = 0

    def add(self, results: Sequence[Compared], *, where: str) -> None:
        """Name what units found to differ, and count what they could explain."""
        self.differences += named(results, where=where)
        self.beyond += sum(result.beyond for result in results)
        for result in results:
            for reasons in result.explained:
                self.explained.update(reasons)


def named(results: Sequence[Compared], *, where: str) -> list[Difference]:
    """Say of each place in which two sides differ what is wrong there."""

    def sides(unit: Unit, found: Mismatch) -> tuple[Any, Any]:
        return (found.fed, found.fetched) if unit.fed_is_source else (found.fetched, found.fed)

    contents = {sides(one.unit, found)[0] for one in results for found in one.found} - {None}
    differences = []
    for one in results:
        for found in one.found:
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


def claims(due: Spans, *, doubts: Iterable[int] = (), end: int, gone: Spans) -> Spans:
    """Say of which due offsets a comparison proves that all is well: all from the first to the last, but for what is named."""
    if not due:
        return due
    hull = Spans([(due.first, min(due.end, end))])
    return hull - gone - Spans((offset, offset + 1) for offset in doubts)


def passes(spans: Mapping[Any, Spans]) -> Iterable[dict[Any, OffsetSpan]]:
    """Yield the first range of each key, then the second of those that have one, and so on."""
    for number in range(max(map(len, spans.values()), default=0)):
        yield {key: tuple(several)[number] for key, several in spans.items() if number < len(several)}
