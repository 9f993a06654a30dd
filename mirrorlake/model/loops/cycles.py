"""Flow cycles that no replication policy can break.

A cycle of default-policy flows ends by itself: every hop is in the topic's name, so nothing returns to a cluster it
has been on. A flow whose policy does not show the origin (identity, template) breaks that. To find endless cycles,
the certain part of the names a flow selects (`Shape`) is renamed hop by hop and compared with the selection of the
next flow.

    east ──identity: orders──> central ──identity: orders──> east        refused: orders comes home as orders
    east ──identity: orders──> central ──identity: payments──> east      fine: the two never meet
    east ──template: all.{topic}──> central ──default: orders──> east    fine: all.orders is not orders
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from mirrorlake.model.flow import Directed
from mirrorlake.model.patterns import Shape, TopicPattern, shape_of
from mirrorlake.model.policy import (
    DefaultPolicy,
    IdentityPolicy,
    ReplicationPolicy,
    TemplatePolicy,
    is_cycle,
    is_legal_topic,
)

# A mesh of flows that all select everything has factorially many cycles; past this many steps the answer is
# "they may meet" without following names further.
_STEPS = 20_000


class FlowLike(Directed, Protocol):
    @property
    def topics(self) -> TopicPattern:
        """Return the flow's selection, before its exclusions."""

    @property
    def replication_policy(self) -> ReplicationPolicy: ...


def round_trips(flows: Sequence[FlowLike]) -> dict[str, tuple[FlowLike, ...]]:
    """Return each flow that a record could pass again and again, with a cycle that begins with it.

    Conservative: two regular expressions count as overlapping unless their certain beginnings differ. Literal names
    are followed exactly, exclusions included.

    Flows are in the order of travel by the name of the first one. Flows whose policy does not show the origin come first;
    the others are on a round trip only together with one of them.
    """
    leaving: dict[str, list[FlowLike]] = {}
    for flow in flows:
        leaving.setdefault(flow.source, []).append(flow)
    found: dict[str, tuple[FlowLike, ...]] = {}
    for flow in flows:
        if not flow.replication_policy.tells_origin and (way := _round_trip(flow, leaving, [_STEPS])):
            found[flow.name] = way
    if found:
        # One budget for all of them: a mesh of default flows has too many cycles to follow each.
        steps = [_STEPS]
        for flow in flows:
            if flow.replication_policy.tells_origin and (way := _round_trip(flow, leaving, steps)):
                found[flow.name] = way
    return found


def _round_trip(flow: FlowLike, leaving: dict[str, list[FlowLike]], steps: list[int]) -> tuple[FlowLike, ...] | None:
    way = _way_back(flow, leaving)
    if way is None:
        return None
    for expression in flow.topics.expressions:
        found = _follow(flow, shape_of(expression), (flow,), leaving, steps)
        if found is None and steps[0] <= 0:
            found = way
        if found is not None:
            return found
    return None


def _follow(
    first: FlowLike, shape: Shape, path: tuple[FlowLike, ...], leaving: dict[str, list[FlowLike]], steps: list[int]
) -> tuple[FlowLike, ...] | None:
    """Follow names of this shape through the last flow of the path and on; return the path if they reach the first flow."""
    steps[0] -= 1
    last = path[-1]
    if steps[0] <= 0 or not _passes(last, shape):
        return None
    renamed = _rename(last, shape)
    if renamed is None:
        return None
    for onward in leaving.get(last.target, ()):
        if onward is not first and onward in path:
            continue
        for expression in onward.topics.expressions:
            met = renamed.meet(shape_of(expression))
            if met is None:
                continue
            if onward is first:
                if _passes(first, met):
                    return path
                continue
            found = _follow(first, met, (*path, onward), leaving, steps)
            if found is not None:
                return found
    return None


def _passes(flow: FlowLike, shape: Shape) -> bool:
    if shape.literal is not None:
        return flow.carries(shape.literal)
    # The hops at the front of the name are certain even where its end is not.
    known = "".join(cell or "\0" for cell in shape.cells) + ("\0" if shape.open else "")
    return not is_cycle(flow.replication_policy, known, flow.target)


def _rename(flow: FlowLike, shape: Shape) -> Shape | None:
    """Return the shape of the names on the target, or None if the only name is not legal there."""
    policy = flow.replication_policy
    if shape.literal is not None:
        name = policy.remote_topic(flow.source, flow.target, shape.literal)
        return Shape(tuple(name), open=False) if is_legal_topic(name) else None
    if isinstance(policy, TemplatePolicy):
        template = policy.template.replace("{source}", flow.source).replace("{target}", flow.target)
        before, *rest = template.split("{topic}")
        if not rest:
            return Shape(tuple(before), open=False)
        if shape.open or len(rest) > 1:
            return Shape((*before, *shape.cells), open=True)
        return Shape((*before, *shape.cells, *rest[0]), open=False)
    if isinstance(policy, DefaultPolicy):
        return Shape((*flow.source, *policy.separator, *shape.cells), shape.open)
    if isinstance(policy, IdentityPolicy):
        return shape
    # A policy of another kind may make any name.
    return Shape((), open=True)


def _way_back(flow: FlowLike, leaving: dict[str, list[FlowLike]]) -> tuple[FlowLike, ...] | None:
    """Return the shortest cycle through the flow, whatever it selects, or None."""
    ways: list[tuple[FlowLike, ...]] = [(flow,)]
    seen = {flow.target}
    for way in ways:
        if way[-1].target == flow.source:
            return way
        for onward in leaving.get(way[-1].target, ()):
            if onward.target not in seen:
                seen.add(onward.target)
                ways.append((*way, onward))
    return None
