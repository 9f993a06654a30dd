"""Which topics of a flow go where: the small part of its settings that decides, without addresses or secrets.

A `Route` is what travels to Spark's workers, where loops are told apart (`mirrorlake.rules.hop_header`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from mirrorlake.config.schema.selection import NameMatcher, TopicMatcher
from mirrorlake.model.patterns import TopicPattern
from mirrorlake.model.policy import ReplicationPolicy, is_cycle
from mirrorlake.model.regex import tokens


@dataclass(frozen=True, kw_only=True)
class Route:
    """What a flow carries and how it names it; `never_leave` beats the selection, and None, where nobody said, denies all."""

    name: str
    source: str
    target: str
    selection: TopicMatcher
    policy: ReplicationPolicy
    never_leave: TopicPattern | None = None

    def denies(self, topic: str) -> bool:
        """Return whether the topic may never leave the source, whatever the flow selects."""
        if self.never_leave is None:
            return True
        return bool(self.never_leave) and NameMatcher(self.never_leave).matches(topic)

    def carries(self, topic: str) -> bool:
        """Return whether the flow sends the topic on: selected, not denied, not known to come from the target."""
        return (
            self.selection.matches(topic) and not self.denies(topic) and not is_cycle(self.policy, topic, self.target)
        )

    def remote_topic(self, topic: str) -> str:
        """Return the topic's name on the target. Raises TopicNameError: Kafka would not accept the name."""
        return self.policy.remote_topic(self.source, self.target, topic)


def denied_from(alias: str, never_leave: Mapping[str, TopicPattern], separators: Iterable[str]) -> TopicPattern:
    r"""Collect the topics that may not leave a cluster: those it denies itself, and those from a cluster that denies them.

    Where a topic came from is read from its name as the default policy makes it, whatever policy the flow onward has: a
    denial is never lifted by another name for the flow. `east.pii` on central, where east denies `pii`, stays there.

    Example:
        >>> denied_from("central", {"east": TopicPattern(("pii",))}, ["."]).expressions
        ('(?:.*\\.)?east\\.(?:pii)',)
    """
    found = list(never_leave.get(alias, TopicPattern()).expressions)
    for origin, pattern in sorted(never_leave.items()):
        for separator in sorted(set(separators)):
            parted = separator.replace(".", r"\.")
            for expression in pattern.expressions:
                # `^pii$` is the whole name here too, so its edges would never match after a hop.
                inner = "".join(token.text for token in tokens(expression) if token.text not in ("^", "$"))
                found.append(rf"(?:.*{parted})?{origin}{parted}(?:{inner})")
    return TopicPattern(tuple(dict.fromkeys(found)))
