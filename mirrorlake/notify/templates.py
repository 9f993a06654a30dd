"""The bodies of messages: mirrorlake's own JSON, Slack's and PagerDuty's."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mirrorlake.config import identity
from mirrorlake.notify.facts import FlowFact

_NEXT = {
    "verdict": "mirrorlake status",
    "objective": "mirrorlake lag --verdict",
    "parked": "mirrorlake status",
    "lost": "mirrorlake verify",
    "quarantined": "mirrorlake quarantine",
}
# PagerDuty keeps so many characters of a summary, and of the key of an incident.
_MAX_SUMMARY, _MAX_KEY = 1024, 255


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """One change of one fact of a flow; `changes` counts those since the last message, `mirror` tells mirrors apart."""

    kind: str
    flow: str
    was: str
    fact: FlowFact
    at: datetime
    changes: int = 1
    mirror: str = ""
    host: str = ""

    @property
    def summary(self) -> str:
        """The change in one line."""
        flapped = f" ({self.changes} changes since the last message)" if self.changes > 1 else ""
        return f"{self.flow}: {self.fact.text}{flapped}"

    @property
    def next_step(self) -> str:
        """The command that shows more; "" where nothing is wrong."""
        command = _NEXT.get(self.kind)
        return f"{command} --flow '{self.flow}'" if command and self.fact.severity not in ("ok", "info") else ""


def write_json(notice: Notice) -> dict[str, Any]:
    """Build mirrorlake's own message; its names are stable."""
    fact = notice.fact
    return {
        "kind": notice.kind,
        "flow": notice.flow,
        "was": notice.was,
        "is": fact.state,
        "severity": fact.severity,
        "summary": notice.summary,
        "reason": fact.reason,
        "since": None if fact.since is None else fact.since.isoformat(),
        "next": notice.next_step,
        "at": notice.at.isoformat(),
        "changes": notice.changes,
        "mirror": notice.mirror,
        "host": notice.host,
    }


def write_slack(notice: Notice) -> dict[str, Any]:
    """Build a message for a Slack webhook, and for what reads its shape."""
    since = None if notice.fact.since is None else f"since {notice.fact.since.isoformat(timespec='seconds')}"
    lines = [f"*{_escaped(notice.summary)}*", *(_escaped(text) for text in (notice.fact.reason, since) if text)]
    return {"text": "\n".join([*lines, *([f"`{_escaped(notice.next_step)}`"] if notice.next_step else [])])}


def write_pagerduty(notice: Notice, routing_key: str) -> dict[str, Any]:
    """Build an event of PagerDuty's API v2: an incident for each flow and kind, which ends when the flow is well again."""
    ends = notice.fact.severity in ("ok", "info")
    event = {
        "routing_key": routing_key,
        "event_action": "resolve" if ends else "trigger",
        "dedup_key": _incident(notice),
    }
    if ends:
        return event
    payload = {
        "summary": notice.summary[:_MAX_SUMMARY],
        "source": notice.host or "mirrorlake",
        "severity": notice.fact.severity,
        "timestamp": notice.at.isoformat(),
        "component": notice.flow,
        "custom_details": write_json(notice),
    }
    return {**event, "payload": payload}


def _escaped(text: str) -> str:
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


def _incident(notice: Notice) -> str:
    key = f"mirrorlake/{notice.mirror}/{notice.flow}/{notice.kind}"
    # A key that was cut would be that of other kinds and flows, too.
    return key if len(key) <= _MAX_KEY else f"mirrorlake/{notice.mirror}/{identity(notice.flow)}/{notice.kind}"
