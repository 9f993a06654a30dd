"""Events that other tables of the lake tell: samples, gaps, quarantine, removed records, proofs."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from mirrorlake.events.event import NOT_SAMPLED, UPKEEP, VERIFY_FAILED, Event
from mirrorlake.events.outages import Transition
from mirrorlake.lake import Lake, micros
from mirrorlake.render import plural

_LOST = {
    "expired": "they left the source unlanded",
    "recreated": "the topic was deleted",
    "truncated": "the log went back",
}


def sampled_transitions(lake: Lake, since: datetime) -> list[Transition]:
    """Return when the samples found clusters away and back; a cluster that was away at the first one is away from there."""
    rows = lake.query_rows(_TRANSITIONS, **_window(since), missing_ok=True, cache=True)
    return [Transition(row.name, row.observed_at, row.error) for row in rows]


def unsampled(lake: Lake, since: datetime, now: datetime, *, every: timedelta) -> list[Event]:
    """Return the times without any sample: no mirror ran, or it did not sample."""
    if not every:
        return []
    max_gap = max(3 * every, timedelta(seconds=90))
    # A mirror that samples has a row shortly before the window, so that older ones are read after a silence only.
    shortly_before, gap_us = since - max_gap, max_gap // timedelta(microseconds=1)
    rows = lake.query_rows(_UNSAMPLED, **_window(shortly_before), max_gap=gap_us, missing_ok=True, cache=True)
    looks = [(row.last_at, row.at) for row in rows if row.last_at is not None]
    first = rows[0].first_at if rows else None
    if first is None or first >= since:
        [before] = lake.query_rows(_LAST_SAMPLE, before=shortly_before, missing_ok=True, cache=True) or [None]
        if before is not None and before.at is not None:
            looks.insert(0, (before.at, first))
    newest = rows[-1].at if rows else None
    if newest is not None:
        looks.append((newest, None))
    why = "no mirror of this lake ran, or it did not sample"
    return [
        Event(at=at, until=until, kind=NOT_SAMPLED, subject="the mirror", why=why)
        for at, until in looks
        if (until or now) - at > max_gap
    ]


def lost_records(lake: Lake, since: datetime) -> list[Event]:
    """Return the offsets that left a source before they were landed: an event an hour of each topic and cause."""
    rows = lake.query_rows(_GAPS, since=micros(since), kinds=list(_LOST), missing_ok=True, cache=True)
    return [
        Event(
            at=row.at,
            last_at=row.last_at,
            kind="records lost",
            subject=f"{row.topic} of {row.source}",
            cluster=row.source,
            why=_LOST[row.kind],
            effect=f"{plural(int(row.missing), 'offset')} never landed",
        )
        for row in rows
    ]


def quarantined(lake: Lake, since: datetime) -> list[Event]:
    """Return the records that a rule could not judge: an event an hour of each topic and rule."""
    rows = lake.query_rows(_QUARANTINED, since=micros(since), missing_ok=True, cache=True)
    return [
        Event(
            at=row.at,
            last_at=row.last_at,
            kind="quarantined",
            subject=row.topic,
            flow=row.flow,
            why=f"{row.rule}: {row.reason}",
            effect=f"{plural(int(row.records), 'record')} withheld from the target",
        )
        for row in rows
    ]


def expired_records(lake: Lake, since: datetime) -> list[Event]:
    """Return the passes of upkeep in which records left a relay by its retention."""
    rows = lake.query_rows(_EXPIRED, since=micros(since), missing_ok=True, cache=True)
    return [
        Event(
            at=row.at,
            kind=UPKEEP,
            subject=f"relay of {row.source}",
            cluster=row.source,
            why=row.reason or "",
            effect=f"{plural(int(row.records), 'record')} left by its retention",
        )
        for row in rows
    ]


def verifications(lake: Lake, since: datetime) -> list[Event]:
    rows = lake.query_rows(_VERIFIED, since=micros(since), missing_ok=True, cache=True)
    return [
        Event(
            at=row.at,
            kind=VERIFY_FAILED if row.differing else "verified",
            subject=row.flow,
            flow=row.flow,
            effect=f"{plural(int(row.compared), 'record')} compared"
            + (f", {plural(int(row.differing), 'range')} different" if row.differing else ", all equal"),
        )
        for row in rows
    ]


def _window(since: datetime) -> dict[str, Any]:
    # File statistics truncate times to milliseconds.
    return {"since": since - timedelta(seconds=1), "since_us": micros(since)}


_TRANSITIONS = """
    WITH looks AS (
        SELECT name, observed_at, error, lag(error) OVER (PARTITION BY name ORDER BY observed_at) AS before,
            row_number() OVER (PARTITION BY name ORDER BY observed_at) AS number
        FROM {samples} WHERE subject = 'cluster' AND observed_at >= :since AND unix_micros(observed_at) >= :since_us
    )
    SELECT name, observed_at, error FROM looks
    WHERE number = 1 OR (error IS NULL) != (before IS NULL) ORDER BY observed_at
"""
_UNSAMPLED = """
    WITH looks AS (
        SELECT DISTINCT observed_at AS at FROM {samples} WHERE observed_at >= :since AND unix_micros(observed_at) >= :since_us
    ),
    pairs AS (
        SELECT at, lag(at) OVER (ORDER BY at) AS last_at, min(at) OVER () AS first_at,
            row_number() OVER (ORDER BY at DESC) AS number
        FROM looks
    )
    SELECT at, last_at, first_at FROM pairs WHERE number = 1 OR unix_micros(at) - unix_micros(last_at) > :max_gap ORDER BY at
"""
_LAST_SAMPLE = "SELECT max(observed_at) AS at FROM {samples} WHERE observed_at < :before"
_GAPS = """
    SELECT source, topic, kind, min(detected_at) AS at, max(detected_at) AS last_at, sum(missing) AS missing FROM {gaps}
    WHERE unix_micros(detected_at) >= :since AND array_contains(:kinds, kind)
    GROUP BY source, topic, kind, floor(unix_micros(detected_at) / 3600000000)
"""
_QUARANTINED = """
    SELECT flow, topic, rule, min(reason) AS reason, min(quarantined_at) AS at, max(quarantined_at) AS last_at,
        count(*) AS records
    FROM {quarantine}
    WHERE unix_micros(quarantined_at) >= :since
    GROUP BY flow, topic, rule, floor(unix_micros(quarantined_at) / 3600000000)
"""
_EXPIRED = """
    SELECT removal, source, reason, max(removed_at) AS at, sum(record_count) AS records FROM {removed}
    WHERE kind = 'expired' AND relay_version IS NOT NULL AND unix_micros(removed_at) >= :since
    GROUP BY removal, source, reason
"""
_VERIFIED = """
    SELECT verification, flow, max(proven_at) AS at,
        sum(CASE WHEN how IN ('full', 'sampled', 'present') THEN records ELSE 0 END) AS compared,
        sum(CASE WHEN how = 'different' THEN 1 ELSE 0 END) AS differing
    FROM {proofs} WHERE flow IS NOT NULL AND unix_micros(proven_at) >= :since GROUP BY verification, flow
"""
