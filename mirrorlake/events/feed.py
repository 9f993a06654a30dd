"""Follow the events of a mirror: each call returns what is new since the last one."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta

from mirrorlake.events.event import CLUSTER_AWAY, Event, Events

# Rows are written some seconds after what they tell; an outage that its killed mirror did not end, at the next run's first sample.
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
        events = self._read(self._mark)
        fresh = tuple(one for one in events if one.key not in self._seen or self._seen[one.key] != one.until)
        for one in events:
            self._seen.pop(one.key, None)
            self._seen[one.key] = one.until
        for key in list(self._seen)[: -max(_MAX_SEEN, len(events))]:
            del self._seen[key]
        # An outage that only samples tell seems to begin at the first one that is read.
        away = [one.at for one in events.open if one.kind == CLUSTER_AWAY]
        self._mark = max(self._mark, min([events.end - _LATE, *away]))
        return fresh
