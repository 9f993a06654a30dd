"""Replay: send records of the relay again."""

from __future__ import annotations

from typing import Annotated

import typer

from mirrorlake.cli.command import Generation, Invocation, command
from mirrorlake.cli.stopping import run_until_signal

Append = Annotated[bool, typer.Option("--append", help="Send into a topic that holds other records.")]
AcceptExpiry = Annotated[
    bool, typer.Option("--accept-expiry", help="Send although the target's retention deletes records at once.")
]
HoldRetention = Annotated[
    bool, typer.Option("--hold-retention", help="Make topics without an end of their records (retention.ms=-1).")
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the plan and send nothing.")]


@command()
def replay(
    cli: Invocation,
    source: Annotated[str | None, typer.Option("--source", help="The alias whose relay is read.")] = None,
    topic: Annotated[str | None, typer.Option("--topic", help="The source topic.")] = None,
    into: Annotated[str, typer.Option("--into", help="Where to: central:orders.replayed (alias:topic).")] = "",
    start: Annotated[
        str, typer.Option("--from", help="Only records at or after this time: '2026-11-22 03:30' (UTC), -2h.")
    ] = "",
    end: Annotated[str, typer.Option("--to", help="Only records before this time.")] = "",
    partition: Annotated[
        list[int] | None, typer.Option("--partition", min=0, help="Only this partition; several times for several.")
    ] = None,
    from_offset: Annotated[
        int | None, typer.Option("--from-offset", min=0, help="Only from this upstream offset on.")
    ] = None,
    to_offset: Annotated[
        int | None, typer.Option("--to-offset", min=0, help="Only before this upstream offset, which is not sent.")
    ] = None,
    key: Annotated[
        list[str] | None, typer.Option("--key", help="Only records with this key, or one of several.")
    ] = None,
    header: Annotated[
        list[str] | None, typer.Option("--header", help="Only records with this header: NAME=VALUE; all of several.")
    ] = None,
    where: Annotated[
        str, typer.Option("--where", help="Only records for which this predicate is true: \"value.region = 'eu'\".")
    ] = "",
    generation: Generation = None,
    timestamps: Annotated[
        str, typer.Option("--timestamps", help="original, shifted (they end at now, with their distances) or now.")
    ] = "original",
    through: Annotated[str, typer.Option("--through", help="Apply the rules of this flow.")] = "",
    name: Annotated[
        str | None, typer.Option("--name", help="The replay's name; alone, it resumes an interrupted one.")
    ] = None,
    append: Append = False,
    accept_expiry: AcceptExpiry = False,
    hold_retention: HoldRetention = False,
    verify: Annotated[bool, typer.Option("--verify", help="Then compare what was sent with the relay.")] = False,
    dry_run: DryRun = False,
) -> int:
    """Send records of the relay again, each exactly once.

    Repeated after an interruption, it resumes.
    """
    from mirrorlake.replay import parse_header

    planned = cli.mirror.replay(
        source=source,
        topic=topic,
        into=into,
        start=start,
        end=end,
        partitions=partition or (),
        from_offset=from_offset,
        to_offset=to_offset,
        keys=key or (),
        headers=dict(map(parse_header, header or ())),
        where=where,
        generation=generation,
        timestamps=timestamps,
        through=through,
        name=name,
        append=append,
        accept_expiry=accept_expiry,
        hold_retention=hold_retention,
    )
    cli.show(planned)
    if dry_run:
        cli.document({**planned.as_dict(), "dry_run": True})
        return 3 if planned.plan.refusals else 0
    done = run_until_signal(lambda stop: planned.run(stop=stop))
    cli.show(done)
    proof = planned.verify() if verify and done.done else None
    if proof is not None:
        cli.show(proof)
    cli.document({**done.as_dict(), "plan": planned.as_dict(), "proof": proof})
    return 1 if done.missing or (proof is not None and not proof.equal) else 0
