"""Timestamps that no relay can store: Python's calendar and Delta's statistics go from the year 1 to the year 9999."""

from __future__ import annotations

from mirrorlake.errors import StoreError

# Microseconds given as milliseconds are past it. Nanoseconds, converted to microseconds, overflow eight bytes and would come
# out as another time (law C).
LATEST_MS = 253_402_300_799_999
"""The last millisecond of the year 9999."""
EARLIEST_MS = -62_135_596_800_000
"""The first millisecond of the year 1."""


def too_late(topic: str, partition: int, offset: int, timestamp_ms: int, *, alias: str = "") -> StoreError:
    of = f" of {alias}" if alias else ""
    where = "past the year 9999; its producer may have meant micro- or nanoseconds"
    if timestamp_ms < EARLIEST_MS:
        where = "before the year 1"
    return StoreError(
        f"{topic}-{partition}{of}: the record at offset {offset} has the timestamp {timestamp_ms} ms, {where}",
        consequence="the relay cannot hold it; nothing of its batch was landed",
        remedy=f"mend the producer; then add {topic} to exclude_topics, or delete the record with kafka-delete-records.sh",
        alias=alias,
        topic=topic,
    )
