"""The commands `pause` and `resume`: by cluster, by flow, or by topic of a flow."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from mirrorlake.cli.options import DEFAULT_CONF, Conf, Json
from mirrorlake.cli.output import Output

Cluster = Annotated[str | None, typer.Option("--cluster", help="Neither read from nor write to this cluster.")]
Flow = Annotated[str | None, typer.Option("--flow", help="Stop republishing in this flow; landing goes on.")]
Topic = Annotated[str | None, typer.Option("--topic", help="With --flow: hold back this source topic only.")]
Reason = Annotated[str, typer.Option("--reason", help="Shown wherever the pause is.")]


def pause(
    conf: Conf = DEFAULT_CONF,
    cluster: Cluster = None,
    flow: Flow = None,
    topic: Topic = None,
    reason: Reason = "",
    as_json: Json = False,
) -> int:
    """Pause a cluster, a flow or a topic; running mirrors hear it within seconds, and no cluster is asked."""
    from mirrorlake.mirror import load

    output = Output(as_json=as_json)
    held = load(conf).pause(cluster=cluster, flow=flow, topic=topic, reason=reason)
    output.document(asdict(held))
    output.show(held)
    return 0


def resume(
    conf: Conf = DEFAULT_CONF,
    cluster: Cluster = None,
    flow: Flow = None,
    topic: Topic = None,
    reason: Reason = "",
    as_json: Json = False,
) -> int:
    """End a pause, or start a parked stream again; what was held back is sent in order, without a gap or a repeat."""
    from mirrorlake.mirror import load

    output, mirror = Output(as_json=as_json), load(conf)
    before = mirror.parked()
    ended = mirror.resume(cluster=cluster, flow=flow, topic=topic, reason=reason)
    started = [before[name] for name in sorted(before.keys() - mirror.parked().keys())]
    document = {
        "resumed": ended is not None or bool(started),
        "pause": None if ended is None else asdict(ended),
        "parked": [one.as_dict() for one in started],
    }
    output.document(document)
    for one in started:
        output.say(f"{one.stream} is started again by the running mirror; it was parked: {one.cause}")
    if ended is not None:
        output.say(f"{ended.subject} goes on; it was paused by {ended.who}")
    elif not started:
        output.say("it was not paused, and nothing of it was parked")
    return 0
