"""Flows that must write hop headers, and flows that share a remote topic without intent.

Names of the default policy show every hop. Under other policies two things can go wrong:

    a round trip      a ──orders──> b ──orders──> a                     records would go round for ever
    two routes        a ──orders──> b ──orders──> c,  a ──orders──> c   records would come to c twice

A header for each hop (`model/loops/hops.py`) prevents the round trip of two clusters; longer ones and two routes are
refused. Both are detected before any flow runs. Round trips are detected for certain (`model/loops/cycles.py`); two
routes by the names that the flows select, and by one or two sample names of each expression. The plan reports the
conflicts that only real topics show.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Literal, NamedTuple, Protocol

from mirrorlake.model.loops.cycles import FlowLike, round_trips
from mirrorlake.model.patterns import shape_of
from mirrorlake.model.policy import IdentityPolicy, TemplatePolicy, is_legal_topic

# A full mesh of default flows names more than n! topics; past this many, the plan checks real topics.
_MAX_PLACES = 2_000

_PREFIXED = "use policy: default on these flows: prefixed names (east.orders) show where a record has been"


class ProvenanceLike(FlowLike, Protocol):
    @property
    def provenance(self) -> Literal["auto", True, False]: ...

    def remote_topic(self, topic: str) -> str: ...


class TopicPlace(NamedTuple):
    alias: str
    topic: str


class Collision(NamedTuple):
    flow: str
    key: str
    problem: str
    remedy: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Survey:
    """How the flows of a file affect each other; `provenance` names the flows that write hop headers."""

    provenance: frozenset[str] = field(default_factory=frozenset)
    refusals: tuple[Collision, ...] = ()


def survey(flows: Sequence[ProvenanceLike]) -> Survey:
    """Return which flows write hop headers, and which settings are refused.

    A flow writes them if `provenance` is true, or if it is `auto` and records could go round. Round trips of two
    clusters are accepted if both flows are identity flows, or if every flow without the origin in its names has
    `provenance: true`.
    """
    trips = round_trips(flows)
    for flow in flows:
        if flow.name in trips:
            # Two clusters that mirror each other are judged by themselves, whatever else they mirror.
            between = [each for each in flows if {each.source, each.target} == {flow.source, flow.target}]
            trips[flow.name] = round_trips(between).get(flow.name, trips[flow.name])
    for flow in flows:
        if flow.name in trips and not _consents(flow, trips[flow.name]):
            return Survey(refusals=(_round_trip(trips[flow.name]),))
    wanted = {flow.name for flow in flows if flow.provenance is True} | trips.keys()
    refusals = [_required(flow, trips[flow.name]) for flow in flows if flow.name in trips and flow.provenance is False]
    # Of clusters that mirror each other each pair collides: one refusal tells it.
    refusals += _collisions(flows)[: 1 if trips else None]
    return Survey(provenance=frozenset(wanted), refusals=tuple(refusals))


def merges_sources(flow: FlowLike) -> bool:
    """Return whether the flow's template leaves out the source, so that several sources share a topic on purpose."""
    policy = flow.replication_policy
    return isinstance(policy, TemplatePolicy) and "{source}" not in policy.template


def arrival(flow: ProvenanceLike, topic: str) -> TopicPlace | None:
    """Return the remote topic of a flow for a topic, or None if the flow does not carry it."""
    if not flow.carries(topic):
        return None
    remote = flow.remote_topic(topic)
    return TopicPlace(flow.target, remote) if is_legal_topic(remote) else None


def unified(topic: str) -> str:
    """Return a topic's name in Kafka's metrics; Kafka refuses a second topic that shares it (`Topic.hasCollision`)."""
    return topic.replace(".", "_")


def _consents(flow: ProvenanceLike, way: Sequence[FlowLike]) -> bool:
    if _is_ring(way):
        return False
    if all(isinstance(hop.replication_policy, IdentityPolicy) for hop in way):
        return True
    blind = [hop for hop in way if not hop.replication_policy.tells_origin]
    return flow.provenance is not False and all(getattr(hop, "provenance", "auto") is True for hop in blind)


def _round_trip(way: Sequence[FlowLike]) -> Collision:
    names = [hop.name for hop in way]
    blind = ", ".join(hop.name for hop in way if not hop.replication_policy.tells_origin)
    remedy = f"use policy: default on these flows, or different topics, or provenance: true on {blind}"
    return Collision(names[0], "policy", _endless(way), _PREFIXED if _is_ring(way) else remedy)


def _is_ring(way: Sequence[FlowLike]) -> bool:
    return len({hop.source for hop in way}) > 2


def _endless(way: Sequence[FlowLike]) -> str:
    return f"records could be mirrored in an endless loop: {', '.join([*(hop.name for hop in way), way[0].name])}"


def _required(flow: ProvenanceLike, trip: Sequence[FlowLike]) -> Collision:
    return Collision(
        flow.name,
        "provenance",
        f"{_endless(trip)}; only a provenance header prevents it",
        "leave `provenance` out, or use policy: default on these flows",
    )


class _Step(NamedTuple):
    start: TopicPlace
    flow: ProvenanceLike
    end: TopicPlace


def _collisions(flows: Sequence[ProvenanceLike]) -> list[Collision]:
    """Return the pairs of flows that bring sample records into one remote topic without intent."""
    into = _follow_samples(flows)

    def upstream(place: TopicPlace) -> set[TopicPlace]:
        places, queue = {place}, [place]
        for reached in queue:
            starts = {step.start for step in into.get(reached, ())} - places
            places |= starts
            queue += starts
        return places

    found: dict[tuple[str, str], Collision] = {}
    for place, steps in into.items():
        for first, second in combinations(steps, 2):
            names = (first.flow.name, second.flow.name)
            if names[0] == names[1]:
                continue
            if not merges_sources(first.flow) or not merges_sources(second.flow):
                found.setdefault(names, _same_name(first, second))
            elif first.start != second.start and upstream(first.start) & upstream(second.start):
                found.setdefault(names, _twice(place, first, second))
    return list(found.values())


def _follow_samples(flows: Sequence[ProvenanceLike]) -> dict[TopicPlace, list[_Step]]:
    """Return the steps by which sample records come into each topic."""
    names = dict.fromkeys(name for flow in flows for name in _samples(flow))
    places = dict.fromkeys(TopicPlace(flow.source, name) for flow in flows for name in names if flow.carries(name))
    into: dict[TopicPlace, list[_Step]] = {}
    for place in (queue := list(places)):
        for flow in flows:
            end = arrival(flow, place.topic) if flow.source == place.alias else None
            if end is None:
                continue
            into.setdefault(end, []).append(_Step(place, flow, end))
            if end not in places and len(places) < _MAX_PLACES:
                places[end] = None
                queue.append(end)
    return into


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
    remedy = "use policy: default, or the same template without {source} on both if they are to merge"
    return Collision(second.flow.name, "policy", problem, remedy)


def _twice(place: TopicPlace, first: _Step, second: _Step) -> Collision:
    problem = (
        f"records could come to {place.topic} on {place.alias} twice, over {first.flow.name} and {second.flow.name}"
    )
    return Collision(second.flow.name, "topics", problem, "leave the topic out of one of them with exclude_topics")


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
