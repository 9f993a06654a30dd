"""Parked streams: which failures are retried, how soon, and the rows of the table `control` about them."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from mirrorlake.config.schema import MirrorConfig
from mirrorlake.context import Context
from mirrorlake.errors import (
    ClusterError,
    ClusterUnreachable,
    ColumnUnknown,
    ConfigError,
    LoginRefused,
    MirrorlakeError,
    NotAuthorized,
    RegistryError,
    RegistryUnreachable,
    StoreError,
)
from mirrorlake.landing import backoff_s
from mirrorlake.model.causes import root_cause
from mirrorlake.model.control import CLEAR, PARK, STREAM, ControlState, Subject
from mirrorlake.model.parked import Parked, stream_facts, whole_stream

log = logging.getLogger(__name__)

# While a cluster is away, some calls do not reach it and others get half an answer.
_OUTAGE = {ClusterUnreachable.__name__, ClusterError.__name__, RegistryUnreachable.__name__}
# A cluster that answers again is noticed soon; refused logins may lock an account; a store, or a worker that dies each time, is
# tried less often. Settings of a stream that ran are complete: an unresolved secret or file is just being rotated.
_MAX_PAUSE_S = {
    LoginRefused: 60.0,
    ClusterUnreachable: 10.0,
    NotAuthorized: 30.0,
    ClusterError: 300.0,
    StoreError: 300.0,
    ConfigError: 60.0,
    RegistryUnreachable: 10.0,
    # One that starts answers with errors; a login may be rotated.
    RegistryError: 60.0,
    # The next record may have it.
    ColumnUnknown: 60.0,
}
# In the first minute each of these is a mistake of the setup more often than not.
_MISTAKES = (ClusterUnreachable, NotAuthorized, ConfigError, RegistryUnreachable)
# The first restart repairs most failures: one that lasts a second is not news.
_PUBLISHED_FROM = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """A stream that should run.

    `made_of` is the fingerprint of its settings: a changed one restarts the stream. `resumed` is when a person last
    resumed it after a failure.
    """

    name: str
    made_of: str
    call: Callable[[threading.Event], Any]
    resumed: datetime | None = None

    @property
    def asked(self) -> str:
        """The fingerprint of a person's settings and resumes for the stream; a changed one is a new request."""
        return f"{self.made_of} {self.resumed}"

    def replaces(self, running: Stream) -> bool:
        """Return whether the stream has other settings than the running one, or a person resumed one of its topics since."""
        return self.made_of != running.made_of or self.resumed not in (None, running.resumed)


@dataclass(frozen=True, slots=True, kw_only=True)
class ParkedStream:
    """A failed stream that waits until `retry_at` (monotonic clock), or for a person if that is None.

    `never_came`: in the first minute its cluster did not answer or denied access, or its settings could not be
    resolved, most likely by a mistake of the setup.
    """

    stream: Stream
    parked: Parked
    error: MirrorlakeError
    attempts: int
    retry_at: float | None
    never_came: bool

    @property
    def is_hopeless(self) -> bool:
        """Whether a mirror with only such streams should end."""
        return self.retry_at is None or self.never_came

    @property
    def is_published(self) -> bool:
        """Whether the failure deserves a row for other processes."""
        return self.is_hopeless or self.attempts >= _PUBLISHED_FROM

    def may_start(self, stream: Stream) -> bool:
        """Return whether the retry is due, the settings changed, or a person has resumed the stream since."""
        is_due = self.retry_at is not None and time.monotonic() >= self.retry_at
        is_asked = stream.resumed is not None and stream.resumed != self.stream.resumed
        return is_due or is_asked or stream.made_of != self.stream.made_of


def park_stream(
    stream: Stream, error: Exception, before: ParkedStream | None, *, now: Callable[[], datetime], never_came: bool
) -> ParkedStream:
    """Park a stream that `error` ended, and log it; `before` is its last parking if it has not run well since."""
    failure = _as_mirrorlake_error(stream.name, error)
    kind = next((kind for kind in _MAX_PAUSE_S if _is_retried(failure, kind)), None)
    attempts = before.attempts + 1 if before is not None else 1
    pause = None if kind is None else backoff_s(attempts, max_s=_MAX_PAUSE_S[kind])
    parked = Parked(
        stream=stream.name,
        since=now() if before is None else before.parked.since,
        error=type(failure).__name__,
        cause=failure.cause,
        remedy=failure.remedy,
        exit_code=failure.exit_code,
        is_retried=pause is not None,
    )
    # An outage logs a line when it begins, and one when the stream has recovered; the log file has every attempt.
    is_same_outage = before is not None and {parked.error, before.parked.error} <= _OUTAGE and parked.is_retried
    log.log(
        logging.INFO if is_same_outage else logging.WARNING,
        "stream.parked what=%s attempt=%s retry_in_s=%s error=%s why=%s next=%s",
        stream.name,
        attempts,
        "never" if pause is None else f"{pause:.0f}",
        parked.error,
        parked.cause,
        parked.next_step,
        extra={"facts": stream_facts(stream.name)},
    )
    return ParkedStream(
        stream=stream,
        parked=parked,
        error=failure,
        attempts=attempts,
        retry_at=None if pause is None else time.monotonic() + pause,
        never_came=isinstance(failure, _MISTAKES) and never_came,
    )


def _is_retried(error: MirrorlakeError, kind: type[MirrorlakeError]) -> bool:
    # A record that is too large raises a subclass of `ClusterError`, which waits for a person.
    return type(error) is kind if kind is ClusterError else isinstance(error, kind)


def _as_mirrorlake_error(name: str, error: Exception) -> MirrorlakeError:
    if isinstance(error, MirrorlakeError):
        return error
    return StoreError(
        f"{name} failed: {type(error).__name__}: {root_cause(str(error))}",
        consequence="it stopped where its ledger or its checkpoint location says",
        remedy="mirrorlake doctor",
    )


def _longest_pause_s(config: MirrorConfig) -> float:
    triggers = [flow.trigger for flow in config.flows] + [
        config.cluster(source).land.trigger for source in config.sources
    ]
    return max((trigger.total_seconds() for trigger in triggers), default=0.0)


class Notices:
    """Record this process's streams in the table `control`, with a row only for a change."""

    def __init__(self, context: Context) -> None:
        self._context = context
        self._control = context.control()
        self._shown: Mapping[str, Parked] = {}

    def update(self, state: ControlState, waiting: Mapping[str, ParkedStream], healthy: Mapping[str, datetime]) -> None:
        """Record parked and recovered streams if the table differs, and show them in the metrics.

        `healthy` has the time since which each runs. The rows hold since when a stream failed, or runs again: they are written
        later, and events need the time itself.
        """
        shown = {name: place.parked for name, place in waiting.items()}
        # The streams themselves record their waiting topics.
        shown |= {name: one for name, one in state.parked.items() if whole_stream(name) in healthy.keys() - {name}}
        metrics = self._context.metrics
        if metrics is not None:
            metrics.running(frozenset(healthy), pause_s=_longest_pause_s(self._context.config))
            if shown != self._shown:
                metrics.parked(shown)
        self._shown = shown
        for name, place in waiting.items():
            if place.is_published and not place.parked.is_same(state.parked.get(name)):
                self._append(PARK, name, {**place.parked.said(), "since": place.parked.since.isoformat()})
        for name in healthy.keys() & state.parked.keys():
            self._append(CLEAR, name, {"since": healthy[name].isoformat()})

    def _append(self, action: str, name: str, value: Mapping[str, Any]) -> None:
        try:
            self._control.append(action, Subject(kind=STREAM, name=name), value=value)
        except Exception as error:
            # The log has it; the next update tries again.
            why = root_cause(str(error))
            log.warning("stream.not_recorded what=%s why=%s", name, why, extra={"facts": stream_facts(name)})
