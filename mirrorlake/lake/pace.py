"""Default intervals of always-on streams: short in a folder for latency, long on an object store for the price of requests."""

from __future__ import annotations

from datetime import timedelta

# (in a folder, on a store): between the starts of two turns of landing, between two polls of the relay's log, and between two
# copies of a flow's ledger, each an append of 40 ms; later ledger records are read from the ledger itself.
_LANDING_S = (0.03, 2.0)
_LOOK_S = (0.01, 0.5)
_COPY_S = (5.0, 30.0)


def landing_interval_s(path: str, trigger: timedelta) -> float:
    """Return the seconds between the starts of two turns of landing into a relay: the trigger if one is set."""
    return _interval_s(path, trigger, _LANDING_S)


def poll_interval_s(path: str, trigger: timedelta) -> float:
    """Return the seconds between two polls of a flow for the next commit of a relay: the trigger if one is set."""
    return _interval_s(path, trigger, _LOOK_S)


def copy_interval_s(path: str) -> float:
    """Return the seconds between two copies of a flow's ledger to the lake."""
    return _interval_s(path, timedelta(0), _COPY_S)


def _interval_s(path: str, trigger: timedelta, defaults: tuple[float, float]) -> float:
    return trigger.total_seconds() or defaults[":/" in path]
