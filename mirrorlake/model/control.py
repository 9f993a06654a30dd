"""A person's intentions for a running mirror: the settings in force, and what is paused.

Intentions are rows of the table `control`, never changed once written; the newest row of a subject counts:

    settings                        apply           the settings that running mirrors are to adopt
    cluster | flow | topic | table  pause, resume
    remote                          send_again, accept_empty: the choice for a lost remote topic
    stream                          park, clear     a running mirror's record of its own failed stream
                                    resume          a person wants a parked stream to start again
    known_flow                      begin           the settings of a flow whose republishing began, from any settings file
                                    retire          a person declares that the flow is gone for good
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from mirrorlake.model.parked import Parked, landing, of_topics, parked_of
from mirrorlake.model.remotes import ACCEPT_EMPTY, SEND_AGAIN, LossChoice
from mirrorlake.render import Displayable, Sheet, badge, clean

APPLY, PAUSE, RESUME, PARK, CLEAR = "apply", "pause", "resume", "park", "clear"
BEGIN, RETIRE = "begin", "retire"
STREAM, KNOWN_FLOW = "stream", "known_flow"


@dataclass(frozen=True, slots=True, kw_only=True)
class Subject:
    """The subject of an intention: `settings`, a `cluster`, a `flow`, a `topic` or `remote` topic of one, a `table`, or a `stream`."""

    kind: str
    name: str = ""
    flow: str = ""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" + (f" of {self.flow}" if self.flow else "")

    @property
    def options(self) -> str:
        """The options of `mirrorlake pause` and `resume` that name the subject."""
        flow = f" --flow '{self.flow}'" if self.flow else ""
        name = f"'{self.name}'" if self.kind in ("flow", "table") else self.name
        return f"--{self.kind} {name}{flow}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Intention:
    """One row of `control`; `value` is the plain content of the settings for `apply`, the reason for `park`, else None."""

    at: datetime
    who: str
    action: str
    subject: Subject
    value: Any = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pause(Displayable):
    """A pause in force: its subject, person, time, and reason if one was given."""

    subject: Subject
    who: str
    since: datetime
    reason: str = ""

    @property
    def resume_command(self) -> str:
        """The command that ends the pause."""
        return f"mirrorlake resume {self.subject.options}"

    def sheet(self) -> Sheet:
        """Show the pause, and the command that ends it."""
        return Sheet(
            title=str(self.subject),
            badge=badge("paused"),
            facts=(f"by {self.who} since", self.since, self.reason or None),
            parts=(f"resume with: {self.resume_command}",),
        )

    def __str__(self) -> str:
        why = f" ({self.reason})" if self.reason else ""
        since = self.since.isoformat(timespec="seconds")
        return clean(f"{self.subject} is paused by {self.who} since {since}{why}; resume with: {self.resume_command}")


@dataclass(frozen=True, slots=True)
class ControlState:
    """The state in force: the newest `apply`, the pauses, the choices for lost remote topics, and the parked streams.

    `resumed` lacks parked streams that failed again after that.
    `known_flows` are the plain settings, by name, of every flow that any settings file applied or ran on this lake
    and that nobody has retired.
    """

    applied: Intention | None = None
    pauses: Mapping[Subject, Pause] = field(default_factory=dict)
    choices: tuple[LossChoice, ...] = ()
    parked: Mapping[str, Parked] = field(default_factory=dict)
    resumed: Mapping[str, datetime] = field(default_factory=dict)
    known_flows: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    retired_flows: frozenset[str] = frozenset()

    def of_cluster(self, alias: str) -> Pause | None:
        """Return the pause of a cluster, or None."""
        return self.pauses.get(Subject(kind="cluster", name=alias))

    def of_stream(self, flow: str, target: str) -> Pause | None:
        """Return the pause that stops a flow's republishing: its own, its target's, or None."""
        return self.pauses.get(Subject(kind="flow", name=flow)) or self.of_cluster(target)

    def of_table(self, name: str) -> Pause | None:
        """Return the pause of a typed table, or None."""
        return self.pauses.get(Subject(kind="table", name=name))

    def of_flow(self, flow: str, source: str) -> tuple[Parked, ...]:
        """Return the parked streams of a flow: its own, its topics', and the landing of its source."""
        names = (landing(source), flow, *of_topics(flow, sorted(self.parked)))
        return tuple(self.parked[name] for name in names if name in self.parked)

    def covering(self, flow: str, source: str, target: str) -> Callable[[str], Pause | None]:
        """Return a function that finds the pause of a topic in a flow, or None."""
        whole, topics = self.of_stream(flow, target) or self.of_cluster(source), self.topics_of(flow)
        return lambda topic: whole or topics.get(topic)

    def topics_of(self, flow: str) -> dict[str, Pause]:
        """Return the paused topics of a flow."""
        paused = {s.name: pause for s, pause in self.pauses.items() if (s.kind, s.flow) == ("topic", flow)}
        return dict(sorted(paused.items()))


NOTHING_ASKED = ControlState()


def state_of(intentions: Iterable[Intention]) -> ControlState:
    """Fold intentions, given in any order, into the state in force."""
    newest: dict[Subject, Intention] = {}
    known_flows: dict[str, Mapping[str, Any]] = {}
    for intention in sorted(intentions, key=lambda one: one.at):
        newest[intention.subject] = intention
        if intention.action == APPLY:
            known_flows |= (intention.value or {}).get("flows", {})
        elif intention.action == BEGIN:
            known_flows[intention.subject.name] = intention.value
        elif intention.action == RETIRE:
            known_flows.pop(intention.subject.name, None)
    return ControlState(
        applied=newest.get(Subject(kind="settings")),
        pauses={
            subject: Pause(subject=subject, who=one.who, since=one.at, reason=one.reason)
            for subject, one in newest.items()
            if one.action == PAUSE
        },
        choices=tuple(
            LossChoice(flow=subject.flow, remote=subject.name, known=one.value["known"], action=one.action)
            for subject, one in newest.items()
            if one.action in (SEND_AGAIN, ACCEPT_EMPTY)
        ),
        parked={
            subject.name: parked_of(subject.name, one.at, one.value or {})
            for subject, one in newest.items()
            if (subject.kind, one.action) == (STREAM, PARK)
        },
        resumed={
            subject.name: one.at for subject, one in newest.items() if (subject.kind, one.action) == (STREAM, RESUME)
        },
        known_flows=known_flows,
        retired_flows=frozenset(
            subject.name for subject, one in newest.items() if one.action == RETIRE and subject.name not in known_flows
        ),
    )
