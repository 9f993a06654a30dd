"""The commands `records` and `passport`: look at records on any side, and follow one of them everywhere."""

from __future__ import annotations

from typing import Annotated

import typer

from mirrorlake.cli.options import DEFAULT_CONF, Conf, Json
from mirrorlake.cli.output import Output

Cluster = Annotated[str, typer.Option("--cluster", help="The alias of the cluster: a source or a target.")]
Topic = Annotated[str, typer.Option("--topic", help="The topic, as it is called there.")]
Partition = Annotated[int, typer.Option("--partition", min=0)]
Generation = Annotated[
    int | None, typer.Option("--generation", help="Life of a topic that was created again; default: the newest.")
]


def records(
    cluster: Cluster,
    topic: Topic,
    partition: Partition = 0,
    offset: Annotated[int | None, typer.Option("--offset", min=0, help="First offset; the newest without it.")] = None,
    at: Annotated[str | None, typer.Option("--at", help="First record at or after it: 2026-01-01T00:00:00Z.")] = None,
    count: Annotated[int, typer.Option("--count", min=1, max=1000, help="The most records.")] = 20,
    relay: Annotated[bool, typer.Option("--relay", help="Read what was landed from the cluster instead.")] = False,
    generation: Generation = None,
    conf: Conf = DEFAULT_CONF,
    as_json: Json = False,
) -> int:
    """Show records of one partition of a cluster, or of its relay, by offset or time."""
    from mirrorlake.config.values import moment
    from mirrorlake.mirror import load

    output = Output(as_json=as_json)
    page = load(conf).browse(
        cluster,
        topic,
        partition,
        offset=offset,
        at=None if at is None else moment(at),
        count=count,
        relay=relay,
        generation=generation,
    )
    output.document(page.as_dict())
    # Every record, but not megabytes of each.
    output.say(page.to_text(rows=count))
    return 0


def passport(
    cluster: Cluster,
    topic: Topic,
    offset: Annotated[int, typer.Option("--offset", min=0, help="The offset, on this cluster.")],
    partition: Partition = 0,
    generation: Generation = None,
    conf: Conf = DEFAULT_CONF,
    as_json: Json = False,
) -> int:
    """Follow one record from its source through the relay to every target; exit 1 where it is not accounted for."""
    from mirrorlake.mirror import load

    output = Output(as_json=as_json)
    found = load(conf).passport(cluster, topic, partition, offset, generation=generation)
    output.document(found.as_dict())
    output.show(found)
    return 0 if found.accounted_for else 1
