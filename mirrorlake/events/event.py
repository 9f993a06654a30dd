"""An event of a mirror, and the events of a time range."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from typing import ClassVar

from mirrorlake.render import (
    Badge,
    JsonDisplayable,
    Mood,
    Sheet,
    badge,
    clean,
    format_duration,
    format_time,
    table,
)

CLUSTER_AWAY, NOT_SAMPLED, PARKED, PAUSED = "cluster away", "not sampled", "parked", "paused"
UPKEEP, VERIFY_FAILED = "upkeep", "verify failed"
LASTING = frozenset({CLUSTER_AWAY, NOT_SAMPLED, PARKED, PAUSED})
"""The kinds of events that last until they end; operations have a start and an end, other events a time."""

_MOODS: dict[str, Mood] = {
    **dict.fromkeys((CLUSTER_AWAY, PARKED, "records lost", VERIFY_FAILED), "bad"),
    **dict.fromkeys((NOT_SAMPLED, "quarantined", "failover"), "warn"),
    PAUSED: "off",
    **dict.fromkeys(("verified",), "good"),
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
        return self.kind in LASTING and self.until is None

    @property
    def seconds(self) -> float | None:
        return None if self.until is None else (self.until - self.at).total_seconds()

    def lasted_into(self, since: datetime) -> bool:
        """Return whether it began, went on or ended since a time, or still lasts."""
        return self.is_open or (self.until or self.last_at or self.at) >= since

    @property
    def key(self) -> tuple[str, str, datetime]:
        """The same for an event while it lasts and after it ended."""
        return self.kind, self.subject, self.at

    @property
    def badge(self) -> Badge:
        return badge(self.kind, _MOODS.get(self.kind, "note"))

    def concerns(self, flow: str, clusters: Collection[str]) -> bool:
        """Return whether it concerns a flow between these clusters; one that names neither flow nor cluster concerns all."""
        if self.flow:
            return self.flow == flow
        return not self.cluster or self.cluster in clusters

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
        return Sheet(
            title=self.subject, badge=self.badge, facts=(self.at, self.took() or None, self.explanation() or None)
        )

    def __str__(self) -> str:
        at = format_time(self.at, zone=timezone.utc)
        took = self.took()
        lasted = f" ({took if self.until is None else f'ended after {took}'})" if took else ""
        explanation = self.explanation()
        return clean(f"{at} {self.kind}: {self.subject}{lasted}{f': {explanation}' if explanation else ''}")


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Events(JsonDisplayable):
    """The events of a mirror from `start` to `end`, oldest first; one that began earlier and lasted into it is among them.

    Example:
        >>> from datetime import timedelta
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

    @property
    def open(self) -> tuple[Event, ...]:
        """The events that still last."""
        return tuple(event for event in self.events if event.is_open)

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
