"""What outages, pauses and parked streams did to the records: how long they took from their source to the target."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta

from mirrorlake.config.schema import FlowConfig
from mirrorlake.errors import MirrorlakeError
from mirrorlake.events import Event, Events
from mirrorlake.lag.lag import Lag
from mirrorlake.render import format_count, format_duration

# Late records arrive after the end. A query reads the records of this time, so that a long one is not read.
_AFTER, _MAX_DURATION = timedelta(seconds=60), timedelta(hours=6)
_MAX_EVENTS = 5
_KINDS = ("cluster away", "parked", "paused")


class EventEffects:
    """Add the effect to events that have ended, the newest first; of each it is read once.

    Args:
        lag: returns the lag of these flows.
    """

    def __init__(self, lag: Callable[[list[FlowConfig]], Lag]) -> None:
        self._lag = lag
        self._known: dict[tuple[str, str, datetime], str] = {}

    def add(self, events: Events, flows: tuple[FlowConfig, ...]) -> Events:
        """Return the events with their effects on these flows."""
        ended = [one for one in events if one.kind in _KINDS and one.until and one.until - one.at <= _MAX_DURATION]
        effects = {one.key: self._effect(one, flows, events.end) for one in ended[-_MAX_EVENTS:]}
        return replace(events, events=tuple(_with(one, effects.get(one.key, "")) for one in events))

    def _effect(self, event: Event, flows: tuple[FlowConfig, ...], now: datetime) -> str:
        if event.key in self._known:
            return self._known[event.key]
        touched = [flow for flow in flows if event.concerns(flow.name, (flow.source, flow.target))]
        until = (event.until or now) + _AFTER
        effect = self._read(touched, event.at, min(until, now)) if touched else ""
        if until <= now:
            self._known[event.key] = effect
        return effect

    def _read(self, flows: list[FlowConfig], start: datetime, end: datetime) -> str:
        try:
            rows = self._lag(flows).query_latency(start, end, bucket=end - start + timedelta(seconds=1)).rows(_SLOWEST)
        except MirrorlakeError:
            # Without a relay, or where it cannot be read now, the event itself is still told.
            return ""
        return "; ".join(
            f"{format_count(int(row.records))} records of {row.flow} arrived meanwhile and in the minute after it, "
            f"the slowest 1 % after {format_duration(row.p99_ms)} and more"
            for row in rows
        )


def _with(event: Event, effect: str) -> Event:
    return replace(event, effect="; ".join(filter(None, (event.effect, effect)))) if effect else event


_SLOWEST = "SELECT flow, sum(records) AS records, max(p99_ms) AS p99_ms FROM {answer} GROUP BY flow ORDER BY flow"
