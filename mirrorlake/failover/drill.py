"""Report on a drill: a failover into a scratch cluster from the relay, while the mirror runs, judged by objective.

The source counts as lost: nothing of it is read, and groups use positions that the lake recorded. The scratch cluster is filled
from the relay first; `rto_s` measures the steps after that, which a real failover takes, too.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import ClassVar, Literal

from mirrorlake.failover.report import FailoverReport
from mirrorlake.render import JsonDisplayable, Mood, Sheet, badge, format_duration, plural, table
from mirrorlake.tracking import TrackedRun

_MOODS: dict[str, Mood] = {"pass": "good", "fail": "bad", "not judged": "off"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ObjectiveResult:
    objective: str
    result: Literal["pass", "fail", "not judged"]
    said: str


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DrillReport(JsonDisplayable):
    """The report of a drill: `failover` is that of the rehearsed failover, `fill_s` the seconds of filling."""

    flow: str
    scratch: str
    began_at: datetime
    ended_at: datetime
    records: int
    fill_s: float
    failover: FailoverReport
    id: str = ""
    run_id: str | None = None
    json_include: ClassVar[tuple[str, ...]] = ("passed", "verdicts", "rpo_s", "rto_s")

    @property
    def rpo_s(self) -> float | None:
        """The seconds whose records might have been lost, had the source failed when the drill began."""
        return self.failover.rpo_s

    @property
    def rto_s(self) -> float | None:
        """The seconds of the rehearsed failover, without filling the scratch cluster."""
        return self.failover.rto_s

    @property
    def verdicts(self) -> tuple[ObjectiveResult, ...]:
        """The result of each objective."""
        over = self.failover
        proof = over.proof
        proven = proof is not None and not proof.is_skipped and not proof.differences
        again = over.records_again
        return (
            _judge_objective("RPO", over.rpo_s, over.objective_rpo_s),
            _judge_objective("RTO", over.rto_s, over.objective_rto_s),
            ObjectiveResult(objective="records", result="pass" if proven else "fail", said=str(proof)),
            ObjectiveResult(
                objective="groups",
                result="fail" if over.held or again is None else "pass",
                said=f"{plural(len(over.groups), 'position')}, {over.held} held back, records read again: "
                + ("not known" if again is None else str(again)),
            ),
        )

    @property
    def passed(self) -> bool:
        """Whether no objective failed."""
        return all(one.result != "fail" for one in self.verdicts)

    def sheet(self) -> Sheet:
        """Show the verdicts first, then the rehearsed failover."""
        rows = [(one.objective, badge(one.result, _MOODS[one.result]), one.said) for one in self.verdicts]
        return Sheet(
            title=f"drill {self.flow}",
            badge=badge("passed", "good") if self.passed else badge("failed"),
            facts=(
                f"{plural(self.records, 'record')} into {self.scratch} in {format_duration(self.fill_s * 1000)}",
                self.began_at,
            ),
            parts=(table("", ["objective", "result", "found"], rows), self.failover.sheet()),
        )


def _judge_objective(name: str, found: float | None, wanted: float | None) -> ObjectiveResult:
    said = "not known" if found is None else format_duration(found * 1000)
    if wanted is None:
        return ObjectiveResult(objective=name, result="not judged", said=f"{said}; no objective is set")
    met: Literal["pass", "fail"] = "pass" if found is not None and found <= wanted else "fail"
    return ObjectiveResult(objective=name, result=met, said=f"{said}, objective {format_duration(wanted * 1000)}")


def drill_run(report: DrillReport) -> TrackedRun:
    figures = {"passed": float(report.passed), "records": float(report.records), "fill_seconds": report.fill_s}
    more = {"rpo_seconds": report.rpo_s, "rto_seconds": report.rto_s}
    return TrackedRun(
        kind="drill",
        flow=report.flow,
        result="passed" if report.passed else "failed",
        began_at=report.began_at,
        ended_at=report.ended_at,
        parameters={"flow": report.flow, "source": report.failover.source, "scratch": report.scratch},
        figures={**figures, **{name: value for name, value in more.items() if value is not None}},
        report=report,
    )
