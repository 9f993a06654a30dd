"""Outages of clusters: a running mirror stores when a cluster goes away and when it is back, in the table `audit`.

Nothing is written while nothing changes. The samples of a mirror tell the same, some seconds later: they end an outage whose mirror
was killed, and show the outages of mirrors that run in parts.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable, Set
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from mirrorlake.context import Context
from mirrorlake.errors import ClusterUnreachable
from mirrorlake.events.event import CLUSTER_AWAY, Event
from mirrorlake.lake import AUDIT, Audit, Lake
from mirrorlake.model.plan import Change
from mirrorlake.runtime import PeriodicTask

log = logging.getLogger(__name__)

COMMAND, AWAY, BACK = "run", "away", "back"
"""The command and the two actions of the rows; their object is `cluster <alias>`, their `after` the reason."""

_INTERVAL_S = 5.0
# A busy cluster answers within this, as a restarted broker does: that is no outage.
_ANSWER_TIMEOUT_S = 10.0
# A reachable cluster answers within this.
_WAIT_S = 0.5
# A sampler retries an unreachable cluster in the background, so that its errors may be this much older than their rows.
_SAMPLER_DELAY = timedelta(seconds=60)
# A sample under way when a cluster goes away may have its answers already.
_LAST_ANSWERS = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Transition:
    """A cluster went away, with the reason, or is back (`why` is None)."""

    cluster: str
    at: datetime
    why: str | None

    @property
    def is_away(self) -> bool:
        """Whether it went away."""
        return self.why is not None


class OutageWatch:
    """Ask each cluster every few seconds whether it answers, and store when that changes.

    Several processes of a mirror may watch: who finds the change stored writes nothing, and of two equal rows the first counts.

    Args:
        context: of the mirror; its settings may change meanwhile.
        clusters: the clusters that this process needs; None for all of the settings.
        ask: raises `ClusterUnreachable` while no broker of a cluster answers.
    """

    def __init__(
        self, context: Context, clusters: Set[str] | None = None, *, ask: Callable[[str], object] | None = None
    ) -> None:
        self._context = context
        self._clusters = clusters
        self._ask = ask or (lambda alias: context.admin(alias).require_answer(_ANSWER_TIMEOUT_S))
        self._stored: dict[str, bool] = {}
        self._asking: dict[str, threading.Thread] = {}
        self._answers: dict[str, Transition] = {}

    def task(self) -> PeriodicTask:
        """Return the periodic task of a running mirror."""
        return PeriodicTask(name="outages", interval_s=_INTERVAL_S, run=self.once)

    def once(self) -> None:
        """Ask every cluster, and store the changes; an answer that takes longer is stored by a later call."""
        config = self._context.config
        aliases = sorted(
            ({*config.sources, *config.targets} - {*config.lake_clusters}) & (self._clusters or {*config.clusters})
        )
        answers = list(filter(None, map(self._answer, aliases)))
        if all(self._stored.get(one.cluster) == one.is_away for one in answers):
            return
        # Another process may have stored it, or an earlier run, which was killed meanwhile.
        last = {one.cluster: one.is_away for one in stored_transitions(self._context.lake)}
        self._stored = {alias: last.get(alias, False) for alias in aliases}
        for one in answers:
            if self._stored[one.cluster] != one.is_away:
                self._write(one)
                self._stored[one.cluster] = one.is_away

    def _answer(self, alias: str) -> Transition | None:
        """Return whether a cluster answers, or None if it is not known yet."""
        asking = self._asking.get(alias)
        if asking is None or not asking.is_alive():
            # A daemon thread, because a client's time-out must not delay the end of the process.
            asking = threading.Thread(target=self._read, args=(alias,), name=f"ask {alias}", daemon=True)
            self._asking[alias] = asking
            asking.start()
        asking.join(_WAIT_S)
        return self._answers.pop(alias, None)

    def _read(self, alias: str) -> None:
        # The time before the call, which may take until the time-out.
        at = self._context.now()
        try:
            self._ask(alias)
        except ClusterUnreachable as error:
            self._answers[alias] = Transition(alias, at, error.cause)
        except Exception as error:
            # Nobody knows, such as while a secret is rotated; the next call asks again.
            log.info("cluster.not_asked cluster=%s why=%s: %s", alias, type(error).__name__, str(error)[:200])
        else:
            self._answers[alias] = Transition(alias, self._context.now(), None)

    def _write(self, one: Transition) -> None:
        action = AWAY if one.is_away else BACK
        if one.is_away:
            log.info("cluster.away cluster=%s why=%s", one.cluster, one.why)
        else:
            log.info("cluster.back cluster=%s", one.cluster)
        self._context.lake.create_side_table(AUDIT)
        change = Change(where=one.cluster, kind="cluster", name=one.cluster, action=action, after=one.why)
        Audit(self._context.lake, now=lambda: one.at).record([change], command=COMMAND)


def stored_transitions(lake: Lake) -> list[Transition]:
    """Return the stored transitions of all clusters, oldest first; [] before the table exists."""
    rows = lake.query_rows(_TRANSITIONS, command=COMMAND, missing_ok=True, cache=True)
    return [Transition(row.cluster, row.at, json.loads(row.after) if row.action == AWAY else None) for row in rows]


def outages(stored: Iterable[Transition], sampled: Iterable[Transition]) -> list[Event]:
    """Return the outages that the stored transitions and those of the samples tell, oldest first.

    A sampler's error that begins shortly after a stored end is of that outage.
    """
    known, seen = _fold(stored), _fold(sampled)
    for one in seen:
        number = next((n for n, other in enumerate(known) if _is_same(other, one)), None)
        if number is None:
            known.append(one)
        else:
            other = known[number]
            known[number] = replace(other, at=min(other.at, one.at), until=other.until or one.until)
    return sorted(known, key=lambda one: one.at)


def end_by_samples(lake: Lake, events: Iterable[Event]) -> list[Event]:
    """End the outages whose mirror was killed before it stored the end: the first sample that the cluster answered tells it."""

    def ended(event: Event) -> Event:
        if event.until is not None:
            return event
        since = event.at + _LAST_ANSWERS
        [row] = lake.query_rows(_ANSWERED, cluster=event.cluster, since=since, missing_ok=True, cache=True) or [None]
        return event if row is None or row.at is None else replace(event, until=row.at)

    return [ended(event) for event in events]


def _fold(transitions: Iterable[Transition]) -> list[Event]:
    """Return an outage for each time that a cluster went away until it was back; processes may repeat each other."""
    events: list[Event] = []
    away: dict[str, int] = {}
    for one in sorted(transitions, key=lambda one: one.at):
        number = away.get(one.cluster)
        if one.is_away and number is None:
            away[one.cluster] = len(events)
            why = one.why or ""
            events.append(Event(at=one.at, kind=CLUSTER_AWAY, subject=one.cluster, cluster=one.cluster, why=why))
        elif not one.is_away and number is not None:
            events[number] = replace(events[number], until=one.at)
            del away[one.cluster]
    return events


def _is_same(stored: Event, sampled: Event) -> bool:
    if stored.cluster != sampled.cluster:
        return False
    begins_in_time = stored.until is None or sampled.at <= stored.until + _SAMPLER_DELAY
    return begins_in_time and (sampled.until is None or sampled.until >= stored.at)


_ANSWERED = """
    SELECT min(observed_at) AS at FROM {samples}
    WHERE subject = 'cluster' AND name = :cluster AND error IS NULL AND observed_at >= :since
"""
_TRANSITIONS = """
    SELECT at, `where` AS cluster, action, after FROM {audit} WHERE command = :command AND startswith(object, 'cluster ')
    ORDER BY at
"""
