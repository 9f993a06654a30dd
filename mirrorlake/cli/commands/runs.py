"""The command `runs`: verifications and benchmarks that were logged, side by side."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Annotated

import typer

from mirrorlake.cli.options import DEFAULT_CONF, Conf, Json
from mirrorlake.cli.output import Output

_COLUMNS = ("began_at", "name", "equal", "verified", "differences", "seconds", "records_per_second", "run_id")


def runs(
    conf: Conf = DEFAULT_CONF,
    kind: Annotated[str | None, typer.Option("--kind", help="verification or benchmark; both without it.")] = None,
    flow: Annotated[str | None, typer.Option("--flow", help="The flow, e.g. 'east->central'.")] = None,
    newest: Annotated[int, typer.Option("--newest", min=1, help="How many.")] = 20,
    as_json: Json = False,
) -> int:
    """Show verifications and benchmarks that were logged to MLflow, newest first."""
    from mirrorlake.mirror import load

    output = Output(as_json=as_json)
    found = load(conf).runs(kind=kind, flow=flow, newest=newest)
    if as_json:
        output.document({"runs": json.loads(found.to_json(orient="records", date_format="iso"))})
        return 0
    shown = [name for name in _COLUMNS if name in found.columns]
    rows = [tuple(_cell(value) for value in row) for row in found[shown].itertuples(index=False)]
    output.table("runs", [name.replace("_", " ") for name in shown], rows)
    if not rows:
        output.say("no run yet; next: mirrorlake verify")
    return 0


def _cell(value: object) -> object:
    # pandas has no whole numbers beside missing ones.
    if isinstance(value, float):
        return None if value != value else int(value) if value == int(value) else round(value, 1)
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M}Z"
    return value if isinstance(value, int) else str(value)
