"""`mirrorlake import-mm2`: a MirrorMaker 2 file becomes a settings file."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from mirrorlake.cli.options import Json
from mirrorlake.cli.output import Output
from mirrorlake.errors import ConfigError, UsageError


def import_mm2(
    file: Annotated[
        Path,
        typer.Argument(
            help="MirrorMaker 2's properties, connector configurations (JSON), or Strimzi's KafkaMirrorMaker2."
        ),
    ],
    out: Annotated[
        Path | None, typer.Option("--out", help="Write the settings there instead of printing them.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Turn a MirrorMaker 2 file into a settings file, and tell what became of every key."""
    from mirrorlake.config.load import loads
    from mirrorlake.config.mm2.importer import import_mm2

    output = Output(as_json=as_json)
    found = import_mm2(file)
    if out is not None and out.exists():
        raise UsageError(f"{out} exists already", consequence="nothing was written", remedy="name another file")
    text = f"# Imported from {file.name}; conf/example.yml explains every setting.\n\n{found.yaml}"
    faults = list(found.open)
    try:
        loads(text, path=out or file)
    except ConfigError as error:
        faults += [str(fault) for fault in error.faults]
    if out is not None:
        out.write_text(text, encoding="utf-8")
    output.document(
        {
            "settings": found.settings,
            "report": [asdict(line) for line in found.report],
            "notes": found.notes,
            "faults": faults,
            "written": None if out is None else str(out),
        }
    )
    if out is None:
        output.say(text)
    for line in found.report:
        output.note(f"{line.status:>14}  {line.key}: {line.detail}")
    for note in found.notes:
        output.note(f"{'note':>14}  {note}")
    for fault in faults:
        output.note(f"{'to be mended':>14}  {fault}")
    if out is not None:
        settle = "settle what is named above, then " if faults else ""
        output.say(f"{out} written; next: {settle}mirrorlake doctor --conf {out}")
    return 1 if faults else 0
