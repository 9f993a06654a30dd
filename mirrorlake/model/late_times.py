"""Timestamps that no relay can store: Python's calendar and Delta's statistics go from the year 1 to the year 9999.

Such a record is landed with a mark in place of its timestamp, so that its topic waits, or the record is quarantined, where a flow
would send it (`unsendable`), and everything else is mirrored (law E). Kafka's timestamps are whole milliseconds and the marks are
not, so no other record has one (law C).
"""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

# Microseconds given as milliseconds are past it. Nanoseconds, converted to microseconds, overflow eight bytes.
LATEST_MS = 253_402_300_799_999
"""The last millisecond of the year 9999."""
EARLIEST_MS = -62_135_596_800_000
"""The first millisecond of the year 1."""
_DAY_US = 86_400_000_000
# A day within the calendar, which no time zone leaves.
LATER_US = LATEST_MS * 1000 - _DAY_US + 999
EARLIER_US = EARLIEST_MS * 1000 + _DAY_US + 1

WHY = {
    LATER_US: "its timestamp is past the year 9999; its producer may have meant micro- or nanoseconds",
    EARLIER_US: "its timestamp is before the year 1",
}


def relay_us(timestamp_ms: int) -> int:
    """Return the microseconds by which a relay stores a timestamp: exactly, or as a mark.

    >>> str(moment_of(1_764_360_000_000)), str(moment_of(1_764_360_000_000_000_000))
    ('2025-11-28 20:00:00+00:00', '9999-12-30 23:59:59.999999+00:00')
    """
    if timestamp_ms > LATEST_MS:
        return LATER_US
    return EARLIER_US if timestamp_ms < EARLIEST_MS else timestamp_ms * 1000


def moment_of(timestamp_ms: int) -> datetime:
    """Return milliseconds since 1970 UTC as a time, or as the mark that a relay stores."""
    return datetime(1970, 1, 1, tzinfo=timezone.utc) + timedelta(microseconds=relay_us(timestamp_ms))
