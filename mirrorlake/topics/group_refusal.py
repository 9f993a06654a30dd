"""Refuse group sync where clusters mirror each other and own records cannot be distinguished from copies."""

from __future__ import annotations

from collections.abc import Iterable

from mirrorlake.config.schema import FlowConfig


def refused(flow: FlowConfig, all_flows: Iterable[FlowConfig]) -> str:
    """Return why the groups of a flow cannot be synced, or "". `all_flows` are all flows of the settings.

    Law A: positions that cannot be determined are refused, not guessed.
    """
    if not flow.adds_hops:
        return ""
    mesh = [flow, *(each for each in all_flows if each.adds_hops and each.name != flow.name)]
    moved = sorted(each.name for each in mesh if each.placement.kind != "keep")
    doubling = sorted(each.name for each in mesh if each.target == flow.target and each.delivery != "exactly_once")
    if moved:
        return f"{', '.join(moved)} places records in other partitions, where {flow.target}'s own records cannot be recognized"
    if doubling:
        return (
            f"{', '.join(doubling)} delivers at least once, so {flow.target}'s own records cannot be told from copies"
        )
    return ""
