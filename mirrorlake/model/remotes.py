"""Remote topics by topic id: a ledger's positions are valid for one incarnation of a topic only.

A remote topic that is deleted, or deleted and created again, has lost the records that the ledger counts as sent.
Law F: nothing is sent to it, and no topic is created for it, until a person chooses:

    send again      the relay's records go into the new topic from the beginning: no position of the old incarnation counts
    accept empty    the new topic gets the records from now on: the positions stay

A remote topic whose log was truncated (an unclean election, a lost disk) has the same id and lacks records at its end.
The claim then names it by an id that no topic has, `cut 0@120..216 of <id>`: partition 0 ends at 120, and records
were sent up to 216. New records would get offsets that the map gives to other records, so the remedy is to delete the
topic and to send again.

A position is stored with the name and the id of the topic in which it was reached. So an owner that dies between two
claims leaves no doubt which positions still count: those that were reached in the topics of the newest claim. Under a
changed `policy` they are kept beside those of the new name, and count again once that name does (`model/ledger.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import ClassVar

from mirrorlake.model.flow import SourcePartition
from mirrorlake.render import JsonDisplayable, Sheet, badge, clean

SEND_AGAIN, ACCEPT_EMPTY = "send_again", "accept_empty"
# The kind of a row of `positions`: from this offset on the new topic has records.
BEGUN_AGAIN = "begun_again"

# Answers of a broker without topic ids (before Kafka 2.8).
_NO_IDS = ("", "None", "AAAAAAAAAAAAAAAAAAAAAA")
# Claimed for a topic that was lost before its id was recorded: any later topic is a different one.
_NO_TOPIC = "-"
_TRUNCATED = "cut "
_TRUNCATED_PARTITION = re.compile(r"^(\d+)@(\d+)\.\.(\d+)$")


@dataclass(frozen=True, slots=True, order=True)
class Remote:
    """The remote topic of a source topic: its name, and its id, "" on a cluster without topic ids."""

    name: str
    topic_id: str = ""


def known_id(topic_id: object) -> str:
    """Return a topic id as text, or "" on a cluster without topic ids."""
    return "" if str(topic_id) in _NO_IDS else str(topic_id)


def is_different_topic(known: str, found: str) -> bool:
    """Return whether two ids are those of two topics; an empty id matches any."""
    return bool(known and found and known != found)


def truncated_id(topic_id: str, lacking: Mapping[int, tuple[int, int]]) -> str:
    """Return the id that a claim gives a truncated topic; `lacking` is the present and the former end by partition."""
    places = " ".join(f"{partition}@{end}..{sent}" for partition, (end, sent) in sorted(lacking.items()))
    return f"{_TRUNCATED}{places} of {topic_id}"


def base_id(known: str) -> str:
    """Return the id of a topic as Kafka gave it, also of a truncated topic."""
    return known.rpartition(" of ")[2] if known.startswith(_TRUNCATED) else known


@dataclass(frozen=True, slots=True, kw_only=True)
class LostTopic(JsonDisplayable):
    """A remote topic that differs from the one in the flow's ledger; `topics` are the source topics that wait for it.

    `known` is the id in the ledger, "" if the brokers told none. `found` is the id on the target, or None if the topic is
    gone.
    """

    flow: str
    target: str
    remote: str
    topics: tuple[str, ...]
    known: str = ""
    found: str | None = None
    json_include: ClassVar[tuple[str, ...]] = ("cause", "remedy")

    @property
    def is_truncated(self) -> bool:
        """Whether the topic is still the same one and lacks records at its end."""
        return self.known.startswith(_TRUNCATED) and base_id(self.known) == self.found

    @property
    def cause(self) -> str:
        """The event that lost the topic."""
        if self.is_truncated:
            places = self.known.removeprefix(_TRUNCATED).rpartition(" of ")[0].split()
            ends = ", ".join(
                _TRUNCATED_PARTITION.sub(r"partition \1 ends at \2 and had records up to \3", one) for one in places
            )
            return f"the log of {self.remote} on {self.target} was truncated; {self.flow} had sent the records it lost: {ends}"
        what = "was deleted" if self.found is None else "was deleted and created again"
        return f"{self.remote} {what} on {self.target}; {self.flow} had sent records to it"

    def shared_by(self, topics: Iterable[str], remote_topic: Callable[[str], str]) -> LostTopic:
        """Return the lost topic with other source topics that share it and have sent nothing yet."""
        waiting = set(self.topics)
        waiting.update(topic for topic in topics if remote_topic(topic) == self.remote)
        return replace(self, topics=tuple(sorted(waiting)))

    @property
    def commands(self) -> tuple[str, str]:
        """The commands of the two choices."""
        start = f"mirrorlake republish --flow '{self.flow}' --topic {self.remote}"
        return f"{start} --send-again", f"{start} --accept-empty"

    @property
    def remedy(self) -> str:
        """Both choices, as a sentence."""
        again, empty = self.commands
        if self.is_truncated:
            return (
                f"delete {self.remote} on {self.target}, then `{again}` sends everything again from the relay; until then "
                "consumers there can read the rest"
            )
        return (
            f"`{again}` sends everything again from the relay; `{empty}` sends only the records that were not sent yet"
        )

    def sheet(self) -> Sheet:
        """Show the event and the two choices."""
        return Sheet(title=self.remote, badge=badge("held"), facts=(self.cause,), parts=(self.remedy,))

    def __str__(self) -> str:
        return clean(f"{self.cause}. Next: {self.remedy}")


def detect_lost_topics(
    *,
    flow: str,
    target: str,
    known: Mapping[str, Remote],
    positions: Iterable[SourcePartition],
    found: Mapping[str, str],
    remote_topic: Callable[[str], str],
) -> list[LostTopic]:
    """Return the remote topics with positions in the ledger that are gone or differ from the ledger's.

    `known` is the ledger's remote topic by source topic, `found` the ids of the remote topics that exist.
    """
    by_remote: dict[str, set[str]] = {}
    for topic in {source.topic for source in positions}:
        by_remote.setdefault(remote_topic(topic), set()).add(topic)
    held = []
    for remote, topics in sorted(by_remote.items()):
        ids = {known[topic].topic_id for topic in topics if topic in known} - {""}
        now = found.get(remote)
        if now is None or any(is_different_topic(one, now or "") for one in ids):
            lost = min(ids - {now or ""}, default="")
            held.append(
                LostTopic(flow=flow, target=target, remote=remote, topics=tuple(sorted(topics)), known=lost, found=now)
            )
    return held


@dataclass(frozen=True, slots=True, kw_only=True)
class LossChoice:
    """A person's choice for a lost remote topic whose id in the ledger was `known`: `send_again` or `accept_empty`."""

    flow: str
    remote: str
    known: str
    action: str

    def resolves(self, held: LostTopic) -> bool:
        return (self.flow, self.remote, self.known) == (held.flow, held.remote, held.known)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chosen(JsonDisplayable):
    """The choice for a lost remote topic; `waits` means that the flow has not done it yet."""

    flow: str
    topic: str
    choice: str
    waits: bool

    def sheet(self) -> Sheet:
        what = "sent again from the relay" if self.choice == SEND_AGAIN else "accepted as it is"
        when = f"a mirror that runs does it; else: mirrorlake republish --flow '{self.flow}' --once"
        return Sheet(
            title=f"{self.topic} of {self.flow}",
            badge=badge("chosen", "note") if self.waits else badge("done", "good"),
            facts=(f"{'to be' if self.waits else 'was'} {what}",),
            parts=(when,) if self.waits else (),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class LossResolution:
    """The claim of an owner: positions that count, and the remote topics in which they were reached.

    `lost` topics wait for a person; `chosen` are those that a choice resolves now, each with the choice.
    """

    positions: Mapping[SourcePartition, int] = field(default_factory=dict)
    remotes: Mapping[str, Remote] = field(default_factory=dict)
    lost: tuple[LostTopic, ...] = ()
    chosen: tuple[tuple[LostTopic, LossChoice], ...] = ()

    @property
    def waiting(self) -> frozenset[str]:
        return frozenset(topic for one in self.lost for topic in one.topics)

    @property
    def sends_again(self) -> bool:
        return any(choice.action == SEND_AGAIN for _, choice in self.chosen)

    @property
    def lost_remotes(self) -> frozenset[str]:
        return frozenset(one.remote for one in self.lost)

    def continuing(self, known: Mapping[str, Remote]) -> frozenset[str]:
        """Return the remote topics that every source topic sharing them uses as the ledger knew them."""
        others = {one.name for topic, one in self.remotes.items() if known.get(topic) != one}
        return frozenset(one.name for one in self.remotes.values()) - others - self.lost_remotes


def find_sharing_topics(
    lost: LostTopic, known: Mapping[str, Remote], remote_topic: Callable[[str], str]
) -> frozenset[str]:
    """Return the source topics whose records a lost topic had, also those that the flow no longer carries.

    A topic that is carried again later has lost its records, too.
    """
    sent = {topic for topic, one in known.items() if one.name == lost.remote == remote_topic(topic)}
    return frozenset(sent.union(lost.topics))


def resolve_losses(
    *,
    lost: Iterable[LostTopic],
    choices: Iterable[LossChoice],
    known: Mapping[str, Remote],
    positions: Mapping[SourcePartition, int],
    found: Mapping[str, str],
    remote_topic: Callable[[str], str],
) -> LossResolution:
    """Return the claim of a flow's new owner, by the topics on the target and a person's choices.

    A topic that waits is claimed with the id in the ledger, so that the next start detects the loss again. Without an
    id in the ledger, it is claimed with an id that no topic can have.
    """
    lost, choices = list(lost), list(choices)
    chosen = [(one, choice) for one in lost for choice in choices if choice.resolves(one)]
    waiting = [one for one in lost if not any(choice.resolves(one) for choice in choices)]
    again = {
        topic
        for one, choice in chosen
        if choice.action == SEND_AGAIN
        for topic in find_sharing_topics(one, known, remote_topic)
    }
    stays = {topic for one in waiting for topic in one.topics}
    remotes = dict(known)
    for topic, remote in ((topic, one.remote) for one in waiting for topic in one.topics):
        if topic not in known or not known[topic].topic_id:
            remotes[topic] = Remote(remote, _NO_TOPIC)
    held_names = {one.remote for one in waiting}
    # Also for a source topic without a position in a shared topic: the claim names no earlier incarnation.
    for topic in ({source.topic for source in positions} | known.keys()) - stays:
        remote = remote_topic(topic)
        if remote in found and remote not in held_names:
            remotes[topic] = Remote(remote, found[remote])
    return LossResolution(
        positions={source: at for source, at in positions.items() if source.topic not in again},
        remotes=remotes,
        lost=tuple(waiting),
        chosen=tuple(chosen),
    )
