"""Flows that must write hop headers, and flows that share a remote topic without intent.

Names of the default policy show every hop. Under other policies two things can go wrong, and a header for each hop
(`model/loops/hops.py`) prevents both:

    a round trip      a ──orders──> b ──orders──> a                     records would go round for ever
    two routes        a ──orders──> b ──orders──> c,  a ──orders──> c   records would come to c twice

Both are detected before any flow runs. Round trips are detected for certain (`model/loops/cycles.py`); two routes and
collisions by the names that the flows select, and by one or two sample names of each expression. The plan reports the
conflicts that only real topics show.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, Protocol

from mirrorlake.model.loops.cycles import FlowLike, round_trips
from mirrorlake.model.loops.routes import RouteLike, TopicPlace, arrival
from mirrorlake.model.patterns import shape_of
from mirrorlake.model.policy import IdentityPolicy, TemplatePolicy, is_legal_topic

# A full mesh of default flows names more than n! topics; past this many, the plan checks real topics.
_MAX_PLACES = 2_000


class ProvenanceLike(FlowLike, RouteLike, Protocol):
    """A flow and whether its settings make it write hop headers."""

    @property
    def provenance(self) -> Literal["auto", True, False]:
        """Return the setting."""


class Collision(NamedTuple):
    """Why the settings of a flow are refused.

    Attributes:
        flow: its name.
        key: the setting to change.
        problem: what would happen.
        remedy: what to change.
    """

    flow: str
    key: str
    problem: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """How the flows of a file affect each other.

    Attributes:
        provenance: names of the flows that write hop headers.
        refusals: why the file cannot be used.
    """

    provenance: frozenset[str] = field(default_factory=frozenset)
    refusals: tuple[Collision, ...] = ()


def survey(flows: Sequence[ProvenanceLike]) -> Survey:
    """Return which flows write hop headers, and which settings are refused.

    A flow writes them if `provenance` is true, or if it is `auto` and records could go round or arrive over two
    routes. Round trips are accepted if all their flows are identity flows, or if every flow without the origin in its
    names has `provenance: true`.
    """
    trips = round_trips(flows)
    for flow in flows:
        if flow.name in trips and not _consents(flow, trips[flow.name]):
            return Survey(refusals=(_round_trip(trips[flow.name]),))
    meetings = _Meetings(flows)
    wanted = {flow.name for flow in flows if flow.provenance is True} | trips.keys()
    twice: dict[str, TopicPlace] = {}
    for place in meetings.shared():
        for name in meetings.doubled(place):
            twice.setdefault(name, place)
    wanted |= twice.keys()
    refusals = [
        _required(flow, trips.get(flow.name), twice.get(flow.name))
        for flow in flows
        if flow.name in wanted and flow.provenance is False
    ]
    refusals += meetings.collisions(wanted)
    return Survey(provenance=frozenset(wanted), refusals=tuple(refusals))


def intended(first: RouteLike, second: RouteLike, *, merging: Iterable[str], provenance: Iterable[str]) -> bool:
    """Return whether two flows may share a remote topic: both merge by template, or both write hop headers.

    Args:
        first: a flow.
        second: another flow into the same target.
        merging: names of the flows that merge on purpose (`merges_sources`).
        provenance: names of the flows that write hop headers.
    """
    pair = {first.name, second.name}
    return pair <= set(merging) or (first.source != second.source and pair <= set(provenance))


def merges_sources(flow: FlowLike) -> bool:
    """Return whether the flow's template leaves out the source, so that several sources share a topic on purpose."""
    policy = flow.replication_policy
    return isinstance(policy, TemplatePolicy) and "{source}" not in policy.template


def collide(first: str, second: str) -> bool:
    """Return whether Kafka's metrics treat two different names as one, so that Kafka refuses the second topic.

    `org.apache.kafka.common.internals.Topic.hasCollision`.

    >>> collide("a.b", "a_b"), collide("a.b", "a.b")
    (True, False)
    """
    return first != second and unified(first) == unified(second)


def unified(topic: str) -> str:
    """Return a topic's name in Kafka's metrics; topics that share it collide.

    >>> unified("a.b")
    'a_b'
    """
    return topic.replace(".", "_")


def _consents(flow: ProvenanceLike, way: Sequence[FlowLike]) -> bool:
    if all(isinstance(hop.replication_policy, IdentityPolicy) for hop in way):
        return True
    blind = [hop for hop in way if not hop.replication_policy.tells_origin]
    return flow.provenance is not False and all(getattr(hop, "provenance", "auto") is True for hop in blind)


def _round_trip(way: Sequence[FlowLike]) -> Collision:
    names = [hop.name for hop in way]
    blind = ", ".join(hop.name for hop in way if not hop.replication_policy.tells_origin)
    return Collision(
        names[0],
        "policy",
        f"records could be mirrored in an endless loop: {', '.join((*names, names[0]))}",
        f"use policy: default on these flows, or different topics, or provenance: true on {blind}",
    )


def _required(flow: ProvenanceLike, trip: Sequence[FlowLike] | None, place: TopicPlace | None) -> Collision:
    if trip is not None:
        what = f"records could be mirrored in an endless loop: {', '.join([*(hop.name for hop in trip), trip[0].name])}"
    else:
        what = f"records could come to {place.topic} on {place.alias} twice" if place else "records could come twice"
    return Collision(
        flow.name,
        "provenance",
        f"{what}; only a provenance header prevents it",
        "leave `provenance` out, or use policy: default on these flows",
    )


class _Step(NamedTuple):
    start: TopicPlace
    flow: ProvenanceLike
    end: TopicPlace


class _Meetings:
    """Which topics sample records reach, over which flows."""

    def __init__(self, flows: Sequence[ProvenanceLike]) -> None:
        self._flows = flows
        self._merging = {flow.name for flow in flows if merges_sources(flow)}
        names = dict.fromkeys(name for flow in flows for name in _samples(flow))
        # Only topics that a flow names literally are certain to exist.
        self._named = {
            TopicPlace(flow.source, name)
            for flow in flows
            for name in (shape_of(expression).meant for expression in flow.topics.expressions)
            if name is not None and flow.carries(name)
        }
        self._into: dict[TopicPlace, list[_Step]] = {}
        ways = [TopicPlace(flow.source, name) for flow in flows for name in names if flow.carries(name)]
        seen = set(ways)
        for place in (ways := list(dict.fromkeys(ways))):
            for flow in flows:
                end = arrival(flow, place.topic) if flow.source == place.alias else None
                if end is None:
                    continue
                self._into.setdefault(end, []).append(_Step(place, flow, end))
                if place in self._named:
                    self._named.add(end)
                if end not in seen and len(ways) < _MAX_PLACES:
                    seen.add(end)
                    ways.append(end)

    def shared(self) -> list[TopicPlace]:
        """Return the topics that several flows write."""
        return [place for place, steps in self._into.items() if len({step.flow.name for step in steps}) > 1]

    def doubled(self, place: TopicPlace) -> set[str]:
        """Return the flows that together bring records of one origin to a topic over two routes."""
        steps = self._into[place]
        upstream = [self._upstream(step.start) for step in steps]
        found: set[str] = set()
        for index, first in enumerate(steps):
            for other, second in enumerate(steps[index + 1 :], index + 1):
                if first.start != second.start and upstream[index][0] & upstream[other][0]:
                    found |= {first.flow.name, second.flow.name} | upstream[index][1] | upstream[other][1]
        return found

    def _upstream(self, place: TopicPlace) -> tuple[set[TopicPlace], set[str]]:
        """Return the topics upstream of a topic, itself included, and the flows between them."""
        places, flows, queue = {place}, set[str](), [place]
        for there in queue:
            for step in self._into.get(there, ()):
                flows.add(step.flow.name)
                if step.start not in places:
                    places.add(step.start)
                    queue.append(step.start)
        return places, flows

    def collisions(self, provenance: Iterable[str]) -> list[Collision]:
        """Return the pairs of flows that share a remote topic without intent, and names that Kafka treats as one."""
        found: dict[tuple[str, str], Collision] = {}
        told = set(provenance)
        for place in self.shared():
            steps = self._into[place]
            for index, first in enumerate(steps):
                for second in steps[index + 1 :]:
                    if first.flow.name != second.flow.name and not intended(
                        first.flow, second.flow, merging=self._merging, provenance=told
                    ):
                        found.setdefault((first.flow.name, second.flow.name), _same_name(first, second))
        known: dict[tuple[str, str], TopicPlace] = {}
        # Remote topics first: Kafka itself refuses the second of two such names on a source.
        for place in sorted(self._named, key=lambda each: (each not in self._into, each)):
            other = known.setdefault((place.alias, unified(place.topic)), place)
            if other in self._into and collide(other.topic, place.topic):
                refusal = self._alike(other, place)
                found.setdefault((refusal.flow, refusal.problem), refusal)
        return list(found.values())

    def _alike(self, first: TopicPlace, second: TopicPlace) -> Collision:
        steps = [self._into[place][0] for place in (first, second) if place in self._into]
        names = " and ".join(dict.fromkeys(step.flow.name for step in steps))
        return Collision(
            steps[-1].flow.name,
            "topics",
            f"{first.topic} and {second.topic} on {first.alias}, by {names}, differ in . and _ only; Kafka treats them as one "
            "in its metrics and refuses the second",
            "leave one of them out, or give it another name by a template",
        )


def _same_name(first: _Step, second: _Step) -> Collision:
    where = f"{first.end.topic} on {first.end.alias}"
    if first.start == second.start:
        problem = (
            f"{first.flow.name} and {second.flow.name} both bring {first.start.topic} from {first.start.alias} to {where}, so "
            "its records would arrive twice"
        )
        return Collision(second.flow.name, "topics", problem, "leave the topic out of one of them with exclude_topics")
    problem = (
        f"{first.flow.name} ({first.start.topic}) and {second.flow.name} ({second.start.topic}) both write {where} without "
        "saying that they merge"
    )
    remedy = "use policy: default, the same template without {source} on both if they are to merge"
    if first.start.alias != second.start.alias:
        remedy += ", or provenance: true on both"
    return Collision(second.flow.name, "policy", problem, remedy)


def _samples(flow: FlowLike) -> list[str]:
    """Return topic names that the flow selects: its literal names, and the certain beginning of each expression."""
    found: list[str] = []
    for expression in flow.topics.expressions:
        shape = shape_of(expression)
        if shape.meant is not None:
            found.append(shape.meant)
            continue
        known = "".join(shape.cells[: shape.cells.index(None)] if None in shape.cells else shape.cells)  # type: ignore[arg-type]
        found += [known, f"{known}a"]
    return [name for name in found if is_legal_topic(name) and flow.carries(name)]
