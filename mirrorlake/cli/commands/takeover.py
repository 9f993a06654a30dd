"""`mirrorlake takeover`: go on where a MirrorMaker 2 ended."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from mirrorlake.cli.options import DEFAULT_CONF, Conf, Json, OneFlow
from mirrorlake.cli.output import Output


def takeover(
    flow: OneFlow,
    conf: Conf = DEFAULT_CONF,
    apply: Annotated[bool, typer.Option("--apply", help="Carry it out; without it, only show the plan.")] = False,
    connector: Annotated[
        str, typer.Option("--connector", help="The source connector's name, on a Connect cluster.")
    ] = "MirrorSourceConnector",
    offsets_topic: Annotated[
        str | None,
        typer.Option("--offsets-topic", help="Connect's offsets topic; default: mm2-offsets.SOURCE.internal."),
    ] = None,
    connect_group: Annotated[
        str | None,
        typer.Option(
            "--connect-group", help="The workers' group; default: SOURCE-mm2; empty where Connect stays on without MM2."
        ),
    ] = None,
    trust_stored: Annotated[
        bool,
        typer.Option(
            "--trust-stored", help="Go on at MM2's stored offsets where the records on the target cannot tell."
        ),
    ] = False,
    as_json: Json = False,
) -> int:
    """Go on where a stopped MirrorMaker 2 ended: nothing copied again, nothing skipped."""
    from mirrorlake.mirror import load
    from mirrorlake.mm2.survey import OtherMirror

    output = Output(as_json=as_json)
    other = OtherMirror(connector=connector, offsets_topic=offsets_topic, group=connect_group)
    mirror = load(conf)
    plan = mirror.takeover(flow, other=other, trust_stored=trust_stored)
    applied = apply and not plan.refused
    if applied:
        mirror.apply_takeover(plan)
    output.document({**asdict(plan), "refused": plan.refused, "applied": applied})
    output.show(plan)
    if plan.refused:
        return 3
    done = f"taken over; next: mirrorlake run --flow '{flow}'" if applied else "nothing changed; --apply carries it out"
    output.say(f"{len(plan.partitions)} partition(s): {done}")
    return 0
