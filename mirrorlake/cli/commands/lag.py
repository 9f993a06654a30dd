"""Lag: status and lag."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

from mirrorlake.cli.command import Flow, Invocation, command
from mirrorlake.errors import ClusterError, UsageError
from mirrorlake.render import plural

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
        typer.Option("--since", help="The longest lags since then: -1h, 03:30, '2026-11-22 03:30' (UTC); not of now."),
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
    by: By = "topic",
) -> int:
    """Judge how far each hop of each topic lags, and say why.

    Exit code 1 for a finding on the mirror's own hops or its typed tables: a verdict from PAUSED to
    REWIND, what retention overtakes, a missed objective. The hops lead from the source's end: landed,
    republished, consumed by each group; in_table for typed tables.
    """
    mirror = cli.mirror
    from mirrorlake.status import hop_name, to_timedelta

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
        if since is not None:
            raise UsageError("--at excludes --since", remedy="mirrorlake lag --at 3h")
        lost = known.loss_at(at).rows()
        cli.document({"flows": list(map(vars, lost))})
        cli.table(
            f"had the sources died then ({at})",
            ("flow", "records lost", "age of the oldest", "sampled at"),
            [(one.flow, one.records, to_timedelta(one.data_ms), one.observed_at) for one in lost],
        )
        return 0
    if since is not None:
        if cli.as_json:
            cli.document({"lag": list(map(vars, known.rows(since)))})
            return 0
        found = known.longest(since, by=by).rows()
        if not found:
            cli.say("nothing was sampled since then, so nothing is known; next: mirrorlake run")
            return 0
        cli.table(
            f"the longest lags since {since}",
            ("flow", by, "hop", "offset lag", "time lag", "not known in"),
            [
                (
                    one.flow,
                    one.place,
                    hop_name(one),
                    one.offset_lag,
                    to_timedelta(one.time_lag_ms),
                    plural(one.unknown, "sample") if one.unknown else None,
                )
                for one in found
            ],
            least=("flow", "offset lag"),
        )
        return 0
    judged = known.verdict().by(by)
    cli.document(judged)
    # As many rows of a table as fit a page.
    cli.show(judged, rows=24 if by == "topic" else None)
    return 0 if judged.is_fine else 1
