"""The facts of a flow that receivers get: one for each kind of change, from the flow's status and the counts of the lake.

A fact has a `state`, and a message reports that it changed. The states that a receiver got last are a row of the table `control`, so
that neither a restart nor another process sends them again.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from mirrorlake.config.schema import FlowConfig
from mirrorlake.lag import FlowStatus, Verdict, verdict_label

Severity = Literal["ok", "info", "warning", "error", "critical"]
Facts = Mapping[str, "FlowFact"]
"""The facts of a flow by kind; what is not known now is left out."""

_SEVERITY: Mapping[Verdict, Severity] = {
    Verdict.OK: "ok",
    Verdict.PAUSED: "info",
    Verdict.WARNING: "warning",
    **dict.fromkeys((Verdict.STOP, Verdict.STALL, Verdict.REWIND, Verdict.CLUSTER_AWAY), "critical"),
}
# What was never landed: `compacted` and other kinds are no loss.
LOSSES = ("expired", "truncated", "recreated")
# Before the first message: a flow that is well is no news.
INITIAL_STATES: Mapping[str, str] = {"verdict": Verdict.OK.name, "objective": "", "parked": ""}


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowFact:
    """One fact: its state, how bad it is, the reason in words, and since when it holds, where that is known."""

    state: str
    severity: Severity
    text: str
    reason: str = ""
    since: datetime | None = None


def read_facts(flow: FlowConfig, status: FlowStatus, counts: Mapping[tuple[str, str], int]) -> dict[str, FlowFact]:
    """Return the facts of a flow; `counts` are the lake's, of offsets by source and records by flow, each by kind.

    WARMING UP and UNKNOWN are no facts. The cause of a parked stream is left out: it may quote a record.
    """
    facts = {}
    verdict = Verdict[status.verdict]
    if verdict in _SEVERITY:
        reason = "" if verdict is Verdict.OK else status.reason
        if status.is_of_parking:
            reason = "a stream is parked"
        facts["verdict"] = FlowFact(
            state=str(verdict.name),
            severity=_SEVERITY[verdict],
            text=verdict_label(verdict.name),
            reason=reason,
            since=status.since,
        )
    if status.objectives is not None and status.is_whole:
        missed = status.objectives.missed
        text = f"misses its {' and '.join(missed)}" if missed else "meets its objectives"
        severity: Severity = "error" if missed else "ok"
        facts["objective"] = FlowFact(
            state=",".join(missed), severity=severity, text=text, reason=str(status.objectives)
        )
    waiting = [f"{one.stream} since {one.since.isoformat(timespec='seconds')} ({one.error})" for one in status.parked]
    state = ",".join(sorted(f"{one.stream} {one.error}" for one in status.parked))
    if status.parked:
        is_retried = all(one.is_retried for one in status.parked)
        facts["parked"] = FlowFact(
            state=state,
            severity="warning" if is_retried else "critical",
            text="a stream is parked",
            reason="; ".join(waiting) + ("; it is tried again by itself" if is_retried else "; it waits for a person"),
            since=min(one.since for one in status.parked),
        )
    else:
        facts["parked"] = FlowFact(state="", severity="ok", text="no stream is parked")
    lost = sum(counts.get((flow.source, kind), 0) for kind in LOSSES)
    facts["lost"] = FlowFact(
        state=str(lost), severity="critical", text=f"offsets of {flow.source} that were never landed: {lost}"
    )
    put_aside = counts.get((flow.name, "quarantined"), 0)
    facts["quarantined"] = FlowFact(
        state=str(put_aside), severity="warning", text=f"records in quarantine: {put_aside}"
    )
    return facts


def is_news(kind: str, before: str | None, state: str) -> bool:
    """Return whether a message reports this state; of counts only their growth, not the first one read.

    >>> is_news("lost", None, "7"), is_news("lost", "7", "9"), is_news("quarantined", "9", "0"), is_news("verdict", "OK", "STALL")
    (False, True, False, True)
    """
    if kind in INITIAL_STATES:
        return (INITIAL_STATES[kind] if before is None else before) != state
    return before is not None and int(state) > int(before)
