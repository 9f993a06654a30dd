"""Fail over and back: failover, failback, cutover, drill."""

from __future__ import annotations

from typing import Annotated

import typer

from mirrorlake.cli.command import Invocation, OneFlow, command

Groups = Annotated[
    list[str] | None, typer.Option("--group", help="This group only; may be given several times. All without it.")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan and its refusals; change nothing.")]
Unproven = Annotated[bool, typer.Option("--unproven", help="Place groups without proving that nothing is missing.")]


@command()
def failover(
    cli: Invocation,
    flow: OneFlow,
    group: Groups = None,
    dry_run: DryRun = False,
    unproven: Unproven = False,
) -> int:
    """Continue at the target when the source is lost.

    Freezes, drains, verifies, moves the groups and reports. Repeated after an interruption, it resumes.
    """
    done = cli.mirror.failover(flow, groups=group, dry_run=dry_run, unproven=unproven)
    cli.answer(done)
    return 3 if done.refusals else 0


@command()
def failback(
    cli: Invocation,
    flow: OneFlow,
    tail: Annotated[
        str | None,
        typer.Option(
            "--tail",
            help="What to do with the divergent tail, which never arrived: restore (send them), keep, or drop (groups skip them).",
        ),
    ] = None,
    group: Groups = None,
    dry_run: DryRun = False,
    unproven: Unproven = False,
    leave: Annotated[
        list[str] | None,
        typer.Option("--leave", help="A topic on the target whose records written since the failover stay there."),
    ] = None,
) -> int:
    """Return to the source with the records written since.

    Copies newer records to the source, moves the groups back, and runs the flow again. Repeated, it resumes.
    """
    done = cli.mirror.failback(flow, tail=tail, groups=group, leave=leave or (), dry_run=dry_run, unproven=unproven)
    cli.answer(done)
    return 3 if done.refusals else 0


@command()
def cutover(
    cli: Invocation,
    flow: OneFlow,
    commit: Annotated[
        bool, typer.Option("--commit", help="Finish when every step is done, and pause the flow.")
    ] = False,
    back: Annotated[
        bool, typer.Option("--back", help="Move the consumers back to the source, each to its exact position.")
    ] = False,
) -> int:
    """Move topics, consumers and producers by a checklist.

    Exit 1 while a step is open.
    """
    done = cli.mirror.cutover(flow, commit=commit, back=back)
    cli.answer(done)
    return 1 if done.state == "open" else 0


@command()
def drill(
    cli: Invocation,
    flow: OneFlow,
    into: Annotated[
        str | None,
        typer.Option("--into", help="A cluster of the file that no flow uses; a sandbox of this machine without it."),
    ] = None,
) -> int:
    """Rehearse a failover into a scratch cluster.

    Reads the relay while the mirror runs. Exit 1 if an objective is missed.
    """
    done = cli.mirror.drill(flow, into=into)
    cli.answer(done)
    return 0 if done.passed else 1
