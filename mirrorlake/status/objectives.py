"""Compare objectives with measurements: the present RPO, and the RTO of the last failover or drill.

What was not measured is neither met nor missed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from mirrorlake.config.schema import FlowConfig
from mirrorlake.lake import Lake
from mirrorlake.render import Table, badge, format_duration, table

Met = Literal["met", "missed", "unknown"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """A measurement in seconds to compare with an objective (None: not known); of the RTO with its time and command."""

    seconds: float | None
    at: datetime | None = None
    by: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """An objective of a flow, `RPO` or `RTO`, in seconds, and the measurement."""

    name: str
    wanted_s: float
    measured: Measured

    @property
    def met(self) -> Met:
        if self.measured.seconds is None:
            return "unknown"
        return "met" if self.measured.seconds <= self.wanted_s else "missed"

    def said(self) -> tuple[str, str | None]:
        """Return the objective and the measurement in words, None where there is none."""
        wanted, measured = (
            None if seconds is None else format_duration(seconds * 1000)
            for seconds in (self.wanted_s, self.measured.seconds)
        )
        return wanted or "", measured

    def __str__(self) -> str:
        wanted, measured = self.said()
        return f"{self.name} {measured or 'not measured'} of {wanted}{f', {self.met}' if measured else ''}"


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowObjectives:
    """The objectives that a flow has."""

    flow: str
    objectives: tuple[Objective, ...]

    def __iter__(self) -> Iterator[Objective]:
        return iter(self.objectives)

    @property
    def missed(self) -> tuple[str, ...]:
        """The objectives that are not met: `RPO`, `RTO`."""
        return tuple(one.name for one in self if one.met == "missed")

    def __str__(self) -> str:
        return "; ".join(map(str, self))

    def as_dict(self) -> dict[str, Any]:
        """Build the JSON document; times in seconds."""
        found = {}
        for one in self:
            said: dict[str, Any] = {"objective_s": one.wanted_s, "measured_s": one.measured.seconds, "verdict": one.met}
            if one.name == "RTO":
                at = one.measured.at
                said |= {"measured_at": None if at is None else at.isoformat(), "measured_by": one.measured.by}
            found[one.name.lower()] = said
        return found


def judge_objectives(flow: FlowConfig, rpo_ms: int | None, rto: Mapping[str, Measured]) -> FlowObjectives | None:
    """Compare a flow's objectives with its present RPO and the last RTO of each flow; None for a flow without objectives."""
    lost = Measured(seconds=None if rpo_ms is None else rpo_ms / 1000)
    pairs = (
        ("RPO", flow.objectives.rpo, lost),
        ("RTO", flow.objectives.rto, rto.get(flow.name, Measured(seconds=None))),
    )
    found = tuple(
        Objective(name=name, wanted_s=wanted.total_seconds(), measured=measured)
        for name, wanted, measured in pairs
        if wanted is not None
    )
    return FlowObjectives(flow=flow.name, objectives=found) if found else None


def measured_rto(lake: Lake, flows: Iterable[FlowConfig]) -> dict[str, Measured]:
    """Read the RTO of the last failover or drill of flows that have an objective for it, from `audit`."""
    names = sorted(flow.name for flow in flows if flow.objectives.rto is not None)
    found = {}
    for row in lake.query(_LAST, missing_ok=True, names=names) if names else ():
        try:
            said = json.loads(row.after)
        except ValueError:
            continue
        seconds = said.get("rto_s") if isinstance(said, dict) else None
        if isinstance(seconds, int | float):
            found[row.flow] = Measured(seconds=float(seconds), at=row.at, by=row.command)
    return found


def objectives_table(found: Sequence[FlowObjectives]) -> Table:
    rows = [(of.flow, one.name, *one.said(), badge(one.met)) for of in found for one in of]
    return table("objectives", ["flow", "objective", "at most", "measured", "verdict"], rows)


_LAST = """
    SELECT flow, command, after, at FROM {audit}
    WHERE array_contains(:names, flow) AND command IN ('drill', 'failover') AND after LIKE '%rto_s%' ORDER BY at
"""
