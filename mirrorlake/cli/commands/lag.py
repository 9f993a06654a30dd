"""Lag: status, lag, sample."""

from __future__ import annotations

import sys
from datetime import datetime, timezone
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from mirrorlake.cli.command import Flow, Invocation, command
from mirrorlake.cli.stopping import run_until_signal
from mirrorlake.errors import ClusterError, UsageError

if TYPE_CHECKING:
    from mirrorlake.lag import PositionSnapshot

By = Annotated[
    Literal["topic", "partition"], typer.Option("--by", help="One line a topic, or a partition with its positions.")
]


@command()
def status(
    cli: Invocation,
    flow: Flow = None,
    by: By = "topic",
    watch: Annotated[
        bool, typer.Option("--watch", help="Show flows, lags and the last events every few seconds; q or Ctrl-C ends.")
    ] = False,
    every: Annotated[str, typer.Option("--every", help="Time between two looks of --watch.")] = "5s",
) -> int:
    """Show verdict, lags, rates and what is proven of each flow."""
    if watch:
        from mirrorlake.cli.watch import StatusPage
        from mirrorlake.cli.watch import watch as show
        from mirrorlake.config import length_of

        page, every_s = StatusPage(cli.mirror, flow), length_of(every).total_seconds()
        run_until_signal(lambda stop: show(cli, page, every_s=every_s, stop=stop))
        return 0
    found = cli.mirror.status(flow).by(by)
    cli.answer(found)
    if not found.is_whole:
        return ClusterError.exit_code
    is_parked = any(one.parked for one in found.values()) or any(one.parked for one in found.tables)
    return int(is_parked)


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
    by: By = "topic",
) -> int:
    """Show how far each hop of each topic lags, and why.

    The hops lead from the source's end: landed, republished, consumed by each group; in_table for typed
    tables.
    """
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
        judged = known.verdict().by(by)
        cli.document(judged)
        cli.show(judged, rows=_page_rows(by))
        return 0 if judged.is_fine else 1
    from mirrorlake.lag import LagPage

    # Samples have no tables: how these stand is read now.
    tables = mirror.tables().tables if flow is None and since is None else ()
    page = LagPage(known.rows(since), by=by, tables=tables)
    cli.document({"lag": [_document(row) for row in page.rows], **({"tables": [*tables]} if tables else {})})
    cli.show(page, rows=_page_rows(by))
    return 0


def _page_rows(by: str) -> int | None:
    """Return the rows of a table that fit a page, or None for all."""
    return 24 if by == "topic" else None


def _document(row: Any) -> dict[str, Any]:
    return {name: _utc(value) if isinstance(value, datetime) else value for name, value in vars(row).items()}


def _utc(time: datetime) -> str:
    return time.astimezone(timezone.utc).isoformat().replace("+00:00", "Z")


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
    """Write positions to the lake where they changed.

    The positions of all clusters, groups and flows, for lag over time.
    """
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
