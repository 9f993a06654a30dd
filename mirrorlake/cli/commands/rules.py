"""The command `rules`: what a flow does to records, and what it would do to the newest ones."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

import typer

from mirrorlake.cli.options import DEFAULT_CONF, Conf, Json, OneFlow
from mirrorlake.cli.output import Output
from mirrorlake.errors import UsageError


def rules(
    flow: OneFlow,
    conf: Conf = DEFAULT_CONF,
    newest: Annotated[
        int | None, typer.Option("--try", min=1, help="Apply the rules to the newest N records of --topic.")
    ] = None,
    topic: Annotated[str | None, typer.Option("--topic", help="A source topic, for --try.")] = None,
    as_json: Json = False,
) -> int:
    """Show the rules of a flow with their versions; with --try, what they would do to records of the relay."""
    from mirrorlake.mirror import load

    output = Output(as_json=as_json)
    if (newest is None) != (topic is None):
        raise UsageError("--try and --topic belong together", remedy="write --try 1000 --topic orders")
    handle = load(conf)[flow]
    found = handle.rules()
    document: dict[str, Any] = {"flow": flow, "rules": [asdict(rule) for rule in found]}
    output.show(found)
    if newest is not None and topic is not None:
        trial = handle.try_rules(topic, newest)
        document["trial"] = asdict(trial)
        output.show(trial)
    output.document(document)
    return 0
