"""Target partitions that several source partitions feed: the flows that share them, and the offsets their ledgers cover.

Placement by key merges source partitions of one flow; a merged topic also merges flows.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from mirrorlake.config.schema import FlowConfig
from mirrorlake.kafka import ClusterAdmin, Committed, list_partitions, wait_until
from mirrorlake.lake import KnownTopic, Lake, SourceTopics
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.loops.routes import TopicPlace, ways_from

log = logging.getLogger(__name__)

# A commit takes milliseconds; a transaction whose sender died stays open until its time-out, a minute.
_STABLE_TIMEOUT_S = 10.0
# The places on the route from a cluster to the other one of a pair.
_PAIR = 2

Positions = Mapping[tuple[str, SourcePartition], Committed]
"""The commits of readers on one source, by reader and source partition."""

PositionsByFlow = Mapping[str, Positions]
"""The commits of readers on the sources of related flows, by flow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RelatedFlows:
    """A flow and those that share its remote topics, itself first; `topics` are each flow's source topics.

    If the flow writes hop headers, `hops` are all flows that do.
    """

    flows: tuple[FlowConfig, ...]
    topics: Mapping[str, Mapping[str, KnownTopic]]
    hops: tuple[FlowConfig, ...] = ()

    @property
    def back(self) -> tuple[FlowConfig, ...]:
        """The flows that lead from the target to the source and write hop headers."""
        flow = self.flows[0]
        return tuple(each for each in self.hops if (each.source, each.target) == (flow.target, flow.source))

    def way_back(self, topic: str) -> FlowConfig | None:
        """Return the flow that brings the remote topic of a topic back to the source."""
        remote = self.flows[0].remote_topic(topic)
        return next((each for each in self.back if each.carries(remote)), None)

    def ring(self, topic: str) -> str:
        """Return why groups of a topic are held back whose remote topic comes home over a third cluster, or ""."""
        flow = self.flows[0]
        start = TopicPlace(flow.target, flow.remote_topic(topic))
        route = ways_from(start, self.hops).get(TopicPlace(flow.source, topic), ())
        if len(route) <= _PAIR:
            return ""
        clusters = ", ".join(place.alias for place in route)
        return f"{clusters} mirror {topic} in a ring under one name: no map shows which records a group has read"

    @property
    def all_flows(self) -> tuple[FlowConfig, ...]:
        """The flows whose maps decide a reader's position."""
        return tuple({flow.name: flow for flow in (*self.flows, *self.back)}.values())

    def remotes(self) -> set[str]:
        """Return the first flow's remote topics with partitions that more than one source partition may feed."""
        flow = self.flows[0]
        mine = {flow.remote_topic(topic) for topic in self.topics[flow.name]}
        feeding = Counter(each.remote_topic(topic) for each in self.flows for topic in self.topics[each.name])
        return (
            mine if flow.placement.kind != "keep" or self.back else {remote for remote in mine if feeding[remote] > 1}
        )


def related_flows(lake: Lake, flow: FlowConfig, beside: Iterable[FlowConfig]) -> RelatedFlows:
    """Return the flows of `beside` that share a remote topic with a flow, or that lead back to its source."""
    beside = list(beside)
    known: dict[str, dict[str, KnownTopic]] = {}

    def topics_of(one: FlowConfig) -> dict[str, KnownTopic]:
        if one.source not in known:
            known[one.source] = SourceTopics(lake, one.source).load()
        return {name: topic for name, topic in known[one.source].items() if one.carries(name)}

    topics = {flow.name: topics_of(flow)}
    mine = {flow.remote_topic(topic) for topic in topics[flow.name]}
    flows = [flow]
    for other in beside:
        if other.target != flow.target or other.name == flow.name:
            continue
        found = topics_of(other)
        if mine & {other.remote_topic(topic) for topic in found}:
            flows.append(other)
            topics[other.name] = found
    hops = tuple(other for other in beside if other.adds_hops) if flow.adds_hops else ()
    related = RelatedFlows(flows=tuple(flows), topics=topics, hops=hops)
    return replace(related, topics=topics | {other.name: topics_of(other) for other in related.back})


def stable_ends(target: ClusterAdmin, remotes: Iterable[str], flows: Iterable[FlowConfig]) -> dict[TopicPartition, int]:
    """Return the downstream offsets up to which the flows' ledgers know every record of remote topics.

    Call this before reading the ledgers. A record below the last stable offset was committed, and so was the ledger
    record of its transaction, whose own marker may come a moment later and is waited for. The result is {} if a
    transaction stays open, or if a flow delivers at least once: its unfinished sends cannot be distinguished.
    """
    flows, there = list(flows), target.describe(remotes)
    if not there or any(flow.delivery != "exactly_once" for flow in flows):
        return {}
    stable = target.last_stable_offsets(list_partitions(there))
    ledgers = list_partitions(target.describe(flow.ledger_topic for flow in flows))
    written = target.high_watermarks(ledgers)

    def is_decided() -> bool:
        committed = target.last_stable_offsets(ledgers)
        return all(committed[lane] >= end for lane, end in written.items())

    if not wait_until(is_decided, timeout_s=_STABLE_TIMEOUT_S, interval_s=0.05):
        log.info("ledger.open_transaction flows=%s", ",".join(flow.name for flow in flows))
        return {}
    return stable
