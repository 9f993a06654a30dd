"""Count the work of streams as it happens; a failure to count stops no stream."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

from mirrorlake.landing import LandListener
from mirrorlake.model.ledger import LedgerRecord
from mirrorlake.republish import FlowListener

if TYPE_CHECKING:
    from mirrorlake.metrics.registry import Metrics

log = logging.getLogger(__name__)


class LandFeed(LandListener):
    """Count the work of the long-lived lander of one source; `now` is the clock, in UTC."""

    def __init__(self, metrics: Metrics, alias: str, *, now: Callable[[], datetime]) -> None:
        self._metrics = metrics
        self._alias = alias
        self._now = now

    def landed(self, records: int) -> None:
        try:
            self._metrics.landed(self._alias, records=records, seconds=None, at=self._now().timestamp())
        except Exception:
            log.exception("metrics.failed what=count of landed records")


class FlowFeed(FlowListener):
    """Count the work of one flow; `now` is the clock, in UTC."""

    def __init__(self, metrics: Metrics, flow: str, *, now: Callable[[], datetime]) -> None:
        self._metrics = metrics
        self._flow = flow
        self._now = now

    def committed(self, records: Sequence[LedgerRecord]) -> None:
        try:
            for record in records:
                counts: dict[str, int] = {}
                for run in record.runs:
                    counts[run.source.topic] = counts.get(run.source.topic, 0) + run.count
                self._metrics.republished(record.claim.flow, counts)
        except Exception:
            log.exception("metrics.failed what=count of republished records")

    def polled(self) -> None:
        """Record that the flow polled the relay's log."""
        try:
            self._metrics.looked(f"republish {self._flow}", at=self._now().timestamp())
        except Exception:
            log.exception("metrics.failed what=count of polls")
