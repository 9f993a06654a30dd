"""Events of the table `audit`: applied changes, failovers and other operations of several steps, passes of upkeep."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from datetime import date, datetime, timedelta, timezone
from typing import Any

from mirrorlake.events.event import UPKEEP, Event
from mirrorlake.events.outages import COMMAND as OUTAGES
from mirrorlake.lake import MAINTAIN, Lake, micros
from mirrorlake.procedure import DONE
from mirrorlake.render import format_count, format_duration, plural
from mirrorlake.topics import INTENDED

# What a command's changes are called; other commands have their own names.
_KINDS = {
    "apply": "applied",
    "keep": "synced",
    "republish": "prepared",
    "groups": "groups moved",
    "erase": "erased",
}
# Retired flows and verifications are rows of `control` and `proofs`, too.
_NOT_SHOWN = ("retire", "verify", OUTAGES, MAINTAIN)
_MAX_NAMED = 3


def audit_events(lake: Lake, since: datetime) -> list[Event]:
    """Return the changes and operations since a time, each from its begin; the parts of one plan in one hour are one event."""

    def read(text: str) -> list[Any]:
        hidden = list(_NOT_SHOWN)
        return lake.query_rows(text, since=micros(since), intended=INTENDED, hidden=hidden, missing_ok=True, cache=True)

    plans: dict[tuple[Any, ...], list[Any]] = {}
    for row in read(_CHANGES):
        # A running mirror makes the same correction again, days later.
        hour = row.at.astimezone(timezone.utc).replace(minute=0, second=0, microsecond=0)
        plans.setdefault((row.command, row.who, row.plan_hash, hour), []).append(row)
    operations: dict[str, list[Any]] = {}
    for row in read(_STEPS):
        operations.setdefault(row.object, []).append(row)
    return [*(_changes(rows, root=lake.address) for rows in plans.values()), *map(_operation, operations.values())]


def maintenance_passes(lake: Lake, since: datetime) -> list[Event]:
    """Return the passes of upkeep that rewrote or deleted files: one event for those of a user and host on a day (UTC)."""
    day = since.astimezone(timezone.utc).replace(hour=0, minute=0, second=0, microsecond=0)
    rows = lake.query_rows(_PASSES, since=micros(day), command=MAINTAIN, missing_ok=True, cache=True)
    by_day: dict[tuple[str, date], list[Any]] = {}
    for row in rows:
        by_day.setdefault((row.who, row.at.astimezone(timezone.utc).date()), []).append(row)
    return [_passes(several) for several in by_day.values()]


def _passes(rows: list[Any]) -> Event:
    counts: Counter[str] = Counter()
    files: Counter[str] = Counter()
    for row in rows:
        for name, table in json.loads(row.after).items():
            counts.update(table)
            files[name] += table["files"] + table["deleted"]
    done = []
    if counts["files"]:
        done.append(f"{plural(counts['files'], 'file')} became {format_count(counts['into'])}")
    if counts["deleted"]:
        done.append(f"{plural(counts['deleted'], 'old file')} deleted")
    last = f"{rows[-1].at.astimezone(timezone.utc):%H:%M:%S}"
    passes = "1 pass" if len(rows) == 1 else f"{format_count(len(rows))} passes until {last}"
    [(most, _)] = files.most_common(1)
    return Event(
        at=rows[0].at,
        last_at=rows[-1].at,
        kind=UPKEEP,
        subject="the lake",
        who=rows[0].who,
        effect=f"{passes}: {', '.join(done)}, most of them of {most}",
    )


def _changes(rows: list[Any], *, root: str) -> Event:
    first = rows[0]
    flows, places = {row.flow or "" for row in rows}, {row.cluster for row in rows}
    said = [f"{row.action} {row.object}".replace(f"{root}/", "") for row in rows[:_MAX_NAMED]]
    more = f" and {len(rows) - _MAX_NAMED} more" if len(rows) > _MAX_NAMED else ""
    on = ", ".join(sorted(places))
    return Event(
        at=first.at,
        last_at=rows[-1].at,
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
        last_at=last.at,
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


_CHANGES = """
    SELECT at, who, command, plan_hash, `where` AS cluster, flow, object, action FROM {audit}
    WHERE unix_micros(at) >= :since AND action != :intended AND NOT array_contains(:hidden, command)
        AND NOT startswith(object, concat(command, ' '))
    ORDER BY at
"""
_PASSES = """
    SELECT at, who, after FROM {audit} WHERE unix_micros(at) >= :since AND command = :command ORDER BY at
"""
# All steps of the operations that went on since then.
_STEPS = """
    WITH steps AS (
        SELECT at, who, command, flow, object, action, CASE WHEN action = 'done' THEN after END AS after,
            max(unix_micros(at)) OVER (PARTITION BY object) AS last_us
        FROM {audit}
        WHERE action != :intended AND NOT array_contains(:hidden, command) AND startswith(object, concat(command, ' '))
    )
    SELECT at, who, command, flow, object, action, after FROM steps WHERE last_us >= :since ORDER BY at
"""
