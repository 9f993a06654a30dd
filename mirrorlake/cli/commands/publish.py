"""The command `publish`: a file of records into a lake cluster."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mirrorlake.cli.options import DEFAULT_CONF, Conf, Json
from mirrorlake.cli.output import Output


def publish(
    file: Annotated[Path, typer.Argument(help="JSON lines, or Parquet (*.parquet).")],
    topic: Annotated[str, typer.Option("--topic", help="The topic.")],
    conf: Conf = DEFAULT_CONF,
    key: Annotated[str | None, typer.Option("--key", help="The field that is the records' key.")] = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", help="The lake cluster; optional where there is only one.")
    ] = None,
    batch_id: Annotated[
        str | None, typer.Option("--batch-id", help="A name for the batch; repeated, it publishes nothing again.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Publish a file of records into a lake cluster, all of it or nothing; flows carry it to their targets."""
    from mirrorlake.mirror import load

    output = Output(as_json=as_json)
    done = load(conf, display=output.display).publish_file(
        file, topic=topic, key=key, cluster=cluster, batch_id=batch_id
    )
    output.document(done)
    rows = [(each.topic, each.partition, each.first_offset, each.last_offset) for each in done.partitions]
    output.table(done.cluster, ["topic", "partition", "first offset", "last offset"], rows)
    again = "; the batch had been published before, nothing was done" if done.repeated else ""
    output.say(f"{done.cluster}: {done.records:,} records published{again}")
    return 0
