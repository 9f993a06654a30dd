"""Settings: plan, apply, doctor, rules; and from MirrorMaker 2, import-mm2 and takeover."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mirrorlake.cli.command import Flow, Invocation, Json, OneFlow, app, command
from mirrorlake.cli.help_groups import find_group
from mirrorlake.cli.output import Output
from mirrorlake.errors import ConfigError, UsageError
from mirrorlake.render import document, plural


@command()
def plan(
    cli: Invocation,
    flow: Flow = None,
    check: Annotated[bool, typer.Option("--check", help="Exit 1 if there is something to change.")] = False,
) -> int:
    """Show what apply would change; change nothing.

    On the targets and in the lake.
    """
    changes = cli.mirror.plan(flow)
    cli.answer(changes)
    return 1 if check and changes else 0


@command()
def apply(cli: Invocation, flow: Flow = None) -> int:
    """Carry out the plan; running mirrors adopt the settings."""
    changes = cli.mirror.apply(flow)
    cli.document({**document(changes), "applied": True})
    # `plan` has shown the others.
    if held := changes.held:
        cli.show(held)
    done = changes.to_apply
    cli.say(f"{plural(len(done), 'change')} applied: {done.counts}" if done else "nothing to apply")
    return 0


@command()
def doctor(
    cli: Invocation,
    listed: Annotated[bool, typer.Option("--list", help="Show the checks; asks no cluster.")] = False,
    only: Annotated[str, typer.Option("--only", help="Run these checks, with commas: kafka,ledger.state.")] = "",
    skip: Annotated[str, typer.Option("--skip", help="Leave these checks out.")] = "",
) -> int:
    """Check settings, clusters and lake; show each fix.

    Checks this machine and the flows, too. Exit 1 on a finding.
    """
    chosen, left = ([name.strip() for name in text.split(",") if name.strip()] for text in (only, skip))
    if listed:
        from mirrorlake.doctor import list_checks

        cli.answer(list_checks(only=chosen, skip=left))
        return 0
    found = cli.mirror.doctor(only=chosen, skip=left)
    cli.document({"findings": found})
    cli.show(found)
    if any(one.check in ("kafka.reachable", "lake.tables", "lake.store") for one in found.bad):
        return 4
    return 1 if found.bad else 0


@command()
def rules(
    cli: Invocation,
    flow: OneFlow,
    newest: Annotated[
        int | None, typer.Option("--try", min=1, help="Apply the rules to the newest N records of --topic.")
    ] = None,
    topic: Annotated[str | None, typer.Option("--topic", help="A source topic, for --try.")] = None,
) -> int:
    """Show a flow's rules; --try applies them to records.

    Each rule has its versions; the records are those of the relay.
    """
    if (newest is None) != (topic is None):
        raise UsageError("--try and --topic belong together", remedy="write --try 1000 --topic orders")
    handle = cli.mirror[flow]
    found = handle.rules()
    cli.show(found)
    if newest is None or topic is None:
        cli.document({"flow": flow, "rules": found})
        return 0
    trial = handle.try_rules(topic, newest)
    cli.show(trial)
    cli.document({"flow": flow, "rules": found, "trial": trial})
    return 0


@app.command(rich_help_panel=find_group("import_mm2"))
def import_mm2(
    file: Annotated[
        Path,
        typer.Argument(help="MirrorMaker 2's properties, or Strimzi's KafkaMirrorMaker2."),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the settings there instead of printing them.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Turn a MirrorMaker 2 file into a settings file.

    Reports what became of every key.
    """
    from mirrorlake.config import loads
    from mirrorlake.config.mm2 import import_mm2

    cli, found = Output(as_json=as_json), import_mm2(file)
    if out is not None and out.exists():
        raise UsageError(f"{out} exists already", consequence="nothing was written", remedy="name another file")
    if out is not None and out.absolute().parent.name == "conf":
        # Paths are relative to the file, and the lake does not belong into the settings folder.
        found.settings["lake"]["root"] = "../lake"
    text = f"# Imported from {file.name}; conf/example.yml explains every setting.\n\n{found.yaml}"
    faults = list(found.open)
    try:
        loads(text, path=out or file)
    except ConfigError as error:
        faults += [str(fault) for fault in error.faults]
    if out is not None:
        _write(out, text)
    written = None if out is None else str(out)
    cli.document(
        {
            "settings": found.settings,
            "report": found.report,
            "notes": found.notes,
            "faults": faults,
            "written": written,
        }
    )
    if out is None:
        cli.say(text)
    lines = [(line.status, f"{line.key}: {line.detail}") for line in found.report]
    for status, text in (*lines, *(("note", note) for note in found.notes), *(("to be mended", one) for one in faults)):
        cli.note(f"{status:>14}  {text}")
    if out is not None:
        first = "correct what is named above, then " if faults else ""
        cli.say(f"{out} written; next: {first}mirrorlake doctor --conf {out}")
    return 1 if faults else 0


def _write(out: Path, text: str) -> None:
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        out.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(
            f"{out} cannot be written ({error.strerror})",
            consequence="the settings were not saved",
            remedy="name a file in a folder that you may write to, or leave out --out",
        ) from error


@command()
def takeover(
    cli: Invocation,
    flow: OneFlow,
    apply: Annotated[bool, typer.Option("--apply", help="Carry it out; without it, only show the plan.")] = False,
    connector: Annotated[
        str, typer.Option("--connector", help="The source connector's name, on a Connect cluster.")
    ] = "MirrorSourceConnector",
    offsets_topic: Annotated[
        str | None,
        typer.Option("--offsets-topic", help="Connect's offsets topic; default: mm2-offsets.SOURCE.internal."),
    ] = None,
    connect_group: Annotated[
        str | None,
        typer.Option(
            "--connect-group", help="The workers' group; default: SOURCE-mm2; empty if Connect runs on without MM2."
        ),
    ] = None,
    trust_stored: Annotated[
        bool,
        typer.Option(
            "--trust-stored",
            help="Start at MM2's stored offsets if the records on the target do not show where it ended.",
        ),
    ] = False,
) -> int:
    """Continue where a stopped MirrorMaker 2 ended.

    Nothing is copied again, nothing skipped.
    """
    from mirrorlake.mm2 import OtherMirror

    other = OtherMirror(connector=connector, offsets_topic=offsets_topic, group=connect_group)
    found = cli.mirror.takeover(flow, other=other, trust_stored=trust_stored)
    applied = apply and not found.refused
    if applied:
        cli.mirror.apply_takeover(found)
    cli.answer(found, refused=found.refused, applied=applied)
    if found.refused:
        return 3
    done = f"taken over; next: mirrorlake run --flow '{flow}'" if applied else "nothing changed; --apply carries it out"
    cli.say(f"{plural(len(found.partitions), 'partition')}: {done}")
    return 0
