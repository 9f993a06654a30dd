"""Streams: land, republish, run, publish, pause and resume."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from mirrorlake.cli.command import Flow, Invocation, OneFlow, Source, command
from mirrorlake.cli.stopping import run_until_signal

Once = Annotated[
    bool, typer.Option("--once", help="Mirror the records so far and stop; without it, run until SIGTERM.")
]
Rebuild = Annotated[
    bool, typer.Option("--rebuild-checkpoint", help="Create a new checkpoint location after the old one was lost.")
]

TakeOver = Annotated[
    bool,
    typer.Option("--take-over", help="With --once: replace a running mirror, which ends with exit 3."),
]


@command()
def land(
    cli: Invocation,
    source: Source,
    once: Once = False,
    rebuild_checkpoint: Rebuild = False,
    take_over: TakeOver = False,
) -> int:
    """Land the topics of one source cluster in its relay."""
    mirror = cli.mirror
    cli.answer(
        run_until_signal(
            lambda stop: mirror.land(
                source, once=once, stop=stop, rebuild_checkpoint=rebuild_checkpoint, take_over=take_over
            ),
            note=cli.note,
            leave=lambda: _leave(cli, source=source, records=None, paused=[]),
        )
    )
    return 0


@command()
def republish(
    cli: Invocation,
    flow: OneFlow,
    once: Once = False,
    rebuild_checkpoint: Rebuild = False,
    restore_ledger: Annotated[
        bool,
        typer.Option(
            "--restore-ledger", help="Start from the furthest position in ledger and lake after the ledger was lost."
        ),
    ] = False,
    topic: Annotated[
        str | None, typer.Option("--topic", help="A lost remote topic, with --send-again or --accept-empty.")
    ] = None,
    send_again: Annotated[
        bool, typer.Option("--send-again", help="With --topic: send everything again from the relay.")
    ] = False,
    accept_empty: Annotated[
        bool, typer.Option("--accept-empty", help="With --topic: continue there with the records not sent yet.")
    ] = False,
    choose: Annotated[
        bool, typer.Option("--choose", help="With --topic: only record the choice, for a running mirror.")
    ] = False,
    take_over: TakeOver = False,
) -> int:
    """Republish one flow from the relay into its target."""
    mirror = cli.mirror
    if choose:
        from mirrorlake.model.remotes import Chosen

        held = mirror.resolve_lost_topic(flow, topic, send_again=send_again, accept_empty=accept_empty)
        choice = "send_again" if send_again else "accept_empty"
        cli.answer(Chosen(flow=flow, topic=topic or "", choice=choice, waits=held is not None))
        return 0
    done = run_until_signal(
        lambda stop: mirror.republish(
            flow,
            once=once,
            stop=stop,
            rebuild_checkpoint=rebuild_checkpoint,
            restore_ledger=restore_ledger,
            topic=topic,
            send_again=send_again,
            accept_empty=accept_empty,
            take_over=take_over,
        ),
        note=cli.note,
        leave=lambda: _leave(cli, flow=flow, records=None, paused=[]),
    )
    cli.answer(done)
    return 0


@command()
def run(
    cli: Invocation,
    flow: Flow = None,
    once: Once = False,
    metrics_port: Annotated[
        int | None, typer.Option("--metrics-port", min=1, max=65535, help="Serve metrics for Prometheus at this port.")
    ] = None,
    take_over: TakeOver = False,
) -> int:
    """Land every source and republish every flow."""
    # Before the slow imports: the person sees at once that the run starts.
    cli.line("run", f"{cli.conf.absolute()}, {'up to the present ends' if once else 'until Ctrl-C or SIGTERM'}")
    mirror = cli.mirror
    done = run_until_signal(
        lambda stop: mirror.run(flow, once=once, stop=stop, metrics_port=metrics_port, take_over=take_over),
        note=partial(cli.line, "stop"),
        describe_progress=lambda: mirror.progress().sheet().summary(),
        leave=lambda: _leave(cli, **mirror.progress().as_dict()),
    )
    cli.document(done)
    cli.show(done)
    return 0


def _leave(cli: Invocation, **done: Any) -> None:
    """Print the document of an interrupted command: the known counts, null for unknown ones."""
    cli.document({**done, "interrupted": True})


@command()
def publish(
    cli: Invocation,
    file: Annotated[Path, typer.Argument(help="JSON lines, or Parquet (*.parquet).")],
    topic: Annotated[str, typer.Option("--topic", help="The topic.")],
    key: Annotated[str | None, typer.Option("--key", help="The field that is the records' key.")] = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", help="The lake cluster; optional where there is only one.")
    ] = None,
    batch_id: Annotated[
        str | None,
        typer.Option("--batch-id", help="The batch's name; a batch that was published is not published again."),
    ] = None,
) -> int:
    """Publish a file of records into a lake cluster.

    All of it or nothing; flows carry it to their targets.
    """
    done = cli.mirror.publish_file(file, topic=topic, key=key, cluster=cluster, batch_id=batch_id)
    cli.document(done)
    cli.table(done.cluster, ["topic", "partition", "first offset", "last offset"], done.partitions)
    again = "; the batch had been published before, nothing was done" if done.repeated else ""
    cli.say(f"{done.cluster}: {done.records:,} records published{again}")
    return 0


@command()
def pause(
    cli: Invocation,
    cluster: Annotated[
        str | None, typer.Option("--cluster", help="Neither read from nor write to this cluster.")
    ] = None,
    flow: Annotated[str | None, typer.Option("--flow", help="Stop republishing in this flow; landing goes on.")] = None,
    topic: Annotated[str | None, typer.Option("--topic", help="With --flow: hold back this source topic only.")] = None,
    table: Annotated[str | None, typer.Option("--table", help="Stop writing this typed table.")] = None,
    reason: Annotated[str, typer.Option("--reason", help="The reason, shown by status and in the log.")] = "",
) -> int:
    """Pause a cluster, a flow, a topic or a typed table.

    Running mirrors follow within seconds, and no cluster is asked.
    """
    cli.answer(cli.mirror.pause(cluster=cluster, flow=flow, topic=topic, table=table, reason=reason))
    return 0


@command()
def resume(
    cli: Invocation,
    cluster: Annotated[
        str | None,
        typer.Option("--cluster", help="Read from and write to this cluster again; restart its parked streams."),
    ] = None,
    flow: Annotated[
        str | None, typer.Option("--flow", help="Republish in this flow again; restart it where it is parked.")
    ] = None,
    topic: Annotated[str | None, typer.Option("--topic", help="With --flow: send this source topic again.")] = None,
    table: Annotated[
        str | None, typer.Option("--table", help="Write this typed table again; restart it where it is parked.")
    ] = None,
    reason: Annotated[str, typer.Option("--reason", help="The reason, kept in the table control.")] = "",
) -> int:
    """End a pause, or start a parked stream again.

    What was held back is sent in order, without a gap or a repeat.
    """
    before = cli.mirror.parked()
    ended = cli.mirror.resume(cluster=cluster, flow=flow, topic=topic, table=table, reason=reason)
    started = [before[name] for name in sorted(before.keys() - cli.mirror.parked().keys())]
    cli.document({"resumed": ended is not None or bool(started), "pause": ended, "parked": started})
    for one in started:
        cli.say(f"{one.stream} is started again by the running mirror; it was parked: {one.cause}")
    if ended is not None:
        cli.say(f"{ended.subject} goes on; it was paused by {ended.who}")
    elif not started:
        cli.say("it was not paused, and nothing of it was parked")
    return 0
