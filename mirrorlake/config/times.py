"""Parse times as people write them, on a command line, in a form or in a call."""

from __future__ import annotations

import re
from datetime import datetime, time, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo

from mirrorlake.config.values import iso_time, seconds_of
from mirrorlake.errors import UsageError

ZONE = timezone.utc
"""The zone of a time without one: that of every table, log and output of mirrorlake."""
EXAMPLES = (
    '"2026-11-22 03:30", "03:30" or "yesterday 14:00" (UTC unless a zone follows, like +01:00 or Europe/Berlin), '
    'or how long ago, like "-2h"'
)
"""Examples of times, for messages and fields."""

_DAYS = {"today": 0, "yesterday": 1}
_ZONED = re.compile(r"(?P<time>.*\S)\s+(?P<zone>utc|gmt|z|[a-z_]+(?:/[a-z0-9_+-]+)+)", re.IGNORECASE)
_CLOCK = re.compile(r"\d{1,2}:\d{2}.*")
# Milliseconds, as Kafka's tools print them: 12 digits begin in 1973, 14 end in 5138.
_MILLISECONDS = re.compile(r"\d{12,14}")


def when(text: str | timedelta | datetime, *, now: datetime) -> datetime:
    """Return the time that a person wrote, in UTC.

    `now`, `2026-11-22 03:30`, ISO 8601, `yesterday 14:00`, `03:30` (the last one before now), `-2h` and `2h ago` and `2h` (the
    age), or Kafka's milliseconds since 1970. A time without a zone is in UTC; a zone may follow: `+01:00`, `Z`,
    `Europe/Berlin`. A `timedelta` is an age.

    Example:
        >>> noon = datetime(2026, 1, 2, 12, tzinfo=timezone.utc)
        >>> [f"{when(text, now=noon):%d %H:%M}" for text in ("-2h", "2026-01-01 03:30", "03:30", "yesterday 14:00", "13:00")]
        ['02 10:00', '01 03:30', '02 03:30', '01 14:00', '01 13:00']
    """
    if isinstance(text, timedelta):
        return now - text
    if isinstance(text, datetime):
        if text.tzinfo is None:
            raise UsageError(f"{text.isoformat()} has no time zone", remedy=f"write {text.isoformat()}+00:00 for UTC")
        return text.astimezone(timezone.utc)
    words = text.strip()
    try:
        return _read(words, now).astimezone(timezone.utc)
    except (ValueError, OverflowError, LookupError):
        raise UsageError(f"'{text}' is not a time", remedy=f"write {EXAMPLES}") from None


def _read(words: str, now: datetime) -> datetime:
    if words.lower() == "now":
        return now
    length = seconds_of(words.removeprefix("-").strip() if words.startswith("-") else re.sub(r"\s+ago$", "", words))
    if length is not None:
        return now - timedelta(seconds=length)
    if _MILLISECONDS.fullmatch(words):
        return datetime.fromtimestamp(0, timezone.utc) + timedelta(milliseconds=int(words))
    zone: tzinfo = ZONE
    if zoned := _ZONED.fullmatch(words):
        words, zone = zoned["time"], _zone(zoned["zone"])
    day, _, clock = words.partition(" ")
    if day.lower() in _DAYS:
        date = now.astimezone(zone).date() - timedelta(days=_DAYS[day.lower()])
        return datetime.combine(date, _clock(clock.strip() or "00:00", zone))
    if _CLOCK.fullmatch(words):
        at = _clock(words, zone)
        found = datetime.combine(now.astimezone(at.tzinfo).date(), at)
        return found if found <= now else found - timedelta(days=1)
    found = iso_time(words)
    return found.replace(tzinfo=zone) if found.tzinfo is None else found


def _clock(text: str, zone: tzinfo) -> time:
    # Python 3.10 reads neither the Z nor an hour of one digit.
    found = time.fromisoformat(re.sub(r"[zZ]$", "+00:00", text if text[1:2] != ":" else f"0{text}"))
    return found.replace(tzinfo=zone) if found.tzinfo is None else found


def _zone(name: str) -> tzinfo:
    return timezone.utc if name.lower() in ("utc", "gmt", "z") else ZoneInfo(name)
