"""`mirrorlake rebuild`: the merged topics of one target at another, in the recorded order."""

from __future__ import annotations

from typing import Annotated

import typer

from mirrorlake.cli.options import DEFAULT_CONF, Conf, Json
from mirrorlake.cli.output import Output


def rebuild(
    like: Annotated[str, typer.Option("--like", help="The target whose order is recorded.")],
    target: Annotated[str, typer.Option("--target", help="The target that gets it.")],
    conf: Conf = DEFAULT_CONF,
    apply: Annotated[bool, typer.Option("--apply", help="Send it; without it, only show.")] = False,
    recorded: Annotated[
        bool, typer.Option("--recorded", help="Take the order from the lake alone: that target is lost.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Give a target the merged topics of another one in the order in which they stand there."""
    from mirrorlake.mirror import load

    output = Output(as_json=as_json)
    mirror = load(conf, display=output.display)
    plan = mirror.plan_rebuild(like=like, target=target, recorded=recorded)
    sent = mirror.apply_rebuild(plan) if apply else 0
    output.document({**plan.as_dict(), "applied": apply, "sent": sent})
    output.show(plan)
    output.say(
        f"{sent:,} record(s) sent; next: mirrorlake run" if apply else f"{plan.waiting:,} record(s) would be sent"
    )
    return 0
