"""Lag: status and lag."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Annotated, Any, Literal

import typer

from mirrorlake.cli.command import Flow, Invocation, command
from mirrorlake.errors import ClusterError, UsageError

By = Annotated[
    Literal["topic", "partition"], typer.Option("--by", help="One line a topic, or a partition with its positions.")
]


@command()
def status(
    cli: Invocation,
    flow: Flow = None,
    by: By = "topic",
) -> int:
    """Show verdict, lags, rates and what is proven of each flow."""
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
    known = mirror.lag if flow is None else mirror[flow].lag
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
    from mirrorlake.status import LagPage

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
