"""The command `groups`: where each consumer group goes on at the target."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from mirrorlake.cli.options import DEFAULT_CONF, Conf, Json, OneFlow
from mirrorlake.cli.output import Output

if TYPE_CHECKING:
    from mirrorlake.model.groups import GroupPosition


def groups(
    flow: OneFlow,
    conf: Conf = DEFAULT_CONF,
    apply: Annotated[bool, typer.Option("--apply", help="Set the positions of groups inactive on the target.")] = False,
    recorded: Annotated[
        bool, typer.Option("--recorded", help="Take positions from the lake: the source is lost.")
    ] = False,
    check: Annotated[bool, typer.Option("--check", help="Exit 1 when a group is to be moved or is held back.")] = False,
    as_json: Json = False,
) -> int:
    """Show where each consumer group would go on at the target and why some are held back; with --apply, move them."""
    from mirrorlake.mirror import load

    output = Output(as_json=as_json)
    mirror = load(conf)
    plan = mirror.apply_groups(flow, recorded=recorded) if apply else mirror.plan_groups(flow, recorded=recorded)
    output.document({"flow": flow, "applied": apply, "groups": [_row(position) for position in plan]})
    if mirror.config.flow(flow).source in mirror.config.lake_clusters:
        output.say(f"{flow}: nobody consumes from a lake cluster, so there are no groups to carry over")
        return 0
    output.show(plan)
    if apply:
        output.say(f"{len(plan.moves)} position(s) moved")
    return 1 if check and (plan.held or (plan.moves and not apply)) else 0


def _row(position: GroupPosition) -> dict[str, Any]:
    resume = position.resume
    return {
        "group": position.group,
        "topic": resume.source.topic,
        "generation": resume.source.generation,
        "partition": resume.source.partition,
        "upstream_offset": resume.upstream_offset,
        "remote_topic": resume.target.topic,
        "remote_partition": resume.target.partition,
        "downstream_offset": resume.downstream_offset,
        "target_offset": position.target_offset,
        "action": position.action,
        "reason": position.reason,
        "exact": resume.exact,
        "records_again": resume.records_again,
    }
