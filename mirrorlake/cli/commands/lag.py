"""`mirrorlake lag`: how far each hop is behind now or was over a time, and the SQL views of it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mirrorlake.cli.options import DEFAULT_CONF, Conf, Json
from mirrorlake.cli.output import Output
from mirrorlake.errors import UsageError
from mirrorlake.lag.verdict import Verdict

if TYPE_CHECKING:
    pass


def lag(
    conf: Conf = DEFAULT_CONF,
    flow: Annotated[str | None, typer.Option("--flow", help="The flow; all flows without it.")] = None,
    since: Annotated[
        str | None, typer.Option("--since", help="What was sampled since then, like 1h; a fresh look without it.")
    ] = None,
    views: Annotated[
        bool, typer.Option("--views", help="Create the SQL views lag, latency and rpo on a catalog.")
    ] = False,
    verdict: Annotated[
        bool, typer.Option("--verdict", help="Judge the newest samples by rule; exit 1 when one is worse than OK.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Show offset lag and time lag of each hop: source end, landed, republished, consumed by each group."""
    from mirrorlake.mirror import load

    mirror, output = load(conf), Output(as_json=as_json)
    told = mirror.lag if flow is None else mirror.lag_of(flow)
    if views:
        if not mirror.lake.is_catalog:
            raise UsageError(
                "the lake is a path, where views end with the session",
                remedy="mirror.create_views() in the notebook or the program that asks",
            )
        created = told.create_views()
        output.document({"views": created})
        output.say(f"created: {', '.join(created)}")
        return 0
    if verdict:
        judged = told.verdict()
        output.document(judged.as_dict())
        output.say(str(judged))
        return 0 if judged.verdict <= Verdict.OK and not judged.at_risk else 1
    frame = told.now() if since is None else told.over(since)
    rows = sorted(
        frame.collect(), key=lambda r: (r.flow, r.topic, r.generation, r.partition, _HOPS[r.hop], r.group_id or "")
    )
    output.document({"lag": [_document(row) for row in rows]})
    if not as_json:
        _show(output, rows)
    return 0


_HOPS = {"landed": 0, "republished": 1, "consumed": 2}


def _document(row: Any) -> dict[str, Any]:
    return {name: _utc(value) if isinstance(value, datetime) else value for name, value in row.asDict().items()}


def _utc(time: datetime) -> str:
    return time.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")


def _show(output: Output, rows: Iterable[Any]) -> None:
    """Print one line for each position: its last lag, and its worst."""
    found: dict[tuple[Any, ...], list[Any]] = {}
    for row in rows:
        place = f"{row.topic}{'' if row.generation == 1 else f'~{row.generation}'}-{row.partition}"
        found.setdefault((row.flow, place, row.hop, row.cluster, row.group_id or ""), []).append(row)
    columns = ["flow", "partition", "hop", "at", "group", "position", "end", "offset lag", "time lag ms", "most ms"]
    table = []
    for key, several in found.items():
        last = max(several, key=lambda row: row.observed_at)
        most = max((row.time_lag_ms for row in several if row.time_lag_ms is not None), default=None)
        table.append((*key, last.position, last.end_position, last.offset_lag, last.time_lag_ms, most))
    output.table("lag", columns, table)
    if any(row[-2] is None for row in table):
        output.say("–: not known; the records that wait are not landed yet, or a cluster did not answer")
