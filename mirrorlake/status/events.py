"""Events: what happened to a mirror, from when to when, by whom and why, as the tables of its lake tell it."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta, timezone
from typing import Any, ClassVar

from mirrorlake.context import Context
from mirrorlake.lake import MAINTAIN, Lake, micros
from mirrorlake.model.control import APPLY, CLEAR, PARK, PAUSE, RESUME, RETIRE, Intention, Subject
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
from mirrorlake.status.status import grouped
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

    def took(self) -> str:
        """Return how long it lasted in words; empty for an event without a duration."""
        if self.until is not None:
            return format_duration(self.until - self.at)
        return "still" if self.is_open else ""

    def explanation(self) -> str:
        by = f"by {self.who}" if self.who else ""
        ended = f"ended by {self.ended_by}" if self.ended_by and self.ended_by != self.who else ""
        return clean("; ".join(filter(None, (by, self.why, self.effect, ended))))

    def sheet(self) -> Sheet:
        facts = (self.at, self.took() or None, self.explanation() or None)
        return Sheet(title=self.subject, badge=self.badge, facts=facts)

    def __str__(self) -> str:
        lasted = f" ({'ended after ' if self.until else ''}{took})" if (took := self.took()) else ""
        why = f": {explanation}" if (explanation := self.explanation()) else ""
        return clean(f"{format_time(self.at, zone=timezone.utc)} {self.kind}: {self.subject}{lasted}{why}")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Events(JsonDisplayable):
    """The events of a mirror from `start` to `end`, oldest first; one that began earlier and lasted into it is among them."""

    start: datetime
    end: datetime
    events: tuple[Event, ...] = ()

    def __iter__(self) -> Iterator[Event]:
        return iter(self.events)

    def __len__(self) -> int:
        return len(self.events)

    def __getitem__(self, index: int) -> Event:
        return self.events[index]

    def newest(self, count: int) -> Events:
        """Return the newest events, at most so many."""
        return replace(self, events=self.events[max(0, len(self.events) - count) :])

    def of(self, flow: str, *clusters: str) -> Events:
        """Return the events of a flow, those of these clusters, and those that name neither flow nor cluster."""
        chosen = (one for one in self.events if one.flow == flow or (not one.flow and one.cluster in ("", *clusters)))
        return replace(self, events=tuple(chosen))

    def sheet(self) -> Sheet:
        """Show a line an event."""
        rows = [
            (
                self._clock(event.at),
                self._clock(event.until) if event.until else event.took() or None,
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
    """Return new events, and those that have ended meanwhile, each once, from those that began, ended or last after `mark` on."""

    def __init__(self, read: Callable[[datetime], Events], *, mark: datetime) -> None:
        self._read = read
        self._mark = mark
        self._seen: dict[tuple[object, ...], None] = {}

    def news(self) -> tuple[Event, ...]:
        """Return the events that are new, or have ended, since the last call, oldest first."""
        events = self._read(self._mark)
        keys = {(one.kind, one.subject, one.at, one.until): one for one in events}
        fresh = tuple(one for key, one in keys.items() if key not in self._seen)
        seen = [*(key for key in self._seen if key not in keys), *keys]
        self._seen = dict.fromkeys(seen[-max(_MAX_SEEN, len(keys)) :])
        # An outage seems to begin at the first sample that is read.
        away = [one.at for one in events if one.is_open and one.kind == AWAY]
        self._mark = max(self._mark, min([events.end - _LATE, *away]))
        return fresh


def read_events(context: Context, since: datetime) -> Events:
    """Return the events since a time, oldest first, with those that began before it and lasted into it.

    No cluster is called, and Spark only where nothing else reaches the lake.
    """
    lake, now = context.lake, context.now()
    # The same question all hour long: its answer is cached until a table changes.
    hour = since.replace(minute=0, second=0, microsecond=0)
    changes = [*_changes(lake, hour)]
    intended = _intended(context.control().intentions(), [one for one in changes if one.kind == _APPLIED])
    events = [*intended, *changes, *_recorded(lake, hour, now, every=context.config.sampling.every)]
    shown = (one for one in events if one.is_open or (one.until or one.last_at or one.at) >= since)
    return Events(start=since, end=now, events=tuple(sorted(shown, key=lambda one: one.at)))


_CHOICES = {SEND_AGAIN: "everything is sent again from the relay", ACCEPT_EMPTY: "only unsent records are sent"}
# `apply` puts settings in force after its changes: one event tells both.
_APPLY_TAKES = timedelta(minutes=5)


def _intended(intentions: Iterable[Intention], applied: Collection[Event]) -> Iterator[Event]:
    """Yield the events of the table `control`; a pause, and a parked stream, is one event from its start to its end."""
    lasting: dict[Subject, Event] = {}
    for one in sorted(intentions, key=lambda one: one.at):
        subject, begun, value = one.subject, lasting.get(one.subject), one.value or {}
        # A stream failed, or ran again, some seconds before its row was written.
        since = datetime.fromisoformat(value["since"]) if "since" in value else one.at
        event = Event(at=one.at, kind="", subject=subject.name, flow=subject.flow, who=one.who, why=one.reason)
        if one.action == PARK and begun is None:
            facts, cause = stream_facts(whole_stream(subject.name)), value.get("cause", "")
            flow, cluster = facts.get("flow", ""), facts.get("source", "")
            lasting[subject] = replace(event, at=since, kind=PARKED, flow=flow, cluster=cluster, who="", why=cause)
        elif one.action == PARK and begun is not None:
            # The first row has the start: a stream is parked again with another cause while it waits.
            if (cause := value.get("cause", "")) != begun.why:
                lasting[subject] = replace(begun, effect=f"later: {cause}")
        elif one.action == PAUSE:
            flow, cluster = (subject.name if subject.kind == kind else "" for kind in ("flow", "cluster"))
            event = replace(event, kind=PAUSED, subject=str(subject), flow=flow or subject.flow, cluster=cluster)
            lasting.setdefault(subject, event)
        elif one.action in (RESUME, CLEAR) and begun is not None:
            ended_by = one.who if one.action == RESUME else ""
            yield replace(lasting.pop(subject), until=max(begun.at, since), ended_by=ended_by)
        elif one.action in _CHOICES:
            yield replace(event, kind="lost topic", why=_CHOICES[one.action])
        elif one.action == RETIRE:
            yield replace(event, kind="flow retired", flow=subject.name)
        elif one.action == APPLY and not any(
            it.who == one.who and timedelta() <= one.at - it.at < _APPLY_TAKES for it in applied
        ):
            yield replace(event, kind=_APPLIED, subject="settings")
    yield from lasting.values()


_APPLIED = "applied"
# What a command's changes are called; other commands have their own names.
_CALLED = {"apply": _APPLIED, "keep": "synced", "republish": "prepared", "groups": "groups moved", "erase": "erased"}
_MAX_NAMED = 3
# One event are the steps of an operation, the passes of upkeep by one user and host on a day (UTC), and the changes of one plan
# in an hour: a running mirror makes the same correction again, days later. Retired flows and verifications are rows of `control`
# and `proofs`, too.
_AUDIT = """
    WITH changes AS (
        SELECT *, `where` AS cluster, startswith(object, concat(command, ' ')) AS is_step, CASE
            WHEN is_step THEN object
            WHEN command = :maintain THEN concat(who, ' ', floor(unix_micros(at) / 86400000000))
            ELSE concat(command, ' ', who, ' ', plan_hash, ' ', floor(unix_micros(at) / 3600000000)) END AS event
        FROM {audit} WHERE action != :intended AND command NOT IN ('retire', 'verify')
    )
    SELECT event, at, who, command, cluster, flow, object, action, is_step,
        CASE WHEN action IN (:done, :maintain) THEN after END AS after
    FROM changes WHERE event IN (SELECT event FROM changes WHERE unix_micros(at) >= :since) ORDER BY at, object
"""


def _changes(lake: Lake, since: datetime) -> Iterator[Event]:
    """Yield the events of the table `audit`, each from its begin."""
    values: dict[str, Any] = {"intended": INTENDED, "done": DONE, "maintain": MAINTAIN, "since": micros(since)}
    changes = lake.query(_AUDIT, **values, missing_ok=True, cache=True)
    for rows in grouped(changes, lambda row: str(row.event)).values():
        first, last = rows[0], rows[-1]
        subject = first.flow or first.object
        event = Event(at=first.at, last_at=last.at, kind=first.command, subject=subject, who=first.who)
        if first.is_step and last.action == DONE:
            yield replace(event, flow=first.flow or "", until=last.at, effect=_result(json.loads(last.after)))
        elif first.is_step:
            yield replace(event, flow=first.flow or "", effect=f"not finished: last step {last.action}")
        elif first.command == MAINTAIN:
            yield replace(event, kind="upkeep", subject="the lake", effect=_upkeep(rows))
        else:
            flows, clusters = {row.flow or "" for row in rows}, sorted({row.cluster for row in rows})
            named = [f"{row.action} {row.object}".replace(f"{lake.address}/", "") for row in rows[:_MAX_NAMED]]
            more = f" and {len(rows) - _MAX_NAMED} more" if len(rows) > _MAX_NAMED else ""
            yield replace(
                event,
                kind=_CALLED.get(first.command, first.command),
                subject=f"{plural(len(rows), 'change')} on {', '.join(clusters)}",
                flow=flows.pop() if len(flows) == 1 else "",
                cluster="" if len(clusters) > 1 or clusters == ["lake"] else clusters[0],
                effect=", ".join(named) + more,
            )


def _result(report: Any) -> str:
    """Summarize the report of an operation: RPO, RTO and moved groups, as far as it has them."""
    facts = report if isinstance(report, Mapping) else {}
    seconds = {name: facts.get(f"{name.lower()}_s") for name in ("RPO", "RTO")}
    parts = [f"{name} {format_duration(timedelta(seconds=of))}" for name, of in seconds.items() if of is not None]
    groups = [one for one in facts.get("groups") or () if isinstance(one, Mapping) and "group" in one]
    moved = {one["group"] for one in groups if one.get("action") != "hold"}
    return ", ".join(parts + ([f"{plural(len(moved), 'group')} moved"] if groups else []))


def _upkeep(rows: Sequence[Any]) -> str:
    counts = Counter[str]()
    for of_table in (counted for row in rows for counted in json.loads(row.after).values()):
        counts.update(of_table)
    done = [f"{plural(counts['files'], 'file')} became {format_count(counts['into'])}"] if counts["files"] else []
    done += [f"{plural(counts['deleted'], 'old file')} deleted"] if counts["deleted"] else []
    return f"{'1 pass' if len(rows) == 1 else f'{format_count(len(rows))} passes'}: {', '.join(done)}"


# From the last sample before on; file statistics cut times to milliseconds. Whom the settings lack by now is away no more.
_SAMPLED = """
    WITH recent AS (
        SELECT * FROM {samples} WHERE observed_at >= (
            SELECT coalesce(max(observed_at), :since) - INTERVAL '1' SECOND FROM {samples} WHERE observed_at < :since)
    ),
    answers AS (
        SELECT name, observed_at AS at, error, lag(error) OVER (PARTITION BY name ORDER BY observed_at) AS before,
            max(observed_at) OVER (PARTITION BY name) AS seen_at
        FROM recent WHERE subject = 'cluster'
    )
    SELECT 'cluster away' AS kind, at, until, CAST(NULL AS TIMESTAMP) AS last_at, name AS subject, '' AS flow, name AS cluster,
        error AS why, '' AS unit, 0 AS total, '' AS effect, 0 AS different
    FROM (SELECT *, coalesce(lead(at) OVER (PARTITION BY name ORDER BY at), ended_at) AS until
        FROM (SELECT *, CASE WHEN unix_micros(newest_at) - unix_micros(seen_at) > :longest THEN seen_at END AS ended_at
            FROM answers CROSS JOIN (SELECT max(observed_at) AS newest_at FROM recent))
        WHERE (error IS NULL) != (before IS NULL)) WHERE error IS NOT NULL
    UNION ALL
    SELECT 'not sampled', at, until, NULL, 'the mirror', '', '', 'no mirror of this lake ran, or it did not sample', '', 0, '', 0
    FROM (SELECT observed_at AS at, lead(observed_at) OVER (ORDER BY observed_at) AS until FROM recent GROUP BY observed_at)
    WHERE until IS NULL OR unix_micros(until) - unix_micros(at) > :longest
"""
# Losses and quarantined records are an event an hour of each cause.
_COUNTED = """
    SELECT 'records lost' AS kind, min(detected_at) AS at, CAST(NULL AS TIMESTAMP) AS until, max(detected_at) AS last_at,
        concat(topic, ' of ', source) AS subject, '' AS flow, source AS cluster,
        CASE kind WHEN 'expired' THEN 'they left the source unlanded' WHEN 'recreated' THEN 'the topic was deleted'
            ELSE 'the log went back' END AS why,
        'offset' AS unit, sum(missing) AS total, 'never landed' AS effect, 0 AS different
    FROM {gaps} WHERE unix_micros(detected_at) >= :since AND kind IN ('expired', 'recreated', 'truncated')
    GROUP BY source, topic, kind, floor(unix_micros(detected_at) / 3600000000)
    UNION ALL
    SELECT 'quarantined', min(committed_at), NULL, max(committed_at), source_topic, flow, '', concat(rule, ': ', min(reason)),
        'record', sum(record_count), 'withheld from the target', 0
    FROM {offset_map} WHERE kind = 'quarantined' AND unix_micros(committed_at) >= :since
    GROUP BY flow, source_topic, rule, floor(unix_micros(committed_at) / 3600000000)
    UNION ALL
    SELECT 'upkeep', max(removed_at), NULL, NULL, concat('relay of ', source), '', source, reason,
        'record', sum(record_count), 'left by its retention', 0
    FROM {removed} WHERE kind = 'expired' AND relay_version IS NOT NULL AND unix_micros(removed_at) >= :since
    GROUP BY removal, source, reason
    UNION ALL
    SELECT if(different > 0, 'verify failed', 'verified'), at, NULL, NULL, flow, flow, '', '',
        'record', total, if(different > 0, 'compared', 'compared, all equal'), different
    FROM (
        SELECT flow, max(proven_at) AS at, sum(if(how IN ('full', 'sampled', 'present'), records, 0)) AS total,
            sum(if(how = 'different', 1, 0)) AS different
        FROM {proofs} WHERE flow IS NOT NULL AND unix_micros(proven_at) >= :since GROUP BY verification, flow)
"""


def _recorded(lake: Lake, since: datetime, now: datetime, *, every: timedelta | None) -> Iterator[Event]:
    """Yield outages, times without samples if `every` sets their interval, losses, quarantined records, upkeep and verifications."""
    longest = max(3 * every, timedelta(seconds=90)) if every else timedelta(days=9_999)
    rows = lake.query(_SAMPLED, since=since, longest=longest // timedelta(microseconds=1), missing_ok=True, cache=True)
    for row in rows + lake.query(_COUNTED, since=micros(since), missing_ok=True, cache=True):
        if row.kind == NOT_SAMPLED and (row.until or now) - row.at <= longest:
            continue
        fields = {name: getattr(row, name) for name in ("kind", "at", "until", "last_at", "subject", "flow", "cluster")}
        parts = [f"{plural(int(row.total), row.unit)} {row.effect}"] if row.unit else []
        parts += [f"{plural(int(row.different), 'range')} different"] if row.different else []
        yield Event(**fields, why=row.why or "", effect=", ".join(parts))
