"""Lag: status, lag, sample, report."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from mirrorlake.cli.command import Flow, Invocation, command
from mirrorlake.cli.output import Output
from mirrorlake.cli.stopping import run_until_signal
from mirrorlake.errors import ClusterError, UsageError

if TYPE_CHECKING:
    from mirrorlake.lag import PositionSnapshot

_HOPS = {"landed": 0, "republished": 1, "consumed": 2}


@command()
def status(
    cli: Invocation,
    flow: Flow = None,
    by: Annotated[
        Literal["topic", "partition"], typer.Option("--by", help="One line a topic, or a partition with its positions.")
    ] = "topic",
) -> int:
    """Show verdict, lags, rates and what is proven of each flow, by topic or by partition."""
    found = cli.mirror.status(flow).by(by)
    cli.answer(found)
    if not found.is_whole:
        return ClusterError.exit_code
    return int(any(one.parked for one in found.values()))


@command()
def lag(
    cli: Invocation,
    flow: Flow = None,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            help="Show the samples since then: -1h, 03:30, '2026-11-22 03:30' (UTC); a new sample without it.",
        ),
    ] = None,
    at: Annotated[
        str | None,
        typer.Option(
            "--at", help="What a loss of the sources at this time would have lost: -3h, 'yesterday 14:00' (UTC)."
        ),
    ] = None,
    views: Annotated[
        bool, typer.Option("--views", help="Create the SQL views lag, latency and rpo on a catalog.")
    ] = False,
    verdict: Annotated[
        bool, typer.Option("--verdict", help="Judge the newest samples by rule; exit 1 if one is worse than OK.")
    ] = False,
) -> int:
    """Show offset lag and time lag of each hop: source end, landed, republished, consumed by each group."""
    mirror = cli.mirror
    known = mirror.lag if flow is None else mirror.lag_of(flow)
    if views:
        if not mirror.lake.is_catalog:
            raise UsageError(
                "the lake is a path, where views end with the session",
                remedy="mirror.create_views() in the notebook or the program that asks",
            )
        created = known.create_views()
        cli.document({"views": created})
        cli.say(f"created: {', '.join(created)}")
        return 0
    if at is not None:
        if since is not None or verdict:
            raise UsageError("--at excludes --since and --verdict", remedy="mirrorlake lag --at 3h")
        cli.answer(known.loss_at(at))
        return 0
    if verdict:
        judged = known.verdict()
        cli.answer(judged)
        return 0 if judged.is_fine else 1
    rows = sorted(
        known.rows(since), key=lambda r: (r.flow, r.topic, r.generation, r.partition, _HOPS[r.hop], r.group_id or "")
    )
    cli.document({"lag": [_document(row) for row in rows]})
    if not cli.as_json:
        _show(cli, rows)
    return 0


def _document(row: Any) -> dict[str, Any]:
    return {name: _utc(value) if isinstance(value, datetime) else value for name, value in vars(row).items()}


def _utc(time: datetime) -> str:
    return time.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")


def _show(output: Output, rows: Iterable[Any]) -> None:
    """Print one line per position, with its last and its worst lag."""
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
    if not table:
        output.say(
            "no position is known yet; next: mirrorlake run, and mirrorlake doctor where a cluster does not answer"
        )
        return
    output.table("lag", columns, table, least=("most ms", "end", "position"))
    if any(row[-2] is None for row in table):
        output.say("–: not known; the records that wait are not landed yet, or a cluster did not answer")


@command()
def sample(
    cli: Invocation,
    once: Annotated[
        bool, typer.Option("--once", help="Sample once; without it, until SIGTERM, with --json one document a line.")
    ] = False,
    every: Annotated[
        str | None, typer.Option("--every", help="Time between two samples, such as 30s; the settings' without it.")
    ] = None,
) -> int:
    """Write positions of all clusters, groups and flows to the lake where they have changed, for lag over time."""
    if once and every is not None:
        raise UsageError("--every and --once exclude each other", remedy="mirrorlake sample --every 30s")
    mirror, failed = cli.mirror, [0]

    def tell(seen: PositionSnapshot) -> None:
        failed[0] = len(seen.unanswered)
        cli.document(as_document(seen))
        cli.say(str(seen))
        sys.stdout.flush()

    run_until_signal(lambda stop: mirror.sample(once=once, every=every, stop=stop, tell=tell), note=cli.note)
    return 4 if once and failed[0] else 0


def as_document(seen: PositionSnapshot) -> dict[str, object]:
    """Return a sample as its `--json` document, with each subject's number of positions."""
    columns = ("subject", "name", "changed", "complete", "took_ms", "error")
    return {
        "observed_at": seen.observed_at,
        "changed": seen.changed,
        "looks": [
            {**{name: getattr(look, name) for name in columns}, "positions": len(look.positions)} for look in seen.looks
        ],
    }


@command()
def report(
    cli: Invocation,
    out: Annotated[Path, typer.Option("--out", help="The file to write; an existing one is replaced.")] = Path(
        "report.html"
    ),
    since: Annotated[
        str, typer.Option("--since", help="Where the page begins: -24h, '2026-11-22 03:30' (UTC).")
    ] = "24h",
    flow: Flow = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare source, relay and target first, as `mirrorlake verify` does.")
    ] = False,
) -> int:
    """Write a report on lag, latency, RPO and verdicts: one HTML file that needs no network and no script."""
    found = cli.mirror.report(since=since, flow=flow, verify=verify)
    path = found.write(out)
    cli.document(found.as_dict() | {"path": str(path)})
    cli.say(f"{found}\nwritten to {path}")
    return 0 if found.verdict.is_fine and all(one.equal for one in found.verifications) else 1
