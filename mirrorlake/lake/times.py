"""Times as whole microseconds since 1970, as queries compare them."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
TICK = timedelta(microseconds=1)


def micros(at: datetime) -> int:
    """Return a time as microseconds since 1970; a time without a zone is in the driver's zone, as Spark returns it."""
    return (at.astimezone(timezone.utc) - EPOCH) // TICK


def from_micros(value: int) -> datetime:
    """Return microseconds since 1970 as a time in UTC."""
    return EPOCH + value * TICK
