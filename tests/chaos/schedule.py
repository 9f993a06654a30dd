"""Which faults come when: a pure function of the seed, so that a run can be repeated."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from random import Random

# Time for the streams to start and to send something.
_FIRST_S = 10.0
# Between the beginnings of two faults; on a machine of 2 cores a start of the mirror takes half a minute.
_BETWEEN_S = (5.0, 20.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of fault: what it hits, how long it may last, how often it comes. Two faults never hit one subject at once."""

    name: str
    subject: str
    seconds: tuple[float, float] = (0.0, 0.0)
    weight: int = 2
    needs_brokers: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Planned:
    """One fault: when it begins after the start, how long it lasts, and the draw that decides what it decides by chance."""

    at_s: float
    kind: str
    for_s: float
    draw: int

    def __str__(self) -> str:
        lasts = f" for {self.for_s:.0f} s" if self.for_s else ""
        return f"{self.at_s:6.1f} s  {self.kind}{lasts}"


def planned(seed: int, minutes: float, kinds: Mapping[str, Kind], *, brokers: int) -> Sequence[Planned]:
    """Return the faults of a seed; a longer run begins with those of a shorter one.

    >>> one = {"cut": Kind(name="cut", subject="network", seconds=(1, 2))}
    >>> planned(7, 2, one, brokers=1) == planned(7, 5, one, brokers=1)[:len(planned(7, 2, one, brokers=1))]
    True
    """
    random = Random(f"chaos {seed}")
    names = sorted(name for name, kind in kinds.items() if kind.needs_brokers <= brokers)
    weights = [kinds[name].weight for name in names]
    free_at: dict[str, float] = {}
    found: list[Planned] = []
    at_s = _FIRST_S
    while True:
        kind = kinds[random.choices(names, weights)[0]]
        at_s = max(at_s, free_at.get(kind.subject, 0.0))
        for_s = random.uniform(*kind.seconds)
        if at_s >= minutes * 60:
            return found
        found.append(Planned(at_s=round(at_s, 1), kind=kind.name, for_s=round(for_s, 1), draw=random.randrange(10**6)))
        free_at[kind.subject] = at_s + for_s + _BETWEEN_S[0]
        at_s += random.uniform(*_BETWEEN_S)
