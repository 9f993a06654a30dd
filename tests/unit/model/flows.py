"""Flows as the laws of loops see them: a pair of clusters, a selection, a policy."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from mirrorlake.config.schema.selection import TopicMatcher
from mirrorlake.model.patterns import TopicPattern, parse_patterns
from mirrorlake.model.policy import DefaultPolicy, IdentityPolicy, ReplicationPolicy, TemplatePolicy, is_cycle

Provenance = Literal["auto", True, False]


@dataclass(frozen=True)
class Flow:
    name: str
    source: str
    target: str
    topics: TopicPattern
    replication_policy: ReplicationPolicy
    provenance: Provenance = "auto"
    exclude: TopicPattern = field(default_factory=TopicPattern)

    def carries(self, topic: str) -> bool:
        matcher = TopicMatcher(self.topics, self.exclude)
        return matcher.matches(topic) and not is_cycle(self.replication_policy, topic, self.target)

    def remote_topic(self, topic: str) -> str:
        return self.replication_policy.remote_topic(self.source, self.target, topic)


def flow(
    pair: str,
    selection: str = "t",
    policy: str = "identity",
    *,
    provenance: Provenance = "auto",
    exclude: str = "",
    name: str = "",
) -> Flow:
    """Make a flow of a pair as `a>b`."""
    source, target = pair.split(">")
    known: dict[str, ReplicationPolicy] = {"default": DefaultPolicy(), "identity": IdentityPolicy(source)}
    chosen, excluded = known.get(policy) or TemplatePolicy(policy), parse_patterns(exclude, required=False)
    name = name or f"{pair} {policy} {selection}"
    return Flow(name, source, target, parse_patterns(selection), chosen, provenance, excluded)
