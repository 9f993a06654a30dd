"""Which flow brings a record to which cluster, so that it comes to each exactly once (DESIGN 9, Loops).

In a full mesh or a ring the same record could come to a cluster over several flows. Every flow therefore follows one and
the same tree: from a record's origin, breadth first, to every place (a topic on a cluster) that the flows lead to.
A place belongs to the flow that comes to it first in that tree, and no other brings the record there.

    a ──> b          origin a, full mesh:  a->b and a->c forward it; b->c and c->b do not
    a ──> c          origin a, ring a->b->c->a:  a->b, then b->c; c->a does not, the record has been there

The tree depends on the settings alone, so flows that run in different processes agree on it without asking each other.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from typing import NamedTuple, Protocol

from mirrorlake.model.flow import Directed
from mirrorlake.model.policy import TopicNameError

# Names of the default policy tell the way, so a full mesh of n clusters has more than n! places. Past this many the tree
# ends, and what is not in it is only kept from clusters it has been on.
MAX_PLACES = 20_000


class TopicPlace(NamedTuple):
    """A topic on a cluster."""

    alias: str
    topic: str


class RouteLike(Directed, Protocol):
    """What the tree needs to know of a flow."""

    def remote_topic(self, topic: str) -> str:
        """Return the topic's name on the target."""


class Tree(NamedTuple):
    """The ways of the records of one origin.

    Attributes:
        clusters: of each place that the records come to, the clusters they have been on by then, its own included.
        parents: of each of these places but the first, the place that brings the records there.
    """

    clusters: dict[TopicPlace, frozenset[str]]
    parents: dict[TopicPlace, TopicPlace]


def tree_from(origin: TopicPlace, flows: Iterable[RouteLike]) -> Tree:
    """Return the shortest ways from a place to every other; ties go to the smaller alias, then the flow's name.

    Law: each place is entered by one flow, and no way comes to a cluster twice.

    Args:
        origin: where the records were produced.
        flows: the flows that tell each other the way by header.
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
    """Return the places on the way from the tree's origin to a place, both included.

    Raises:
        KeyError: the records do not come there.
    """
    found, steps = [place], tree.clusters[place]
    while place in tree.parents and len(found) <= len(steps):
        place = tree.parents[place]
        found.append(place)
    return tuple(reversed(found))


def arrival(flow: RouteLike, topic: str) -> TopicPlace | None:
    """Return where a flow brings the records of a topic, or None if it does not take them."""
    if not flow.carries(topic):
        return None
    try:
        return TopicPlace(flow.target, flow.remote_topic(topic))
    except TopicNameError:
        return None


def forwards(flow: RouteLike, topic: str, tree: Tree) -> bool:
    """Return whether a flow forwards records of this origin that it finds in a topic of its source.

    Where the tree knows one end of the flow only, because another mirror brought the records or because the flow is none of
    the file's (a drill), nothing but the clusters they have been on counts, which their headers tell.
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
