"""Events: what happened to the mirror, from when to when."""

from __future__ import annotations

import sys
import threading
from datetime import datetime
from typing import Annotated

import typer

from mirrorlake.cli.command import Flow, Invocation, command
from mirrorlake.cli.stopping import run_until_signal

# The lake is read as often; a change is a few seconds old by then.
_FOLLOW_INTERVAL_S = 2.0


@command()
def events(
    cli: Invocation,
    since: Annotated[
        str, typer.Option("--since", help="Where the list begins: 1h, 03:30, '2026-11-22 03:30' (UTC).")
    ] = "24h",
    flow: Flow = None,
    follow: Annotated[
        bool, typer.Option("--follow", help="Then show events as they come, until SIGTERM; with --json one a line.")
    ] = False,
) -> int:
    """Show what happened, from when to when, by whom and why.

    Outages of clusters, pauses, parked streams, changes, failovers, proofs, losses.
    """
    if not follow:
        cli.answer(cli.mirror.events(since, flow=flow))
        return 0
    run_until_signal(lambda stop: _follow(cli, since, flow, stop))
    return 0


def _follow(cli: Invocation, since: str, flow: str | None, stop: threading.Event) -> None:
    from mirrorlake.status import EventFeed

    mirror = cli.mirror
    begin: datetime = mirror.events(since, flow=flow).start
    feed = EventFeed(lambda mark: mirror.events(mark, flow=flow), mark=begin)
    while not stop.is_set():
        for event in feed.news():
            # One document per line, since the stream has no end.
            cli.document(event)
            cli.say(str(event))
        sys.stdout.flush()
        stop.wait(_FOLLOW_INTERVAL_S)
