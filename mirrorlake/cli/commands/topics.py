"""Topics: list the topics of a cluster, or show one."""

from __future__ import annotations

from typing import Annotated

import typer

from mirrorlake.cli.command import Invocation, command


@command()
def topics(
    cli: Invocation,
    cluster: Annotated[str, typer.Option("--cluster", help="The alias of the cluster: a source or a target.")],
    internal: Annotated[
        bool, typer.Option("--internal", help="List internal topics of Kafka, MirrorMaker and mirrorlake, too.")
    ] = False,
) -> int:
    """List a cluster's topics, mirrored where, or why not."""
    cli.answer(cli.mirror.topics(cluster, internal=internal))
    return 0
