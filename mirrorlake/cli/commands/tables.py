"""Typed tables: list them, and write them."""

from __future__ import annotations

from functools import partial
from typing import Annotated

import typer

from mirrorlake.cli.command import Invocation, command
from mirrorlake.cli.stopping import run_until_signal


@command()
def tables(
    cli: Invocation,
    run: Annotated[bool, typer.Option("--run", help="Write the tables until Ctrl-C or SIGTERM.")] = False,
    once: Annotated[bool, typer.Option("--once", help="With --run: write the records so far and stop.")] = False,
    table: Annotated[
        str | None, typer.Option("--table", help="This table only, with its columns and newest rows.")
    ] = None,
    rebuild: Annotated[str | None, typer.Option("--rebuild", help="Build this table again from the relay.")] = None,
    apply: Annotated[bool, typer.Option("--apply", help="Carry it out; without it, only show the plan.")] = False,
) -> int:
    """List the typed tables, or write them with --run.

    A running mirror writes them, too.
    """
    mirror = cli.mirror
    if rebuild is not None:
        cli.answer(mirror.rebuild_table(rebuild, apply=apply))
        return 0
    if not run:
        cli.answer(mirror.tables() if table is None else mirror.table(table))
        return 0
    done = run_until_signal(
        lambda stop: mirror.keep_tables(table, once=once, stop=stop),
        note=partial(cli.line, "stop"),
        describe_progress=lambda: "",
        leave=lambda: cli.document({"tables": [], "interrupted": True}),
    )
    cli.document({"tables": done})
    for one in done:
        cli.show(one)
    return 0
