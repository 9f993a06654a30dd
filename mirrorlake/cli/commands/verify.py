"""Proofs and repairs: verify, logged runs, repair of a relay."""

from __future__ import annotations

import json
from datetime import datetime
from pathlib import Path
from typing import Annotated

import typer

from mirrorlake.cli.command import Flow, Invocation, Source, command
from mirrorlake.errors import UsageError

_COLUMNS = ("began_at", "name", "equal", "verified", "differences", "seconds", "records_per_second", "run_id")


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
def runs(
    cli: Invocation,
    kind: Annotated[
        str | None, typer.Option("--kind", help="verification, benchmark or drill; all without it.")
    ] = None,
    flow: Flow = None,
    newest: Annotated[int, typer.Option("--newest", min=1, help="How many.")] = 20,
) -> int:
    """Show verifications and benchmarks logged to MLflow.

    The newest first.
    """
    found = cli.mirror.runs(kind=kind, flow=flow, newest=newest)
    if cli.as_json:
        cli.document({"runs": json.loads(found.to_json(orient="records", date_format="iso"))})
        return 0
    shown = [name for name in _COLUMNS if name in found.columns]
    rows = [tuple(_cell(value) for value in row) for row in found[shown].itertuples(index=False)]
    cli.table("runs", [name.replace("_", " ") for name in shown], rows)
    if not rows:
        cli.say("no run yet; next: mirrorlake verify")
    return 0


def _cell(value: object) -> object:
    # pandas stores whole numbers as floats in a column with missing values.
    if isinstance(value, float):
        return None if value != value else int(value) if value == int(value) else round(value, 1)
    if isinstance(value, datetime):
        return f"{value:%Y-%m-%d %H:%M}Z"
    return value if isinstance(value, int) else str(value)


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
