"""`mirrorlake repair`: each record of a relay once."""

from __future__ import annotations

from typing import Annotated

import typer

from mirrorlake.cli.options import DEFAULT_CONF, Conf, Json
from mirrorlake.cli.output import Output


def repair(
    source: Annotated[str, typer.Option("--source", help="The alias of the source cluster.")],
    conf: Conf = DEFAULT_CONF,
    check: Annotated[bool, typer.Option("--check", help="Only look; exit 1 where a record is held twice.")] = False,
    as_json: Json = False,
) -> int:
    """Remove the records that the relay of a source holds more than once; exit 1 where some are left."""
    from mirrorlake.mirror import load

    output = Output(as_json=as_json)
    done = load(conf, display=output.display).repair(source, check=check)
    output.document(done.as_dict())
    output.show(done)
    return 1 if done.left else 0
