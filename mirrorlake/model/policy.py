"""Replication policies: the name of a mirrored topic on the target, and what a name shows of its origin.

    policy      `orders` from east on central    shows where a record came from
    default     east.orders                      yes: names spell out every hop, so nothing is sent back (1)
    identity    orders                           no
    template    all.orders                       no

(1) As in MirrorMaker 2 (`DefaultReplicationPolicy`, `MirrorSourceConnector.isCycle`): works only while every mirror uses the
    same alias for the same cluster (KAFKA-9914).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from mirrorlake.errors import TopicConflict

_LEGAL_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
# Records of others in them would break Kafka, or a flow.
_RESERVED = re.compile(
    r"__(?:consumer_offsets|transaction_state|share_group_state|cluster_metadata)|mirrorlake\..*\.ledger"
)
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_PLACEHOLDERS = ("topic", "source", "target")
_HEARTBEATS = "heartbeats"
DEFAULT_SEPARATOR = "."


class TopicNameError(TopicConflict):
    """No topic may have the name; a flow lets such a topic wait, and leaves none out silently (law E)."""


def is_legal_topic(name: str) -> bool:
    """Return whether Kafka accepts the name (`org.apache.kafka.common.internals.Topic.validate`)."""
    return name not in (".", "..") and _LEGAL_TOPIC.fullmatch(name) is not None


def name_fault(name: str) -> TopicNameError | None:
    """Return the error of a remote topic's name, or None if a topic may have it."""
    if not is_legal_topic(name):
        letters = "allowed are letters, digits, . _ and -, not . or .. alone"
        why = f"{len(name)} characters, Kafka takes 249" if len(name) > 249 else letters
    elif _RESERVED.fullmatch(name):
        why = "an internal topic has it"
    else:
        return None
    return TopicNameError(
        f"'{name}' is not a legal name of a remote topic ({why})",
        consequence="nothing can be sent to it",
        remedy="leave its source topic out with exclude_topics of the flow, or choose a policy that makes another name",
    )


def _legal_or_none(name: str) -> str | None:
    return name if is_legal_topic(name) else None


class ReplicationPolicy(Protocol):
    """Names topics on the target, and reads such names back (`org.apache.kafka.connect.mirror.ReplicationPolicy`)."""

    @property
    def tells_origin(self) -> bool:
        """Return whether a remote topic's name contains every cluster the topic has been on."""

    def remote_topic(self, source: str, target: str, topic: str) -> str:
        """Return the topic's name on the target, also if it is not legal (`name_fault`)."""

    def remote_prefix(self, source: str, target: str, prefix: str) -> str | None:
        """Return the common prefix of the remote names of all topics that begin with `prefix`, or None if there is none."""

    def topic_source(self, topic: str) -> str | None:
        """Return the alias of the cluster that the topic came from, or None if the name does not show it."""

    def upstream_topic(self, topic: str) -> str | None:
        """Return the topic's name on the cluster it came from, or None if the name does not show it."""

    def original_topic(self, topic: str) -> str:
        """Return the topic's name on the cluster of its origin, as far as the name shows it."""


@dataclass(frozen=True, slots=True)
class DefaultPolicy:
    """Prefix the source's alias: `orders` from east is `east.orders`.

    Any name with a separator reads as a remote topic, also an ordinary `foo.bar`, as in MirrorMaker 2.
    """

    separator: str = DEFAULT_SEPARATOR

    @property
    def tells_origin(self) -> bool:
        return True

    def remote_topic(self, source: str, target: str, topic: str) -> str:  # noqa: ARG002 - the protocol's signature
        return f"{source}{self.separator}{topic}"

    def remote_prefix(self, source: str, target: str, prefix: str) -> str | None:  # noqa: ARG002 - the protocol's signature
        return _legal_or_none(f"{source}{self.separator}{prefix}")

    def topic_source(self, topic: str) -> str | None:
        """Return the text before the first separator, if something other than separators follows.

        Java's `split` drops trailing empty parts, so `east.` is one part and has no source.
        """
        parts = topic.split(self.separator)
        while len(parts) > 1 and not parts[-1]:
            parts.pop()
        return parts[0] if len(parts) > 1 else None

    def upstream_topic(self, topic: str) -> str | None:
        source = self.topic_source(topic)
        return None if source is None else topic[len(source) + len(self.separator) :]

    def original_topic(self, topic: str) -> str:
        """Return the name without any hop."""
        while (upstream := self.upstream_topic(topic)) is not None and upstream != topic:
            topic = upstream
        return topic


@dataclass(frozen=True, slots=True)
class IdentityPolicy:
    """Use the source topic's name; `heartbeats` and its copies follow the default policy (MirrorMaker 2: all that end so)."""

    source: str | None = None
    separator: str = DEFAULT_SEPARATOR

    @property
    def tells_origin(self) -> bool:
        return False

    def remote_topic(self, source: str, target: str, topic: str) -> str:
        """Return the same name, or the default policy's for a heartbeats topic."""
        if self._is_heartbeats(topic):
            return DefaultPolicy(self.separator).remote_topic(source, target, topic)
        return topic

    def remote_prefix(self, source: str, target: str, prefix: str) -> str | None:  # noqa: ARG002 - the protocol's signature
        """Return the same prefix; a topic `heartbeats` below it has another name."""
        return None if self._is_heartbeats(prefix) else _legal_or_none(prefix)

    def topic_source(self, topic: str) -> str | None:
        """Return the configured source, or the one in a heartbeats topic's name."""
        if self._is_heartbeats(topic):
            return DefaultPolicy(self.separator).topic_source(topic)
        return self.source

    def upstream_topic(self, topic: str) -> str | None:
        """Return the same name, or a heartbeats topic's name without its first hop."""
        if self._is_heartbeats(topic):
            return DefaultPolicy(self.separator).upstream_topic(topic)
        return topic

    def original_topic(self, topic: str) -> str:
        """Return the same name, or `heartbeats` for a heartbeats topic."""
        return _HEARTBEATS if self._is_heartbeats(topic) else topic

    def _is_heartbeats(self, topic: str) -> bool:
        return DefaultPolicy(self.separator).original_topic(topic) == _HEARTBEATS


@dataclass(frozen=True, slots=True)
class TemplatePolicy:
    """Name remote topics by a template of `{topic}`, `{source}`, `{target}`; without `{topic}` all topics merge into one."""

    template: str

    def __post_init__(self) -> None:
        for name in _PLACEHOLDER.findall(self.template):
            if name not in _PLACEHOLDERS:
                raise TopicNameError(
                    f"template '{self.template}' has the unknown placeholder {{{name}}}",
                    remedy="known are {topic}, {source} and {target}",
                )
        # With one legal letter for each placeholder, only the template's own text can be illegal.
        if not is_legal_topic(_PLACEHOLDER.sub("x", self.template)):
            raise TopicNameError(
                f"template '{self.template}' makes illegal topic names",
                remedy="use letters, digits, . _ - and {topic}, {source}, {target}",
            )

    @property
    def tells_origin(self) -> bool:
        return False

    @property
    def merges_topics(self) -> bool:
        return "{topic}" not in self.template

    def remote_topic(self, source: str, target: str, topic: str) -> str:
        values = {"topic": topic, "source": source, "target": target}
        return _PLACEHOLDER.sub(lambda match: values[match.group(1)], self.template)

    def remote_prefix(self, source: str, target: str, prefix: str) -> str | None:
        """Return the filled template if the topic's name ends it: `all.{topic}` has a prefix, `{topic}.copy` has none."""
        before, _, after = self.template.partition("{topic}")
        if after or "{topic}" not in self.template:
            return None
        values = {"source": source, "target": target}
        return _legal_or_none(_PLACEHOLDER.sub(lambda match: values[match.group(1)], before) + prefix)

    def topic_source(self, topic: str) -> str | None:  # noqa: ARG002 - the protocol's signature
        return None

    def upstream_topic(self, topic: str) -> str | None:  # noqa: ARG002 - the protocol's signature
        return None

    def original_topic(self, topic: str) -> str:
        """Return the same name: the template cannot be undone."""
        return topic


def original_topic(topic: str, *, separator: str = DEFAULT_SEPARATOR) -> str:
    """Return the name of a topic at its origin, derived from its name under the default policy.

    As in MirrorMaker 2, every part before a separator counts as a hop, also in `orders.v1`. For topics with unchanged
    names, use the headers of a record (`hops`).

    >>> original_topic("b.a.orders")
    'orders'
    """
    return DefaultPolicy(separator).original_topic(topic)


def is_cycle(policy: ReplicationPolicy, topic: str, target_alias: str) -> bool:
    """Return whether the topic has been on the target, as far as its name shows it (`MirrorSourceConnector.isCycle`)."""
    while (source := policy.topic_source(topic)) is not None:
        if source == target_alias:
            return True
        upstream = policy.upstream_topic(topic)
        if upstream is None or upstream == topic:
            return False
        topic = upstream
    return False
