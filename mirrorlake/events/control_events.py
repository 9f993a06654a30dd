"""Events of the table `control`: pauses, parked streams, applied settings, choices for lost topics."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from datetime import datetime
from typing import Any

from mirrorlake.events.event import PARKED, PAUSED, Event
from mirrorlake.model.control import APPLY, CLEAR, PARK, PAUSE, RESUME, RETIRE, STREAM, Intention, Subject
from mirrorlake.model.parked import stream_facts, whole_stream
from mirrorlake.model.remotes import ACCEPT_EMPTY, SEND_AGAIN

APPLIED = "applied"
_KINDS = {APPLY: APPLIED, RETIRE: "flow retired"}
_CHOICES = {SEND_AGAIN: "everything is sent again from the relay", ACCEPT_EMPTY: "only unsent records are sent"}


def control_events(intentions: Iterable[Intention]) -> list[Event]:
    """Return the events of these intentions, oldest first; a pause, and a parked stream, is one event from its start to its end."""
    events: list[Event] = []
    lasting: dict[Subject, int] = {}
    for one in sorted(intentions, key=lambda one: one.at):
        index = lasting.get(one.subject)
        if one.action in (PAUSE, PARK) and index is not None:
            # The first row has the start: a stream is parked again with another cause while it waits.
            if one.action == PARK and (cause := (one.value or {}).get("cause", "")) != events[index].why:
                events[index] = replace(events[index], effect=f"later: {cause}")
        elif one.action in (PAUSE, PARK):
            lasting[one.subject] = len(events)
            events.append(_paused(one) if one.action == PAUSE else _parked(one))
        elif one.action in (RESUME, CLEAR):
            if index is not None:
                ended_by = one.who if one.action == RESUME else ""
                until = max(events[index].at, _since(one) or one.at)
                events[index] = replace(events[index], until=until, ended_by=ended_by)
                del lasting[one.subject]
        elif one.action in _CHOICES:
            why = _CHOICES[one.action]
            flow, remote = one.subject.flow, one.subject.name
            events.append(Event(at=one.at, kind="lost topic", subject=remote, flow=flow, who=one.who, why=why))
        elif one.action in _KINDS:
            flow = "" if one.action == APPLY else one.subject.name
            subject, kind = flow or "settings", _KINDS[one.action]
            events.append(Event(at=one.at, kind=kind, subject=subject, flow=flow, who=one.who, why=one.reason))
    return events


def _paused(one: Intention) -> Event:
    subject = one.subject
    flow = subject.name if subject.kind == "flow" else subject.flow
    cluster = subject.name if subject.kind == "cluster" else ""
    return Event(at=one.at, kind=PAUSED, subject=str(subject), flow=flow, cluster=cluster, who=one.who, why=one.reason)


def _parked(one: Intention) -> Event:
    value, stream = one.value or {}, one.subject.name
    facts = stream_facts(whole_stream(stream))
    return Event(
        at=_since(one) or one.at,
        kind=PARKED,
        subject=stream,
        flow=facts.get("flow", ""),
        cluster=facts.get("source", ""),
        why=value.get("cause", ""),
    )


def _since(one: Intention) -> datetime | None:
    """Return when a stream failed or ran again: its row is some seconds younger; None where it has no time of its own."""
    value: Any = one.value if one.subject.kind == STREAM else None
    return datetime.fromisoformat(value["since"]) if value and "since" in value else None
