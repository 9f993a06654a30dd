"""Fail over: go on at the target, with every group where it was."""

from __future__ import annotations

from typing import Annotated

import typer

from mirrorlake.cli.command import Invocation, OneFlow, command

Groups = Annotated[
    list[str] | None, typer.Option("--group", help="This group only; may be given several times. All without it.")
]


@command()
def failover(
    cli: Invocation,
    flow: OneFlow,
    group: Groups = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be done, and what forbids it.")
    ] = False,
    unproven: Annotated[
        bool, typer.Option("--unproven", help="Place groups without proving that nothing is missing.")
    ] = False,
    fence_source: Annotated[
        str | None,
        typer.Option(
            "--fence-source", help="Keep producers off the old source: acl (deny to write) or topic (a topic setting)."
        ),
    ] = None,
) -> int:
    """Fail a flow over: freeze, drain, prove, place the groups, report; killed, it goes on when it is given again."""
    done = cli.mirror.failover(flow, groups=group, dry_run=dry_run, unproven=unproven, fence_source=fence_source)
    cli.answer(done)
    return 3 if done.refusals else 0
