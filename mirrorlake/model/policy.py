"""Replication policies: how a mirrored topic is named on the target, and what a name tells about its origin.

    policy      `orders` from east on central    can tell where a record came from
    default     east.orders                      yes: names spell out every hop, so nothing is sent back (1)
    identity    orders                           no
    template    all.orders                       no

(1) As in MirrorMaker 2 (`DefaultReplicationPolicy`, `MirrorSourceConnector.isCycle`): works only while every mirror
    uses the same alias for the same cluster (KAFKA-9914).
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Protocol

from mirrorlake.errors import TopicConflict

_LEGAL_TOPIC = re.compile(r"[A-Za-z0-9._-]{1,249}")
_PLACEHOLDER = re.compile(r"\{([^{}]*)\}")
_PLACEHOLDERS = ("topic", "source", "target")
_HEARTBEATS = "heartbeats"
DEFAULT_SEPARATOR = "."


class TopicNameError(TopicConflict):
    """Refuse a name that Kafka accepts for no topic; a flow stops before such a topic and leaves none out silently (law E)."""


def is_legal_topic(name: str) -> bool:
    """Return whether Kafka accepts the name (`org.apache.kafka.common.internals.Topic.validate`).

    >>> [is_legal_topic(name) for name in ("orders.v1", "..", "commandé", "")]
    [True, False, False, False]
    """
    return name not in (".", "..") and _LEGAL_TOPIC.fullmatch(name) is not None


def check_topic(name: str) -> str:
    """Return the name if Kafka accepts it.

    Raises:
        TopicNameError: it does not.
    """
    if not is_legal_topic(name):
        why = (
            f"{len(name)} characters"
            if len(name) > 249
            else "allowed are letters, digits, . _ and -, not . or .. alone"
        )
        raise TopicNameError(
            f"'{name}' is not a legal topic name ({why})",
            consequence="nothing can be sent to it",
            remedy="leave its source topic out with exclude_topics of the flow, or choose a policy that makes another name",
        )
    return name


def _legal_or_none(name: str) -> str | None:
    return name if is_legal_topic(name) else None


class ReplicationPolicy(Protocol):
    """How names are made on the target, and read back (`org.apache.kafka.connect.mirror.ReplicationPolicy`)."""

    @property
    def tells_origin(self) -> bool:
        """Return whether a remote topic's name tells every cluster the topic has been on."""

    def remote_topic(self, source: str, target: str, topic: str) -> str:
        """Return the topic's name on the target.

        Raises:
            TopicNameError: the name would not be legal.
        """

    def remote_prefix(self, source: str, target: str, prefix: str) -> str | None:
        """Return how the remote names of all topics that begin with `prefix` begin, or None without such a beginning."""

    def topic_source(self, topic: str) -> str | None:
        """Return the alias of the cluster that the topic came from, or None if the name does not tell."""

    def upstream_topic(self, topic: str) -> str | None:
        """Return the topic's name on the cluster it came from, or None if the name does not tell."""

    def original_topic(self, topic: str) -> str:
        """Return the topic's name on the cluster of its origin, as far as the name tells."""


@dataclass(frozen=True, slots=True)
class DefaultPolicy:
    """Prefix the source's alias: `orders` from east is `east.orders`.

    Any name with a separator in it reads as a remote topic, also an ordinary `foo.bar`; that is MirrorMaker 2's rule.

    Example:
        >>> DefaultPolicy().remote_topic("east", "central", "orders")
        'east.orders'
        >>> DefaultPolicy().original_topic("central.east.orders")
        'orders'
    """

    separator: str = DEFAULT_SEPARATOR

    @property
    def tells_origin(self) -> bool:
        """Return True: every hop is in the name."""
        return True

    def remote_topic(self, source: str, target: str, topic: str) -> str:  # noqa: ARG002 - the protocol's signature
        """Return `<source><separator><topic>`."""
        return check_topic(f"{source}{self.separator}{topic}")

    def remote_prefix(self, source: str, target: str, prefix: str) -> str | None:  # noqa: ARG002 - the protocol's signature
        """Return `<source><separator><prefix>`."""
        return _legal_or_none(f"{source}{self.separator}{prefix}")

    def topic_source(self, topic: str) -> str | None:
        """Return the text before the first separator, if something other than separators follows.

        Java's `split` drops trailing empty parts, so `east.` is one part and comes from nowhere.
        """
        parts = topic.split(self.separator)
        while len(parts) > 1 and not parts[-1]:
            parts.pop()
        return parts[0] if len(parts) > 1 else None

    def upstream_topic(self, topic: str) -> str | None:
        """Return the name without its first hop."""
        source = self.topic_source(topic)
        return None if source is None else topic[len(source) + len(self.separator) :]

    def original_topic(self, topic: str) -> str:
        """Return the name without any hop."""
        while (upstream := self.upstream_topic(topic)) is not None and upstream != topic:
            topic = upstream
        return topic


@dataclass(frozen=True, slots=True)
class IdentityPolicy:
    """Keep the name; only heartbeats topics follow the default policy (KIP-690, `IdentityReplicationPolicy`).

    Args:
        source: the flow's source alias, which is what `topic_source` answers for every topic.

    Example:
        >>> IdentityPolicy().remote_topic("east", "central", "orders")
        'orders'
    """

    source: str | None = None
    separator: str = DEFAULT_SEPARATOR

    @property
    def tells_origin(self) -> bool:
        """Return False: the name is the same everywhere."""
        return False

    def remote_topic(self, source: str, target: str, topic: str) -> str:
        """Return the same name, or the default policy's for a heartbeats topic."""
        if topic.endswith(_HEARTBEATS):
            return DefaultPolicy(self.separator).remote_topic(source, target, topic)
        return check_topic(topic)

    def remote_prefix(self, source: str, target: str, prefix: str) -> str | None:  # noqa: ARG002 - the protocol's signature
        """Return the same prefix; a topic `heartbeats` below it has another name."""
        return None if prefix.endswith(_HEARTBEATS) else _legal_or_none(prefix)

    def topic_source(self, topic: str) -> str | None:
        """Return the configured source, or what a heartbeats topic's name tells."""
        if topic.endswith(_HEARTBEATS):
            return DefaultPolicy(self.separator).topic_source(topic)
        return self.source

    def upstream_topic(self, topic: str) -> str | None:
        """Return the same name, or a heartbeats topic's name without its first hop."""
        if topic.endswith(_HEARTBEATS):
            return DefaultPolicy(self.separator).upstream_topic(topic)
        return topic

    def original_topic(self, topic: str) -> str:
        """Return the same name, or a heartbeats topic's name without any hop."""
        if topic.endswith(_HEARTBEATS):
            return DefaultPolicy(self.separator).original_topic(topic)
        return topic


@dataclass(frozen=True, slots=True)
class TemplatePolicy:
    """Name remote topics by a template; without `{topic}` every selected topic merges into one.

    Args:
        template: text with `{topic}`, `{source}` and `{target}` in it.

    Raises:
        TopicNameError: an unknown placeholder, or text that no legal topic name holds.

    Example:
        >>> TemplatePolicy("all.{topic}").remote_topic("east", "central", "orders")
        'all.orders'
    """

    template: str

    def __post_init__(self) -> None:
        for name in _PLACEHOLDER.findall(self.template):
            if name not in _PLACEHOLDERS:
                raise TopicNameError(
                    f"template '{self.template}' has the unknown placeholder {{{name}}}",
                    remedy="known are {topic}, {source} and {target}",
                )
        # One legal letter in place of each placeholder: what is wrong then is wrong with the template's own text.
        if not is_legal_topic(_PLACEHOLDER.sub("x", self.template)):
            raise TopicNameError(
                f"template '{self.template}' makes illegal topic names",
                remedy="use letters, digits, . _ - and {topic}, {source}, {target}",
            )

    @property
    def tells_origin(self) -> bool:
        """Return False: a merged topic holds records of several sources."""
        return False

    @property
    def merges_topics(self) -> bool:
        """Return whether all topics of the flow share one remote topic."""
        return "{topic}" not in self.template

    def remote_topic(self, source: str, target: str, topic: str) -> str:
        """Return the template with its placeholders filled."""
        values = {"topic": topic, "source": source, "target": target}
        return check_topic(_PLACEHOLDER.sub(lambda match: values[match.group(1)], self.template))

    def remote_prefix(self, source: str, target: str, prefix: str) -> str | None:
        """Return the filled template if the topic's name ends it: `all.{topic}` keeps beginnings, `{topic}.copy` does not."""
        before, _, after = self.template.partition("{topic}")
        if after or "{topic}" not in self.template:
            return None
        values = {"source": source, "target": target}
        return _legal_or_none(_PLACEHOLDER.sub(lambda match: values[match.group(1)], before) + prefix)

    def topic_source(self, topic: str) -> str | None:  # noqa: ARG002 - the protocol's signature
        """Return None: the name does not tell."""
        return None

    def upstream_topic(self, topic: str) -> str | None:  # noqa: ARG002 - the protocol's signature
        """Return None: the name does not tell."""
        return None

    def original_topic(self, topic: str) -> str:
        """Return the same name: the template cannot be undone."""
        return topic


def original_topic(topic: str, *, separator: str = DEFAULT_SEPARATOR) -> str:
    """Return the name that a topic has at its origin, read from its name under the default policy.

    As MirrorMaker 2 reads it: every part before a separator is taken for a hop, also in `orders.v1`. Where topics keep
    their names, the headers of a record tell (`hops`).

    >>> original_topic("b.a.orders")
    'orders'
    """
    return DefaultPolicy(separator).original_topic(topic)


def is_cycle(policy: ReplicationPolicy, topic: str, target_alias: str) -> bool:
    """Return whether the topic has been on the target, as far as its name tells (`MirrorSourceConnector.isCycle`).

    >>> is_cycle(DefaultPolicy(), "west.east.orders", "east"), is_cycle(DefaultPolicy(), "west.orders", "east")
    (True, False)
    """
    while (source := policy.topic_source(topic)) is not None:
        if source == target_alias:
            return True
        upstream = policy.upstream_topic(topic)
        if upstream is None or upstream == topic:
            return False
        topic = upstream
    return False
