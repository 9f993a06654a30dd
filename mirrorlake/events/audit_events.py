"""Events of the table `audit`: applied changes, failovers and other operations of several steps."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

from mirrorlake.events.event import Event
from mirrorlake.events.outages import COMMAND as OUTAGES
from mirrorlake.lake import Lake, micros
from mirrorlake.procedure import DONE
from mirrorlake.render import format_duration, plural
from mirrorlake.topics import INTENDED

# What a command's changes are called; other commands have their own names.
_KINDS = {"apply": "applied", "keep": "synced", "republish": "prepared", "groups": "groups moved"} | {
    name: f"{name}d" for name in ("restore", "erase")
}
# Retired flows and verifications are rows of `control` and `proofs`, too.
_NOT_SHOWN = ("retire", "verify", OUTAGES)
_MAX_NAMED = 3
_SAME_RUN = timedelta(minutes=5)


def audit_events(lake: Lake, since: datetime) -> list[Event]:
    """Return the changes and operations since a time; the parts of one plan are one event."""
    rows = lake.query_rows(
        _ROWS, since=micros(since), intended=INTENDED, hidden=list(_NOT_SHOWN), missing_ok=True, cache=True
    )
    operations: dict[str, list[Any]] = {}
    plans: dict[tuple[str, ...], list[list[Any]]] = {}
    for row in rows:
        if row.object.partition(" ")[0] == row.command:
            operations.setdefault(row.object, []).append(row)
            continue
        runs = plans.setdefault((row.command, row.who, row.plan_hash), [])
        # A running mirror makes the same correction again, days later.
        if runs and row.at - runs[-1][-1].at < _SAME_RUN:
            runs[-1].append(row)
        else:
            runs.append([row])
    events = [_changes(rows) for runs in plans.values() for rows in runs]
    return [*events, *map(_operation, operations.values())]


def _changes(rows: list[Any]) -> Event:
    first = rows[0]
    flows, places = {row.flow or "" for row in rows}, {row.cluster for row in rows}
    said = [f"{row.action} {row.object}" for row in rows[:_MAX_NAMED]]
    more = f" and {len(rows) - _MAX_NAMED} more" if len(rows) > _MAX_NAMED else ""
    on = ", ".join(sorted(places))
    return Event(
        at=first.at,
        kind=_KINDS.get(first.command, first.command),
        subject=f"{plural(len(rows), 'change')} on {on}",
        flow=flows.pop() if len(flows) == 1 else "",
        cluster=on if len(places) == 1 and on != "lake" else "",
        who=first.who,
        effect=", ".join(said) + more,
    )


def _operation(rows: list[Any]) -> Event:
    first, last = rows[0], rows[-1]
    is_done = last.action == DONE
    return Event(
        at=first.at,
        until=last.at if is_done else None,
        kind=first.command,
        subject=first.flow or first.object,
        flow=first.flow or "",
        who=first.who,
        effect=_result(json.loads(last.after)) if is_done else f"not finished: last step {last.action}",
    )


def _result(report: Any) -> str:
    """Return what the report of an operation says in a few words, as far as it has these fields."""
    if not isinstance(report, Mapping):
        return ""
    parts = []
    for name in ("rpo", "rto"):
        if (seconds := report.get(f"{name}_s")) is not None:
            parts.append(f"{name.upper()} {format_duration(timedelta(seconds=seconds))}")
    if groups := report.get("groups"):
        moved = {
            one["group"]
            for one in groups
            if isinstance(one, Mapping) and one.get("action") != "hold" and "group" in one
        }
        parts.append(f"{plural(len(moved), 'group')} moved")
    return ", ".join(parts)


_ROWS = """
    SELECT at, who, command, plan_hash, `where` AS cluster, flow, object, action,
        CASE WHEN action = 'done' THEN after END AS after
    FROM {audit}
    WHERE unix_micros(at) >= :since AND action != :intended AND NOT array_contains(:hidden, command)
    ORDER BY at
"""
