"""Flows whose groups cannot be kept in step: where clusters mirror each other, and records cannot be told apart."""

from __future__ import annotations

from collections.abc import Iterable

from mirrorlake.config.schema import FlowConfig


def refused(flow: FlowConfig, all_flows: Iterable[FlowConfig]) -> str:
    """Say why groups of a flow cannot be kept in step; empty where they can. `all_flows` are all flows of the settings.

    Law A: what cannot be told apart is refused, not guessed.
    """
    if not flow.adds_hops:
        return ""
    mesh = [flow, *(each for each in all_flows if each.adds_hops and each.name != flow.name)]
    moved = sorted(each.name for each in mesh if each.placement.kind != "keep")
    doubling = sorted(each.name for each in mesh if each.target == flow.target and each.delivery != "exactly_once")
    if moved:
        return f"{', '.join(moved)} places records in other partitions: {flow.target}'s own are not told apart there"
    if doubling:
        return (
            f"{', '.join(doubling)} delivers at least once: {flow.target}'s own records are not told apart from copies"
        )
    return ""
