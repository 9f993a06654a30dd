"""Proofs and repairs: verify, repair of a relay."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mirrorlake.cli.command import Flow, Invocation, Source, command
from mirrorlake.errors import UsageError


@command()
def verify(
    cli: Invocation,
    flow: Flow = None,
    full: Annotated[bool, typer.Option("--full", help="Compare what is proven already, too.")] = False,
    since: Annotated[
        str | None, typer.Option("--since", help="Records from this time on: '2026-11-22 03:30' (UTC), -2h.")
    ] = None,
    until: Annotated[str | None, typer.Option("--until", help="Records before this time.")] = None,
    report: Annotated[
        Path | None,
        typer.Option("--report", help="Write what was proven as FILE.html and FILE.json, to be signed off."),
    ] = None,
    table: Annotated[
        str | None, typer.Option("--table", help="Compare this typed table with the relay, and nothing else.")
    ] = None,
    of: Annotated[
        str | None, typer.Option("--of", help="With --report: make the report of this verification again.")
    ] = None,
) -> int:
    """Compare source, relay and target; list differences.

    By count and by content. What was proven before is not read again.
    """
    if of is not None:
        if report is None:
            raise UsageError("--of names a verification whose report is made again", remedy="add --report FILE")
        again = cli.mirror.proof_report(of)
        again.write(report)
        cli.answer(again)
        return 0
    if table is not None:
        proof = cli.mirror.verify_table(table)
        cli.answer(proof)
        return 0 if proof.equal else 1
    found = cli.mirror.verify(flow, full=full, since=since, until=until)
    cli.show(found)
    if report is not None:
        cli.mirror.proof_report(found.verification).write(report)
    # Last: if the report cannot be written, its error is the one document.
    cli.document(found)
    return 0 if found.equal else 1


@command()
def repair(
    cli: Invocation,
    source: Source,
    check: Annotated[
        bool, typer.Option("--check", help="Only check; exit 1 if a file is broken or a record is stored twice.")
    ] = False,
) -> int:
    """Repair broken files and duplicate records of a relay.

    And of side tables; exit 1 if some are left.
    """
    done = cli.mirror.repair(source, check=check)
    cli.answer(done)
    return 1 if done.left else 0
