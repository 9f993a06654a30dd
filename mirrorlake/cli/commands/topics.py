"""Topics: list the topics of a cluster, or show one."""

from __future__ import annotations

from typing import Annotated

import typer

from mirrorlake.cli.command import Invocation, command


@command()
def topics(
    cli: Invocation,
    cluster: Annotated[str, typer.Option("--cluster", help="The alias of the cluster: a source or a target.")],
    topic: Annotated[
        str | None,
        typer.Option("--topic", help="One topic: its partitions, settings, readers, and where it is mirrored."),
    ] = None,
    matching: Annotated[
        str, typer.Option("--matching", help="Names or regular expressions, as a flow's topics have them.")
    ] = "",
    internal: Annotated[
        bool, typer.Option("--internal", help="List internal topics of Kafka, MirrorMaker and mirrorlake, too.")
    ] = False,
    over: Annotated[
        str | None, typer.Option("--over", help="Read twice at this interval to measure records a second: 5s.")
    ] = None,
) -> int:
    """List a cluster's topics, mirrored where, or why not.

    With their sizes and rates.
    """
    mirror = cli.mirror
    cli.answer(
        mirror.topics(cluster, matching=matching, internal=internal, over=over)
        if topic is None
        else mirror.topic(cluster, topic)
    )
    return 0
