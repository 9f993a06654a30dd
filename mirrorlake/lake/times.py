"""Times as whole microseconds since 1970, as questions to tables compare them (decision 0021)."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)
TICK = timedelta(microseconds=1)


def micros(at: datetime) -> int:
    """Return a time as microseconds since 1970; one without a zone is the driver's own, as Spark hands it over."""
    return (at.astimezone(timezone.utc) - EPOCH) // TICK


def from_micros(value: int) -> datetime:
    """Return microseconds since 1970 as a time in UTC."""
    return EPOCH + value * TICK
