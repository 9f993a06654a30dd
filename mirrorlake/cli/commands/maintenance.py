"""Maintenance: compact the lake, retire flows, erase records."""

from __future__ import annotations

from typing import Annotated

import typer

from mirrorlake.cli.command import Invocation, Source, command


@command()
def maintain(
    cli: Invocation,
    plan: Annotated[bool, typer.Option("--plan", "--dry-run", help="Show the plan; change nothing.")] = False,
) -> int:
    """Compact files, apply retention, clean logs.

    Exit 1 if something could not be done.
    """
    done = cli.mirror.maintain(plan=plan)
    cli.answer(done)
    return 0 if done.ok else 1


@command()
def retire(
    cli: Invocation,
    flow: Annotated[str, typer.Option("--flow", help="A flow that is in no settings file any more.")],
    reason: Annotated[str, typer.Option("--reason", help="The reason, kept in the lake.")],
    apply: Annotated[bool, typer.Option("--apply", help="Carry it out; without it, only show the plan.")] = False,
) -> int:
    """Release the records that a removed flow never sent.

    Retention may then remove them from the relay.
    """
    cli.answer(cli.mirror.retire(flow, reason=reason, apply=apply))
    return 0


@command()
def erase(
    cli: Invocation,
    source: Source,
    topic: Annotated[
        str, typer.Option("--topic", help="The source topic; all its partitions and generations are searched.")
    ],
    reason: Annotated[str, typer.Option("--reason", help="The reason, readable in the lake: it must name nobody.")],
    key: Annotated[str | None, typer.Option("--key", help="Records with this key.")] = None,
    header: Annotated[str | None, typer.Option("--header", help="Records with this header: NAME=VALUE.")] = None,
    where: Annotated[
        str, typer.Option("--where", help="Records for which a predicate is true, as rules write it.")
    ] = "",
    apply: Annotated[bool, typer.Option("--apply", help="Carry it out; without it, only show the plan.")] = False,
) -> int:
    """Erase records from the lake for good.

    By key, header or predicate, from relay and tables. Exit 1 if some remain.
    """
    name, equals, value = (header or "").partition("=")
    if header is not None and not (equals and name):
        from mirrorlake.errors import UsageError

        raise UsageError("a header is given without a value", remedy="write --header NAME=VALUE")
    named = None if header is None else (name, value)
    done = cli.mirror.erase(source, topic, reason=reason, key=key, header=named, where=where, apply=apply)
    cli.answer(done)
    return 0 if done.ok else 1
