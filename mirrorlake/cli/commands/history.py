"""`mirrorlake history`: what was at a time, what changed between two times, and the plan back."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime, timezone
from typing import Annotated

import typer

from mirrorlake.cli.options import DEFAULT_CONF, Conf, Json
from mirrorlake.cli.output import Output
from mirrorlake.errors import UsageError


def history(
    conf: Conf = DEFAULT_CONF,
    at: Annotated[
        str | None, typer.Option("--at", help="Show what was at this time, like 2026-01-01T00:00:00Z.")
    ] = None,
    start: Annotated[str | None, typer.Option("--from", help="Show what changed after this time.")] = None,
    end: Annotated[str | None, typer.Option("--to", help="… and up to this one; now without it.")] = None,
    back: Annotated[str | None, typer.Option("--back", help="Show the plan back to this time.")] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Carry the plan back out.")] = False,
    as_json: Json = False,
) -> int:
    """Show configurations, partitions, ACLs and group positions over time, and the plan back."""
    if sum(option is not None for option in (at, start, back)) != 1:
        raise UsageError(
            "one of --at, --from and --back is needed", remedy="mirrorlake history --from 2026-01-01T00:00:00Z"
        )
    if (apply and back is None) or (end is not None and start is None):
        raise UsageError("--apply needs --back, and --to needs --from", remedy="mirrorlake history --help")
    from mirrorlake.config.values import moment
    from mirrorlake.mirror import load

    times = {name: moment(text) for name, text in (("at", at), ("from", start), ("to", end), ("back", back)) if text}
    mirror, output = load(conf), Output(as_json=as_json)
    if "at" in times:
        state = mirror.history.at(times["at"])
        output.document(state.as_dict())
        output.show(state)
    elif "from" in times:
        changes = mirror.history.between(times["from"], times.get("to", datetime.now(timezone.utc)))
        output.document({"changes": [asdict(change) | {"at": change.at.isoformat()} for change in changes]})
        output.show(changes)
    else:
        plan = mirror.history.plan_back(times["back"])
        if apply:
            mirror.apply(plan=plan)
        output.document(asdict(plan) | {"applied": apply})
        output.show(plan)
        if plan:
            output.say(f"{len(plan)} change(s) {'applied' if apply else 'to apply with --apply'}")
    return 0
