"""The part of a flow's settings that decides which topics go where, without addresses or secrets.

Spark's workers get a `Route` to detect loops (`mirrorlake.rules.hop_header`).
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
    """The topics of a flow and their remote names; `never_leave` beats the selection, and None denies all."""

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
        """Return whether the flow mirrors the topic: selected, not denied, not known to come from the target."""
        return (
            self.selection.matches(topic) and not self.denies(topic) and not is_cycle(self.policy, topic, self.target)
        )

    def remote_topic(self, topic: str) -> str:
        """Return the topic's name on the target. Raises TopicNameError: Kafka would not accept the name."""
        return self.policy.remote_topic(self.source, self.target, topic)


def denied_from(alias: str, never_leave: Mapping[str, TopicPattern], separators: Iterable[str]) -> TopicPattern:
    r"""Return the topics that may not leave a cluster: its own denials, and topics from a cluster that denies them.

    A topic's origin is its prefix under the default policy, whatever policy the next flow has, so that no policy lifts a
    denial. `east.pii` stays on central if east denies `pii`.

    Example:
        >>> denied_from("central", {"east": TopicPattern(("pii",))}, ["."]).expressions
        ('(?:.*\\.)?east\\.(?:pii)',)
    """
    found = list(never_leave.get(alias, TopicPattern()).expressions)
    for origin, pattern in sorted(never_leave.items()):
        for separator in sorted(set(separators)):
            parted = separator.replace(".", r"\.")
            for expression in pattern.expressions:
                # `^pii$` means the whole name, and its anchors would never match after a hop.
                inner = "".join(token.text for token in tokens(expression) if token.text not in ("^", "$"))
                found.append(rf"(?:.*{parted})?{origin}{parted}(?:{inner})")
    return TopicPattern(tuple(dict.fromkeys(found)))
