"""Events: what happened to a mirror, from when to when, by whom and why, as the tables of its lake tell it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Any, ClassVar

from mirrorlake.context import Context
from mirrorlake.lake import MAINTAIN, Lake, micros
from mirrorlake.model.control import APPLY, CLEAR, PARK, PAUSE, RESUME, RETIRE, STREAM, Intention, Subject
from mirrorlake.model.parked import stream_facts, whole_stream
from mirrorlake.model.remotes import ACCEPT_EMPTY, SEND_AGAIN
from mirrorlake.procedure import DONE
from mirrorlake.render import (
    Badge,
    JsonDisplayable,
    Mood,
    Sheet,
    badge,
    clean,
    format_count,
    format_duration,
    format_time,
    plural,
    table,
)
from mirrorlake.topics import INTENDED

AWAY, NOT_SAMPLED, PARKED, PAUSED = "cluster away", "not sampled", "parked", "paused"
_LASTING = frozenset({AWAY, NOT_SAMPLED, PARKED, PAUSED})
_MOODS: dict[str, Mood] = {
    **dict.fromkeys((AWAY, PARKED, "records lost", "verify failed"), "bad"),
    **dict.fromkeys((NOT_SAMPLED, "quarantined", "failover"), "warn"),
    PAUSED: "off",
    "verified": "good",
}


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Event(JsonDisplayable):
    """One event of a mirror; `until` is None for one that has no end, or still lasts (`is_open`).

    Kinds: `cluster away`, `not sampled`, `parked`, `paused`, `applied`, `failover`, `verified`, `verify failed`, `upkeep`,
    `records lost`, … `who` is the user and host that did it; empty for what the mirror did by itself. `last_at` is when the newest
    of its rows was written, such as the last step of an operation; None for one with no more rows than its begin and its end.
    """

    at: datetime
    kind: str
    subject: str
    until: datetime | None = None
    flow: str = ""
    cluster: str = ""
    who: str = ""
    ended_by: str = ""
    why: str = ""
    effect: str = ""
    last_at: datetime | None = None
    json_include: ClassVar[tuple[str, ...]] = ("is_open", "seconds")

    @property
    def is_open(self) -> bool:
        return self.kind in _LASTING and self.until is None

    @property
    def seconds(self) -> float | None:
        return None if self.until is None else (self.until - self.at).total_seconds()

    @property
    def badge(self) -> Badge:
        return badge(self.kind, _MOODS.get(self.kind, "note"))

    def concerns(self, flow: str, clusters: Collection[str]) -> bool:
        """Return whether it concerns a flow between these clusters; one that names neither flow nor cluster concerns all."""
        return self.flow == flow if self.flow else not self.cluster or self.cluster in clusters

    def took(self) -> str:
        """Return how long it lasted in words; empty for an event without a duration."""
        if self.until is not None:
            return format_duration(self.until - self.at)
        return "still" if self.is_open else ""

    def reasons(self) -> str:
        ended = f"ended by {self.ended_by}" if self.ended_by and self.ended_by != self.who else ""
        return clean("; ".join(filter(None, (self.why, self.effect, ended))))

    def explanation(self) -> str:
        by = f"by {clean(self.who)}" if self.who else ""
        return "; ".join(filter(None, (by, self.reasons())))

    def sheet(self) -> Sheet:
        facts = (self.at, self.took() or None, self.explanation() or None)
        return Sheet(title=self.subject, badge=self.badge, facts=facts)

    def __str__(self) -> str:
        took, explanation = self.took(), self.explanation()
        lasted = f" ({took if self.until is None else f'ended after {took}'})" if took else ""
        at = format_time(self.at, zone=timezone.utc)
        return clean(f"{at} {self.kind}: {self.subject}{lasted}{f': {explanation}' if explanation else ''}")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Events(JsonDisplayable):
    """The events of a mirror from `start` to `end`, oldest first; one that began earlier and lasted into it is among them.

    Example:
        >>> noon = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
        >>> away = Event(at=noon, until=noon + timedelta(seconds=31), kind="cluster away", subject="west")
        >>> print(Events(start=noon, end=noon + timedelta(hours=1), events=(away,)))
        events: 1 since 2026-01-01 12:00:00 UTC, times in UTC
          from      until     took    event           what  why
          12:00:00  12:00:31  31.0 s  ✗ cluster away  west  –
    """

    start: datetime
    end: datetime
    events: tuple[Event, ...] = ()

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def __len__(self) -> int:
        return len(self.events)

    def __reversed__(self) -> Iterator[Event]:
        return reversed(self.events)

    def __getitem__(self, index: int) -> Event:
        return self.events[index]

    def newest(self, count: int) -> Events:
        """Return the newest events, at most so many."""
        return replace(self, events=self.events[max(0, len(self.events) - count) :])

    def of(self, flow: str, *clusters: str) -> Events:
        """Return the events that concern a flow between these clusters."""
        return replace(self, events=tuple(event for event in self.events if event.concerns(flow, clusters)))

    def sheet(self) -> Sheet:
        """Show a line an event."""
        rows = [
            (
                self._clock(event.at),
                self._clock(event.until) if event.until else ("still" if event.is_open else None),
                event.took() if event.until else None,
                event.badge,
                event.subject,
                event.explanation() or None,
            )
            for event in self.events
        ]
        since = f"since {format_time(self.start, zone=timezone.utc)}, times in UTC"
        columns = ("from", "until", "took", "event", "what", "why")
        parts = (table("", columns, rows, least=("took",)),) if rows else ()
        return Sheet(title="events", facts=(f"{len(self)} {since}",), parts=parts)

    def _clock(self, at: datetime) -> str:
        is_today = at.astimezone(timezone.utc).date() == self.end.astimezone(timezone.utc).date()
        return f"{at.astimezone(timezone.utc):{'%H:%M:%S' if is_today else '%m-%d %H:%M:%S'}}"


# Rows are written some seconds after what they tell.
_LATE = timedelta(hours=1)
# An operation may rest for days between two steps, and is not told again then.
_MAX_SEEN = 10_000


class EventFeed:
    """Return new events, and those that have ended meanwhile, each once.

    It begins with what began, ended or lasts after `mark`.
    """

    def __init__(self, read: Callable[[datetime], Events], *, mark: datetime) -> None:
        self._read = read
        self._mark = mark
        self._seen: dict[tuple[str, str, datetime], datetime | None] = {}

    def news(self) -> tuple[Event, ...]:
        """Return the events that are new, or have ended, since the last call, oldest first."""
        events, fresh = self._read(self._mark), []
        for one in events:
            key = one.kind, one.subject, one.at
            if key not in self._seen or self._seen[key] != one.until:
                fresh.append(one)
            self._seen.pop(key, None)
            self._seen[key] = one.until
        for key in list(self._seen)[: -max(_MAX_SEEN, len(events))]:
            del self._seen[key]
        # An outage seems to begin at the first look that is read.
        away = [one.at for one in events if one.is_open and one.kind == AWAY]
        self._mark = max(self._mark, min([events.end - _LATE, *away]))
        return tuple(fresh)


# `apply` puts settings in force after its changes: one line tells both.
_APPLY_TAKES = timedelta(minutes=5)


def read_events(context: Context, since: datetime) -> Events:
    """Return the events since a time, oldest first, with those that began before it and lasted into it.

    No cluster is called, and Spark only where nothing else reaches the lake.
    """
    lake, now = context.lake, context.now()
    # The same question all hour long: its answer is cached until a table changes.
    hour = since.replace(minute=0, second=0, microsecond=0)
    changes = _changes(lake, hour)
    applied = [one for one in changes if one.kind == _APPLIED]
    events = [
        one
        for one in _intended(context.control().intentions())
        if one.kind != _APPLIED
        or not any(it.who == one.who and timedelta() <= one.at - it.at < _APPLY_TAKES for it in applied)
    ]
    events += [*changes, *_outages(lake, hour), *_counted(lake, hour)]
    if every := context.config.sampling.every:
        events += _silences(lake, hour, now, longest=max(3 * every, timedelta(seconds=90)))
    shown = (one for one in events if one.is_open or (one.until or one.last_at or one.at) >= since)
    return Events(start=since, end=now, events=tuple(sorted(shown, key=lambda one: one.at)))


# -- intentions of persons, and parked streams --------------------------------------------------------------------------

_APPLIED = "applied"
_CHOICES = {SEND_AGAIN: "everything is sent again from the relay", ACCEPT_EMPTY: "only unsent records are sent"}


def _intended(intentions: Iterable[Intention]) -> list[Event]:
    """Return the events of the table `control`; a pause, and a parked stream, is one event from its start to its end."""
    events: list[Event] = []
    lasting: dict[Subject, int] = {}
    for one in sorted(intentions, key=lambda one: one.at):
        subject, index = one.subject, lasting.get(one.subject)
        by: dict[str, Any] = {"at": one.at, "who": one.who}
        if one.action in (PAUSE, PARK) and index is None:
            lasting[subject] = len(events)
            events.append(_paused(one) if one.action == PAUSE else _parked(one))
        elif one.action == PARK and index is not None:
            # The first row has the start: a stream is parked again with another cause while it waits.
            if (cause := (one.value or {}).get("cause", "")) != events[index].why:
                events[index] = replace(events[index], effect=f"later: {cause}")
        elif one.action in (RESUME, CLEAR) and index is not None:
            until, ended_by = max(events[index].at, _since(one)), one.who if one.action == RESUME else ""
            events[index] = replace(events[index], until=until, ended_by=ended_by)
            del lasting[subject]
        elif one.action in _CHOICES:
            why = _CHOICES[one.action]
            events.append(Event(**by, kind="lost topic", subject=subject.name, flow=subject.flow, why=why))
        elif one.action == APPLY:
            events.append(Event(**by, kind=_APPLIED, subject="settings", why=one.reason))
        elif one.action == RETIRE:
            events.append(Event(**by, kind="flow retired", subject=subject.name, flow=subject.name, why=one.reason))
    return events


def _paused(one: Intention) -> Event:
    subject = one.subject
    flow = subject.name if subject.kind == "flow" else subject.flow
    cluster = subject.name if subject.kind == "cluster" else ""
    return Event(at=one.at, kind=PAUSED, subject=str(subject), flow=flow, cluster=cluster, who=one.who, why=one.reason)


def _parked(one: Intention) -> Event:
    stream, why = one.subject.name, (one.value or {}).get("cause", "")
    facts = stream_facts(whole_stream(stream))
    flow, cluster = facts.get("flow", ""), facts.get("source", "")
    return Event(at=_since(one), kind=PARKED, subject=stream, flow=flow, cluster=cluster, why=why)


def _since(one: Intention) -> datetime:
    """Return when a stream failed or ran again, as far as its row says so, which is some seconds younger."""
    value: Any = one.value if one.subject.kind == STREAM else None
    return datetime.fromisoformat(value["since"]) if value and "since" in value else one.at


# -- changes and operations ---------------------------------------------------------------------------------------------

# What a command's changes are called; other commands have their own names.
_CALLED = {
    "apply": _APPLIED,
    "keep": "synced",
    "republish": "prepared",
    "groups": "groups moved",
    "erase": "erased",
}
_MAX_NAMED = 3
# Retired flows and verifications are rows of `control` and `proofs`, too. Of an operation that goes on, all steps.
_AUDIT = """
    WITH steps AS (
        SELECT at, who, command, plan_hash, `where` AS cluster, flow, object, action, after,
            startswith(object, concat(command, ' ')) AS is_step, max(unix_micros(at)) OVER (PARTITION BY object) AS last_us
        FROM {audit} WHERE action != :intended AND command NOT IN ('retire', 'verify')
    )
    SELECT at, who, command, plan_hash, cluster, flow, object, action, is_step,
        CASE WHEN action IN (:done, :maintain) THEN after END AS after
    FROM steps WHERE CASE WHEN is_step THEN last_us ELSE unix_micros(at) END
        >= CASE WHEN command = :maintain THEN :day ELSE :since END
    ORDER BY at, object
"""


def _changes(lake: Lake, since: datetime) -> list[Event]:
    """Return the events of the table `audit`, each from its begin.

    Changes of one plan in one hour are one event, as are passes of upkeep by one user and host on a day (UTC).
    """
    values: dict[str, Any] = {"intended": INTENDED, "done": DONE, "maintain": MAINTAIN, "since": micros(since)}
    day = since.astimezone(timezone.utc).replace(hour=0)
    rows = lake.query_rows(_AUDIT, **values, day=micros(day), missing_ok=True, cache=True)
    several: dict[tuple[Any, ...], list[Any]] = {}
    for row in rows:
        at = row.at.astimezone(timezone.utc)
        if row.is_step:
            key: tuple[Any, ...] = (_operation, row.object)
        elif row.command == MAINTAIN:
            key = _upkeep, row.who, at.date()
        else:
            # A running mirror makes the same correction again, days later.
            key = _changed, row.command, row.who, row.plan_hash, at.date(), at.hour
        several.setdefault(key, []).append(row)
    return [make(parts, lake.address) for (make, *_), parts in several.items()]


def _changed(rows: list[Any], root: str) -> Event:
    first = rows[0]
    flows, places = {row.flow or "" for row in rows}, {row.cluster for row in rows}
    said = [f"{row.action} {row.object}".replace(f"{root}/", "") for row in rows[:_MAX_NAMED]]
    more = f" and {len(rows) - _MAX_NAMED} more" if len(rows) > _MAX_NAMED else ""
    on = ", ".join(sorted(places))
    return Event(
        at=first.at,
        last_at=rows[-1].at,
        kind=_CALLED.get(first.command, first.command),
        subject=f"{plural(len(rows), 'change')} on {on}",
        flow=flows.pop() if len(flows) == 1 else "",
        cluster=on if len(places) == 1 and on != "lake" else "",
        who=first.who,
        effect=", ".join(said) + more,
    )


def _operation(rows: list[Any], _: str) -> Event:
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
    """Summarize the report of an operation: RPO, RTO and moved groups, as far as it has them."""
    found = report if isinstance(report, Mapping) else {}
    seconds = {name.upper(): found.get(f"{name}_s") for name in ("rpo", "rto")}
    parts = [f"{name} {format_duration(timedelta(seconds=of))}" for name, of in seconds.items() if of is not None]
    if groups := [one for one in found.get("groups") or () if isinstance(one, Mapping) and "group" in one]:
        moved = {one["group"] for one in groups if one.get("action") != "hold"}
        parts.append(f"{plural(len(moved), 'group')} moved")
    return ", ".join(parts)


def _upkeep(rows: list[Any], _: str) -> Event:
    counts = Counter[str]()
    for row in rows:
        for of_table in json.loads(row.after).values():
            counts.update(of_table)
    done = [f"{plural(counts['files'], 'file')} became {format_count(counts['into'])}"] if counts["files"] else []
    done += [f"{plural(counts['deleted'], 'old file')} deleted"] if counts["deleted"] else []
    effect = f"{'1 pass' if len(rows) == 1 else f'{format_count(len(rows))} passes'}: {', '.join(done)}"
    first, last = rows[0], rows[-1]
    return Event(at=first.at, last_at=last.at, kind="upkeep", subject="the lake", who=first.who, effect=effect)


# -- looks at the clusters ----------------------------------------------------------------------------------------------

# From the last look before on; file statistics cut times to milliseconds.
_SINCE = """
    observed_at >= (
        SELECT coalesce(max(observed_at), :since) - INTERVAL '1' SECOND FROM {samples} WHERE observed_at < :since)
"""
_TRANSITIONS = f"""
    WITH looks AS (
        SELECT name, observed_at AS at, error, lag(error) OVER (PARTITION BY name ORDER BY observed_at) AS before
        FROM {{samples}} WHERE subject = 'cluster' AND {_SINCE}
    )
    SELECT name, at, error FROM looks WHERE (error IS NULL) != (before IS NULL) ORDER BY at
"""  # noqa: S608 - no value enters the text
_SILENCES = f"""
    WITH looks AS (SELECT DISTINCT observed_at AS at FROM {{samples}} WHERE {_SINCE}),
    pairs AS (SELECT at, lead(at) OVER (ORDER BY at) AS until FROM looks)
    SELECT at, until FROM pairs WHERE until IS NULL OR unix_micros(until) - unix_micros(at) > :longest ORDER BY at
"""  # noqa: S608


def _outages(lake: Lake, since: datetime) -> list[Event]:
    """Return when a look found a cluster away, until one that it answered."""
    found: list[Event] = []
    away: dict[str, int] = {}
    for row in lake.query_rows(_TRANSITIONS, since=since, missing_ok=True, cache=True):
        if row.error is not None:
            away[row.name] = len(found)
            found.append(Event(at=row.at, kind=AWAY, subject=row.name, cluster=row.name, why=row.error))
        elif row.name in away:
            number = away.pop(row.name)
            found[number] = replace(found[number], until=row.at)
    return found


def _silences(lake: Lake, since: datetime, now: datetime, *, longest: timedelta) -> list[Event]:
    """Return the times without any look: no mirror ran, or it did not sample."""
    longest_us = longest // timedelta(microseconds=1)
    rows = lake.query_rows(_SILENCES, since=since, longest=longest_us, missing_ok=True, cache=True)
    why = "no mirror of this lake ran, or it did not sample"
    return [
        Event(at=row.at, until=row.until, kind=NOT_SAMPLED, subject="the mirror", why=why)
        for row in rows
        if (row.until or now) - row.at > longest
    ]


# -- what other tables count --------------------------------------------------------------------------------------------

_COUNTED = """
    SELECT 'records lost' AS kind, min(detected_at) AS at, max(detected_at) AS last_at, concat(topic, ' of ', source) AS subject,
        '' AS flow, source AS cluster, kind AS why, sum(missing) AS records, 0 AS differing
    FROM {gaps} WHERE unix_micros(detected_at) >= :since AND kind IN ('expired', 'recreated', 'truncated')
    GROUP BY source, topic, kind, floor(unix_micros(detected_at) / 3600000000)
    UNION ALL
    SELECT 'quarantined', min(quarantined_at), max(quarantined_at), topic, flow, '', concat(rule, ': ', min(reason)), count(*), 0
    FROM {quarantine} WHERE unix_micros(quarantined_at) >= :since
    GROUP BY flow, topic, rule, floor(unix_micros(quarantined_at) / 3600000000)
    UNION ALL
    SELECT 'upkeep', max(removed_at), NULL, concat('relay of ', source), '', source, reason, sum(record_count), 0
    FROM {removed} WHERE kind = 'expired' AND relay_version IS NOT NULL AND unix_micros(removed_at) >= :since
    GROUP BY removal, source, reason
    UNION ALL
    SELECT 'verified', max(proven_at), NULL, flow, flow, '', '',
        sum(CASE WHEN how IN ('full', 'sampled', 'present') THEN records ELSE 0 END),
        sum(CASE WHEN how = 'different' THEN 1 ELSE 0 END)
    FROM {proofs} WHERE flow IS NOT NULL AND unix_micros(proven_at) >= :since GROUP BY verification, flow
"""
_LOST = {
    "expired": "they left the source unlanded",
    "recreated": "the topic was deleted",
    "truncated": "the log went back",
}


def _counted(lake: Lake, since: datetime) -> list[Event]:
    """Return losses and quarantined records, an event an hour of each cause, expired records, and verifications."""
    found = []
    for row in lake.query_rows(_COUNTED, since=micros(since), missing_ok=True, cache=True):
        kind, why, count = row.kind, row.why or "", int(row.records)
        if kind == "records lost":
            why, effect = _LOST[why], f"{plural(count, 'offset')} never landed"
        elif kind == "quarantined":
            effect = f"{plural(count, 'record')} withheld from the target"
        elif kind == "upkeep":
            effect = f"{plural(count, 'record')} left by its retention"
        else:
            kind = "verify failed" if row.differing else "verified"
            result = f"{plural(int(row.differing), 'range')} different" if row.differing else "all equal"
            effect = f"{plural(count, 'record')} compared, {result}"
        of: dict[str, Any] = {"flow": row.flow, "cluster": row.cluster, "why": why, "effect": effect}
        found.append(Event(at=row.at, last_at=row.last_at, kind=kind, subject=row.subject, **of))
    return found
