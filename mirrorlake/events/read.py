"""Read the events of a mirror from its lake; no cluster is called, and Spark only where nothing else reaches the lake."""

from __future__ import annotations

from datetime import datetime, timedelta

from mirrorlake.context import Context
from mirrorlake.events.audit_events import audit_events, maintenance_passes
from mirrorlake.events.control_events import APPLIED, control_events
from mirrorlake.events.event import Event, Events
from mirrorlake.events.outages import read_outages
from mirrorlake.events.table_events import (
    expired_records,
    lost_records,
    quarantined,
    sampled_transitions,
    unsampled,
    verifications,
)

# `apply` puts settings in force after its changes.
_APPLY_TAKES = timedelta(minutes=5)


def read_events(context: Context, since: datetime) -> Events:
    """Return what happened since a time, oldest first, and what began before it and lasted into it."""
    lake, now, wanted = context.lake, context.now(), since
    # The same question all hour long: its answer is cached until a table changes.
    since = since.replace(minute=0, second=0, microsecond=0)
    events = [
        *control_events(context.control().intentions()),
        *read_outages(context, sampled_transitions(lake, since)),
        *unsampled(lake, since, now, every=context.config.sampling.every),
        *lost_records(lake, since),
        *quarantined(lake, since),
        *expired_records(lake, since),
        *maintenance_passes(lake, since),
        *verifications(lake, since),
    ]
    events = _with_changes(events, audit_events(lake, since))
    events = [event for event in events if event.lasted_into(wanted)]
    return Events(start=wanted, end=now, events=tuple(sorted(events, key=lambda event: event.at)))


def _with_changes(events: list[Event], changes: list[Event]) -> list[Event]:
    """Add the changes of `audit`; those of an `apply` whose settings are in force need no line for the settings."""
    applied = [event for event in changes if event.kind == APPLIED]

    def is_shown(event: Event) -> bool:
        return event.kind == APPLIED and any(
            one.who == event.who and timedelta() <= event.at - one.at < _APPLY_TAKES for one in applied
        )

    return [*(event for event in events if not is_shown(event)), *changes]
