"""How fresh what is shown is; stale data is marked, in words and not by colour alone."""

from __future__ import annotations

from datetime import datetime, timedelta

from mirrorlake.notebook.console.store import Reading
from mirrorlake.render import badge, duration, escape, moment


def freshness(reading: Reading, now: datetime, limit: timedelta) -> str:
    """Return how fresh a reading is as HTML: stale data is marked, and why it is stale is said."""
    age = reading.age(now)
    if age is None:
        return badge("waiting for the first answer", "off").html() if reading.problem is None else _stale(reading)
    said = f" as of {escape(moment(reading.at, date=False))}, {escape(duration(age))} ago"
    return (_stale(reading) if reading.is_stale(now, limit) else badge("live", "good").html()) + said


def _stale(reading: Reading) -> str:
    why = "" if reading.problem is None else f" <span>{escape(reading.problem.splitlines()[0])}</span>"
    return badge("stale", "bad").html() + why
