"""Compare objectives with measurements: the present RPO, and the RTO of the last failover or drill.

What was not measured is neither met nor missed.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

from mirrorlake.config.schema import FlowConfig
from mirrorlake.lake import Lake
from mirrorlake.render import Table, badge, format_duration, table


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRto:
    seconds: float
    at: datetime
    by: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowObjectives:
    """The objectives of a flow and the measurements in seconds; None if not set, or not measured."""

    flow: str
    rpo_s: float | None = None
    measured_rpo_s: float | None = None
    rto_s: float | None = None
    measured_rto_s: float | None = None
    rto_measured_at: datetime | None = None
    rto_measured_by: str | None = None

    @property
    def rpo(self) -> Met | None:
        """Whether the RPO is met now; None without an objective."""
        return _met(self.rpo_s, self.measured_rpo_s)

    @property
    def rto(self) -> Met | None:
        """Whether the RTO was met the last time; None without an objective."""
        return _met(self.rto_s, self.measured_rto_s)

    @property
    def missed(self) -> tuple[str, ...]:
        """The objectives that are not met: `RPO`, `RTO`."""
        return tuple(name for name, met in (("RPO", self.rpo), ("RTO", self.rto)) if met == "missed")

    def rows(self) -> list[tuple[str, float, float | None, Met]]:
        found = (
            ("rpo", self.rpo_s, self.measured_rpo_s, self.rpo),
            ("rto", self.rto_s, self.measured_rto_s, self.rto),
        )
        return [(name, wanted, measured, met) for name, wanted, measured, met in found if wanted is not None and met]

    def __str__(self) -> str:
        return "; ".join(
            f"{name.upper()} {'not measured' if measured is None else _span(measured)} of {_span(wanted)}"
            + ("" if met == "unknown" else f", {met}")
            for name, wanted, measured, met in self.rows()
        )

    def as_dict(self) -> dict[str, Any]:
        """Build the JSON document; times in seconds."""
        by = {"measured_at": None if self.rto_measured_at is None else self.rto_measured_at.isoformat()}
        by |= {"measured_by": self.rto_measured_by}
        return {
            name: {"objective_s": wanted, "measured_s": measured, "verdict": met, **(by if name == "rto" else {})}
            for name, wanted, measured, met in self.rows()
        }


Met = Literal["met", "missed", "unknown"]


def _met(wanted: float | None, measured: float | None) -> Met | None:
    if wanted is None:
        return None
    return "unknown" if measured is None else "met" if measured <= wanted else "missed"


def _span(seconds: float) -> str:
    return format_duration(seconds * 1000)


def judge_objectives(
    flows: Iterable[FlowConfig], rpo_ms: Mapping[str, int | None], rto: Mapping[str, MeasuredRto]
) -> tuple[FlowObjectives, ...]:
    """Compare flows' objectives with measurements; a flow without objectives is left out."""
    found = []
    for flow in flows:
        wanted = flow.objectives
        if wanted.rpo is None and wanted.rto is None:
            continue
        lost, took = rpo_ms.get(flow.name), rto.get(flow.name)
        found.append(
            FlowObjectives(
                flow=flow.name,
                rpo_s=None if wanted.rpo is None else wanted.rpo.total_seconds(),
                measured_rpo_s=None if lost is None else lost / 1000,
                rto_s=None if wanted.rto is None else wanted.rto.total_seconds(),
                measured_rto_s=None if took is None else took.seconds,
                rto_measured_at=None if took is None else took.at,
                rto_measured_by=None if took is None else took.by,
            )
        )
    return tuple(found)


def measured_rto(lake: Lake, flows: Iterable[FlowConfig]) -> dict[str, MeasuredRto]:
    """Read the RTO of the last failover or drill of flows that have an objective for it, from `audit`."""
    names = sorted(flow.name for flow in flows if flow.objectives.rto is not None)
    if not names:
        return {}
    found = {}
    for row in lake.query_rows(_LAST, missing_ok=True, names=names):
        seconds = _rto_of(row.after)
        if seconds is not None:
            found[row.flow] = MeasuredRto(seconds=seconds, at=row.at, by=row.command)
    return found


def _rto_of(after: str | None) -> float | None:
    try:
        said = json.loads(after or "null")
    except ValueError:
        return None
    seconds = said.get("rto_s") if isinstance(said, dict) else None
    return float(seconds) if isinstance(seconds, int | float) else None


def objectives_table(found: Sequence[FlowObjectives]) -> Table:
    rows = [
        (one.flow, name.upper(), _span(wanted), None if measured is None else _span(measured), badge(met))
        for one in found
        for name, wanted, measured, met in one.rows()
    ]
    return table("objectives", ["flow", "objective", "at most", "measured", "verdict"], rows)


_LAST = """
    SELECT flow, command, after, at FROM {audit}
    WHERE array_contains(:names, flow) AND command IN ('drill', 'failover') AND after LIKE '%rto_s%' ORDER BY at
"""
