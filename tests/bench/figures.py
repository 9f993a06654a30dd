"""What was measured, and the arithmetic on it; no process and no clock here."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

# In the order of the table. Cold: the first pass of a fresh JVM; warm: later passes of the same one.
LAND_COLD = "land, cold"
LAND = "land, warm"
REPUBLISH_COLD = "republish, cold"
REPUBLISH = "republish, warm"
BOTH = "land + republish, warm"
MM2_DEFAULTS = "MM2, defaults"
MM2_TUNED = "MM2, tuned"
MM2_EXACTLY_ONCE = "MM2, tuned, exactly-once"
SUBJECTS = (LAND_COLD, LAND, REPUBLISH_COLD, REPUBLISH, BOTH, MM2_DEFAULTS, MM2_TUNED, MM2_EXACTLY_ONCE)
BASELINES = (MM2_DEFAULTS, MM2_TUNED, MM2_EXACTLY_ONCE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One pass of one subject over the whole workload, after its copy was proven complete.

    `cpu_seconds` are user and system time of the mirror's whole process tree; the brokers' are in `broker_cpu_seconds`.
    `strangers_cores` is how many cores were busy with neither mirror nor brokers nor this benchmark: above a tenth or
    so, the wall clock says more about the machine than about the mirror. `start_*` are what it took to get ready
    (the JVM, the Spark session, MM2's start until its first record) and are in no other figure.
    """

    subject: str
    records: int
    seconds: float
    cpu_seconds: float
    broker_cpu_seconds: float = 0.0
    strangers_cores: float = 0.0
    start_seconds: float | None = None
    start_cpu_seconds: float | None = None
    facts: Mapping[str, float] = field(default_factory=dict)

    @property
    def records_per_second(self) -> float:
        return self.records / self.seconds

    @property
    def cpu_per_million(self) -> float:
        return per_million(self.cpu_seconds, self.records)

    def as_dict(self) -> dict[str, Any]:
        return asdict(self) | {
            "records_per_second": self.records_per_second,
            "cpu_seconds_per_million": self.cpu_per_million,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Figure:
    """One line of the table: medians over the passes of one subject, each value by itself."""

    subject: str
    passes: int
    records: int
    seconds: float
    records_per_second: float
    cpu_per_million: float
    cpu_range: tuple[float, float]
    broker_cpu_per_million: float
    strangers_cores: float
    start_seconds: float | None
    start_cpu_seconds: float | None
    facts: Mapping[str, float]


def per_million(amount: float, records: int) -> float:
    """Return an amount per million records."""
    if records <= 0:
        raise ValueError("no records were measured")
    return amount * 1_000_000 / records


def summarize(measurements: Iterable[Measurement]) -> list[Figure]:
    """Return one figure per subject in the order of `SUBJECTS`."""
    by_subject: dict[str, list[Measurement]] = {}
    for measurement in measurements:
        by_subject.setdefault(measurement.subject, []).append(measurement)
    return [_figure(subject, by_subject[subject]) for subject in SUBJECTS if subject in by_subject]


def _figure(subject: str, passes: Sequence[Measurement]) -> Figure:
    counts = {one.records for one in passes}
    if len(counts) != 1:
        raise ValueError(f"{subject}: passes over {sorted(counts)} records cannot be compared")
    cpu = [one.cpu_per_million for one in passes]
    names = sorted({name for one in passes for name in one.facts})
    return Figure(
        subject=subject,
        passes=len(passes),
        records=counts.pop(),
        seconds=median(one.seconds for one in passes),
        records_per_second=median(one.records_per_second for one in passes),
        cpu_per_million=median(cpu),
        cpu_range=(min(cpu), max(cpu)),
        broker_cpu_per_million=median(per_million(one.broker_cpu_seconds, one.records) for one in passes),
        strangers_cores=median(one.strangers_cores for one in passes),
        start_seconds=_median(one.start_seconds for one in passes),
        start_cpu_seconds=_median(one.start_cpu_seconds for one in passes),
        facts={name: median(one.facts[name] for one in passes if name in one.facts) for name in names},
    )


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return median(known) if known else None


def ratios(figure: Figure, figures: Sequence[Figure]) -> dict[str, float]:
    """Return by baseline how much CPU the figure takes of it: below 1 is cheaper. A baseline is not compared with itself."""
    return {
        other.subject: figure.cpu_per_million / other.cpu_per_million
        for other in figures
        if other.subject in BASELINES and other.subject != figure.subject
    }


def with_targets(figures: Sequence[Figure], counts: Sequence[int] = (1, 2, 3)) -> dict[str, list[float]]:
    """Return CPU-seconds per million source records with that many targets, computed from the figures.

    A record is landed once and republished once a target; MM2 reads and sends it once a target. Only subjects whose
    parts were all measured are there.
    """
    cost = {figure.subject: figure.cpu_per_million for figure in figures}
    rows = {}
    if LAND in cost and REPUBLISH in cost:
        rows["mirrorlake, warm"] = [cost[LAND] + count * cost[REPUBLISH] for count in counts]
    rows |= {subject: [count * cost[subject] for count in counts] for subject in BASELINES if subject in cost}
    return rows
