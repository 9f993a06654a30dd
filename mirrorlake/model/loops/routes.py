"""The routes of records between clusters: from their origin to every topic that flows with hop headers bring them to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from mirrorlake.model.flow import Directed
from mirrorlake.model.policy import is_legal_topic

# Names of the default policy spell out the route, so a full mesh of n clusters has more than n! topics. Past this many the
# search ends.
MAX_PLACES = 20_000


class TopicPlace(NamedTuple):
    alias: str
    topic: str


class RouteLike(Directed, Protocol):
    def remote_topic(self, topic: str) -> str: ...


def ways_from(origin: TopicPlace, flows: Sequence[RouteLike]) -> dict[TopicPlace, tuple[TopicPlace, ...]]:
    """Return the topics that the records of an origin reach over flows with hop headers, each with the whole route to it.

    Law: each topic is entered by one flow, and no route visits a cluster twice.
    """
    ways: dict[TopicPlace, tuple[TopicPlace, ...]] = {origin: (origin,)}
    queue = [origin]
    for place in queue:
        been = {passed.alias for passed in ways[place]}
        for flow in flows:
            there = arrival(flow, place.topic) if flow.source == place.alias and flow.target not in been else None
            if there is not None and there not in ways and len(ways) < MAX_PLACES:
                ways[there] = (*ways[place], there)
                queue.append(there)
    return ways


def arrival(flow: RouteLike, topic: str) -> TopicPlace | None:
    """Return the remote topic of a flow for a topic, or None if the flow does not carry it."""
    if not flow.carries(topic):
        return None
    remote = flow.remote_topic(topic)
    return TopicPlace(flow.target, remote) if is_legal_topic(remote) else None
