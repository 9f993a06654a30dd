"""Which flow brings a record to which cluster, so that it reaches each exactly once.

In a full mesh or a ring the same record could reach a cluster over several flows. Therefore all flows follow the same
tree: from a record's origin, breadth first, to every topic on every cluster that the flows reach. A topic belongs to
the flow that reaches it first in that tree, and no other flow brings the record to it.

    a ──> b          origin a, full mesh:  a->b and a->c forward it; b->c and c->b do not
    a ──> c          origin a, ring a->b->c->a:  a->b, then b->c; c->a does not, the record has been there

The tree depends on the settings alone, so flows in different processes agree on it without communication.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from mirrorlake.model.flow import Directed
from mirrorlake.model.policy import TopicNameError

# Names of the default policy spell out the route, so a full mesh of n clusters has more than n! topics. Past this many the
# tree ends; other records are only stopped before clusters they have been on.
MAX_PLACES = 20_000


class TopicPlace(NamedTuple):
    """A topic on a cluster."""

    alias: str
    topic: str


class RouteLike(Directed, Protocol):
    """The properties of a flow that the tree reads."""

    def remote_topic(self, topic: str) -> str:
        """Return the topic's name on the target."""


class Tree(NamedTuple):
    """The routes of the records of one origin.

    Attributes:
        clusters: by topic that the records reach, the clusters they have been on by then, its own included.
        parents: by topic except the origin, the topic that the records come from.
    """

    clusters: dict[TopicPlace, frozenset[str]]
    parents: dict[TopicPlace, TopicPlace]


def tree_from(origin: TopicPlace, flows: Iterable[RouteLike]) -> Tree:
    """Return the shortest routes from an origin; ties go to the smaller alias, then the flow's name.

    Law: each topic is entered by one flow, and no route visits a cluster twice.

    Args:
        origin: the topic that the records were produced to.
        flows: the flows that write hop headers.
    """
    leaving: dict[str, list[RouteLike]] = {}
    for flow in sorted(flows, key=lambda each: (each.target, each.name)):
        leaving.setdefault(flow.source, []).append(flow)
    been = {origin: frozenset({origin.alias})}
    parents: dict[TopicPlace, TopicPlace] = {}
    level = [origin]
    while level:
        following: list[TopicPlace] = []
        for place in sorted(level):
            for flow in leaving.get(place.alias, ()):
                there = None if flow.target in been[place] else arrival(flow, place.topic)
                if there is None or there in been or len(been) >= MAX_PLACES:
                    continue
                been[there] = been[place] | {there.alias}
                parents[there] = place
                following.append(there)
        level = following
    return Tree(been, parents)


def way(tree: Tree, place: TopicPlace) -> tuple[TopicPlace, ...]:
    """Return the route from the tree's origin to a topic, both included.

    Raises:
        KeyError: the records do not reach the topic.
    """
    found, steps = [place], tree.clusters[place]
    while place in tree.parents and len(found) <= len(steps):
        place = tree.parents[place]
        found.append(place)
    return tuple(reversed(found))


def arrival(flow: RouteLike, topic: str) -> TopicPlace | None:
    """Return the remote topic of a flow for a topic, or None if the flow does not carry it."""
    if not flow.carries(topic):
        return None
    try:
        return TopicPlace(flow.target, flow.remote_topic(topic))
    except TopicNameError:
        return None


def forwards(flow: RouteLike, topic: str, tree: Tree) -> bool:
    """Return whether a flow forwards the records of this origin from a topic of its source.

    The tree may know only one end of the flow: another mirror brought the records, or the flow is not in the file (a
    drill). Then only the clusters in the records' headers count.
    """
    place, there = TopicPlace(flow.source, topic), arrival(flow, topic)
    if there is None or place not in tree.clusters or there not in tree.clusters:
        return True
    return tree.parents.get(there) == place


def fingerprint(descriptions: Iterable[str]) -> str:
    """Return 8 hex digits that change with the set of flows.

    >>> fingerprint(["a->b", "b->a"]) == fingerprint(["b->a", "a->b"])
    True
    """
    return hashlib.sha256("\n".join(sorted(descriptions)).encode()).hexdigest()[:8]
