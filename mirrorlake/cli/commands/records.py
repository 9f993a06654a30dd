"""Records: browse them on any side, follow one everywhere, list quarantined records."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from mirrorlake.cli.command import Generation, Invocation, OneFlow, command
from mirrorlake.cli.stopping import run_until_signal
from mirrorlake.errors import UsageError
from mirrorlake.render import format_count, plural

if TYPE_CHECKING:
    from mirrorlake.records import BrowsedRecord

Cluster = Annotated[str, typer.Option("--cluster", help="The alias of the cluster: a source or a target.")]
Topic = Annotated[str, typer.Option("--topic", help="The topic, as it is called there.")]
Partition = Annotated[int, typer.Option("--partition", min=0, help="The partition, on this cluster.")]
AnyPartition = Annotated[int | None, typer.Option("--partition", min=0, help="The partition; all without it.")]


@command()
def records(
    cli: Invocation,
    cluster: Cluster,
    topic: Topic,
    partition: AnyPartition = None,
    offset: Annotated[int | None, typer.Option("--offset", min=0, help="First offset; the newest without it.")] = None,
    at: Annotated[
        str | None, typer.Option("--at", help="First record at or after it: '2026-11-22 03:30' (UTC), 03:30, -2h.")
    ] = None,
    count: Annotated[int, typer.Option("--count", min=1, max=1000, help="The most records.")] = 20,
    key: Annotated[str | None, typer.Option("--key", help="Only records with exactly this key.")] = None,
    contains: Annotated[
        str | None, typer.Option("--contains", help="Only records whose value holds this text.")
    ] = None,
    where: Annotated[
        str, typer.Option("--where", help="Only records for which this is true: '$.customer.id = 7', \"value.n > 3\".")
    ] = "",
    look: Annotated[int, typer.Option("--look", min=1, max=1_000_000, help="The most records to search.")] = 10_000,
    relay: Annotated[bool, typer.Option("--relay", help="Read what was landed from the cluster instead.")] = False,
    follow: Annotated[
        bool, typer.Option("--follow", help="Show records as they come, until SIGTERM; with --json one a line.")
    ] = False,
    generation: Generation = None,
) -> int:
    """Show records by offset, by time or by content.

    Of a topic on a cluster, or in its relay; the newest without a condition.
    """
    if follow:
        if offset is not None or at is not None or generation is not None:
            raise UsageError(
                "--follow begins now", remedy="leave out --offset, --at and --generation; or leave out --follow"
            )
        run_until_signal(
            lambda stop: _follow(
                cli,
                cli.mirror.tail(
                    cluster, topic, partition, key=key, contains=contains, where=where, relay=relay, stop=stop
                ),
            )
        )
        return 0
    page = cli.mirror.browse(
        cluster,
        topic,
        partition,
        offset=offset,
        at=at,
        count=count,
        key=key,
        contains=contains,
        where=where,
        look=look,
        relay=relay,
        generation=generation,
    )
    cli.document(page)
    # Every record, but not megabytes of each.
    cli.show(page, whole=False)
    return 0


def _follow(cli: Invocation, found: Iterator[BrowsedRecord]) -> None:
    for one in found:
        # One document per line, since the stream has no end.
        cli.document(one)
        cli.say(str(one))
        sys.stdout.flush()


@command()
def passport(
    cli: Invocation,
    cluster: Cluster,
    topic: Topic,
    offset: Annotated[int, typer.Option("--offset", min=0, help="The offset, on this cluster.")],
    partition: Partition = 0,
    generation: Generation = None,
) -> int:
    """Follow one record from its source to every target.

    Exit 1 if it is not accounted for.
    """
    found = cli.mirror.passport(cluster, topic, partition, offset, generation=generation)
    cli.answer(found)
    return 0 if found.accounted_for else 1


@command()
def quarantine(
    cli: Invocation,
    flow: OneFlow,
    redrive: Annotated[
        bool, typer.Option("--redrive", help="Send the records through the flow's present rules, each once.")
    ] = False,
) -> int:
    """Show quarantined records; --redrive sends them again.

    By topic and reason.
    """
    held = cli.mirror.quarantine(flow)
    if redrive:
        done = held.redrive()
        cli.document(done)
        cli.say(
            f"{flow}: {plural(done.sent, 'record')} sent, {format_count(done.filtered)} filtered, "
            f"{format_count(done.still_quarantined)} quarantined again"
        )
        return 1 if done.still_quarantined else 0
    found = held.summary()
    cli.document({"flow": flow, "quarantined": found})
    if found:
        columns = ["topic", "rule", "reason", "records", "first offset", "last offset"]
        cli.table(f"quarantined by {flow}", columns, found)
        cli.say(f"mend the rule or the cause, then: mirrorlake quarantine --flow '{flow}' --redrive")
    else:
        cli.say(f"{flow}: nothing is quarantined")
    return 0
