"""Outages of clusters: a running mirror stores when a cluster goes away and when it is back, in the table `audit`.

Nothing is written while nothing changes. Several processes may watch, and one may reach a cluster that another does not: each writes
what it finds itself, with its sign (`context/running_flows.py`), and a cluster is away while one of them says so. The outage of a
process that no longer runs is ended by another one that reaches the cluster.

The samples of a mirror tell the same, some seconds later: they end an outage whose mirror was killed, and show the outages of
mirrors that run in parts.
"""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable, Iterable, Set
from dataclasses import KW_ONLY, dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from mirrorlake.context import Context
from mirrorlake.errors import ClusterUnreachable
from mirrorlake.events.event import CLUSTER_AWAY, Event
from mirrorlake.lake import AUDIT, Audit, Lake
from mirrorlake.model.plan import Change
from mirrorlake.runtime import PeriodicTask

log = logging.getLogger(__name__)

COMMAND, AWAY, BACK = "run", "away", "back"
"""The command and the two actions of the rows; their object is `cluster <alias>`, their `before` the sign of the process whose
outage it is, their `after` the reason."""

_INTERVAL_S = 5.0
# A busy cluster answers within this, as a restarted broker does: that is no outage.
_ANSWER_TIMEOUT_S = 10.0
# A reachable cluster answers within this.
_WAIT_S = 0.5
# A sampler retries an unreachable cluster in the background, so that its errors may be this much older than their rows.
_SAMPLER_DELAY = timedelta(seconds=60)
# Until then an outage of another process is left to it, without a look at the lake.
_OTHERS_EVERY = timedelta(seconds=30)
# A sample under way when a cluster goes away may have its answers already.
_LAST_ANSWERS = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class Transition:
    """A cluster went away, with the reason, or is back (`why` is None), for the process of a sign."""

    cluster: str
    at: datetime
    why: str | None
    sign: str = ""

    @property
    def is_away(self) -> bool:
        return self.why is not None


@dataclass(eq=False, repr=False)
class OutageWatch:
    """Ask each cluster every few seconds whether it answers, and store when that changes.

    Several processes of a mirror may watch: each writes its own outages, and ends those of processes that no longer run.

    `clusters` are those that this process needs, None for all of the settings. `ask` raises `ClusterUnreachable` while no broker
    answers. Processes without a `sign` count as the same.
    """

    context: Context
    clusters: Set[str] | None = None
    _: KW_ONLY
    ask: Callable[[str], object] | None = None
    sign: str = ""
    _said: dict[str, bool] = field(default_factory=dict, init=False)
    _others: dict[str, dict[str, datetime | None]] = field(default_factory=dict, init=False)
    _others_at: datetime | None = field(default=None, init=False)
    _asking: dict[str, threading.Thread] = field(default_factory=dict, init=False)
    _answers: dict[str, Transition] = field(default_factory=dict, init=False)

    def task(self) -> PeriodicTask:
        return PeriodicTask(name="outages", interval_s=_INTERVAL_S, run=self.once)

    def once(self) -> None:
        """Ask every cluster, and store the changes; an answer that takes longer is stored by a later call."""
        config = self.context.config
        needed = {*config.clusters} if self.clusters is None else self.clusters
        aliases = sorted(({*config.sources, *config.targets} - {*config.lake_clusters}) & needed)
        answers = list(filter(None, map(self._answer, aliases)))
        if any(one.cluster not in self._said for one in answers) or self._is_due():
            self._read_stored(answers)
        for one in answers:
            if self._said[one.cluster] != one.is_away:
                self._write(one)
                self._said[one.cluster] = one.is_away

    def _is_due(self) -> bool:
        at = self._others_at
        return any(self._others.values()) and (at is None or self.context.now() - at >= _OTHERS_EVERY)

    def _read_stored(self, answers: Iterable[Transition]) -> None:
        """Find what an earlier run of this sign stored, and end the outages of processes that no longer run."""
        self._others_at = self.context.now()
        stored = _open_signs(stored_transitions(self.context.lake))
        for one in answers:
            signs = stored.get(one.cluster, set())
            self._said.setdefault(one.cluster, self.sign in signs)
            before = self._others.get(one.cluster, {})
            # When it was first found back: that a process has ended is known half a minute later.
            others = {sign: None if one.is_away else before.get(sign) or one.at for sign in sorted(signs - {self.sign})}
            self._others[one.cluster] = others
            for sign, back_at in list(others.items()):
                if back_at is not None and not is_running(self.context, sign):
                    self._write(replace(one, at=back_at, sign=sign))
                    del others[sign]

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
        ask = self.ask or (lambda alias: self.context.admin(alias).require_answer(_ANSWER_TIMEOUT_S))
        # The time before the call, which may take until the time-out.
        at = self.context.now()
        try:
            ask(alias)
        except ClusterUnreachable as error:
            self._answers[alias] = Transition(alias, at, error.cause, self.sign)
        except Exception as error:
            # Nobody knows, such as while a secret is rotated; the next call asks again.
            log.info("cluster.not_asked cluster=%s why=%s: %s", alias, type(error).__name__, str(error)[:200])
        else:
            self._answers[alias] = Transition(alias, self.context.now(), None, self.sign)

    def _write(self, one: Transition) -> None:
        action = AWAY if one.is_away else BACK
        if one.is_away:
            log.info("cluster.away cluster=%s why=%s", one.cluster, one.why)
        else:
            log.info("cluster.back cluster=%s", one.cluster)
        self.context.lake.create_side_table(AUDIT)
        place: dict[str, Any] = {"where": one.cluster, "kind": "cluster", "name": one.cluster}
        change = Change(**place, action=action, before=one.sign or None, after=one.why)
        Audit(self.context.lake, now=lambda: one.at).record([change], command=COMMAND)


def stored_transitions(lake: Lake) -> list[Transition]:
    """Return the stored transitions of all clusters, oldest first; [] before the table exists."""
    rows = lake.query_rows(_TRANSITIONS, command=COMMAND, missing_ok=True, cache=True)
    return [
        Transition(
            row.cluster, row.at, json.loads(row.after) if row.action == AWAY else None, json.loads(row.before) or ""
        )
        for row in rows
    ]


def read_outages(context: Context, sampled: Iterable[Transition]) -> list[Event]:
    """Return the outages that the stored transitions and those of the samples tell, oldest first.

    A sampler's error that begins shortly after a stored end is of that outage.
    """
    known: list[Event] = []
    for sign, event in _fold(stored_transitions(context.lake)):
        if event.until is None and not is_running(context, sign):
            event = _ended_by_samples(context.lake, event)
        _add(known, event)
    for _, one in _fold(sampled):
        number = next((n for n, other in enumerate(known) if _is_same(other, one)), None)
        if number is None:
            known.append(one)
        else:
            known[number] = replace(known[number], at=min(known[number].at, one.at))
    return sorted(known, key=lambda one: one.at)


def is_running(context: Context, sign: str) -> bool:
    """Return whether the process of a sign runs; without a sign nobody knows it."""
    return bool(sign) and context.running_flows.is_alive(sign)


def _add(known: list[Event], event: Event) -> None:
    """Add an outage; what several processes found at the same time is one, until the last of them reached the cluster."""
    for number, other in enumerate(known):
        if other.cluster == event.cluster and (other.until is None or event.at <= other.until):
            is_open = other.until is None or event.until is None
            until = None if is_open else max(filter(None, (other.until, event.until)))
            known[number] = replace(other, until=until)
            return
    known.append(event)


def _ended_by_samples(lake: Lake, event: Event) -> Event:
    """End an outage whose mirror was killed before it stored the end: the first sample that the cluster answered tells it."""
    since = event.at + _LAST_ANSWERS
    [row] = lake.query_rows(_ANSWERED, cluster=event.cluster, since=since, missing_ok=True, cache=True) or [None]
    return event if row is None or row.at is None else replace(event, until=row.at)


def _open_signs(transitions: Iterable[Transition]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for sign, event in _fold(transitions):
        if event.until is None:
            found.setdefault(event.cluster, set()).add(sign)
    return found


def _fold(transitions: Iterable[Transition]) -> list[tuple[str, Event]]:
    """Return sign and outage for each time that a cluster went away for a process until it was back, oldest first."""
    events: list[tuple[str, Event]] = []
    away: dict[tuple[str, str], int] = {}
    for one in sorted(transitions, key=lambda one: one.at):
        number = away.get((one.cluster, one.sign))
        if one.is_away and number is None:
            away[one.cluster, one.sign] = len(events)
            why = one.why or ""
            event = Event(at=one.at, kind=CLUSTER_AWAY, subject=one.cluster, cluster=one.cluster, why=why)
            events.append((one.sign, event))
        elif not one.is_away and number is not None:
            events[number] = one.sign, replace(events[number][1], until=one.at)
            del away[one.cluster, one.sign]
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
    SELECT at, `where` AS cluster, action, before, after FROM {audit}
    WHERE command = :command AND startswith(object, 'cluster ')
    ORDER BY at
"""
