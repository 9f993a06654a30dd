"""The journal of a flow's failovers, failbacks, cutovers and drills."""

from __future__ import annotations

from collections.abc import Iterable

from mirrorlake.config.schema import FlowConfig
from mirrorlake.context import Context
from mirrorlake.procedure import Journal, Operation

FAILOVER, FAILBACK, CUTOVER, DRILL = "failover", "failback", "cutover", "drill"
# The step of a failover that later operations ask for.
FREEZE = "freeze"


def open_journal(context: Context, flow: FlowConfig) -> Journal:
    commands = (FAILOVER, FAILBACK, CUTOVER, DRILL)
    return Journal(context.lake, commands, flow=flow.name, where=flow.target, now=context.now)


def failed_over(operations: Iterable[Operation]) -> Operation | None:
    """Return the completed failover that no failback has ended, or None."""
    held: Operation | None = None
    for one in operations:
        if one.is_done and one.command in (FAILOVER, FAILBACK):
            held = one if one.command == FAILOVER else None
    return held
