"""`mirrorlake sample`: look at all positions, once or at an interval, and write down what has changed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from mirrorlake.cli.options import DEFAULT_CONF, Conf, Json
from mirrorlake.cli.output import Output
from mirrorlake.cli.stopping import in_background
from mirrorlake.errors import UsageError

if TYPE_CHECKING:
    from mirrorlake.lag.sampler import SampledMoment


def sample(
    conf: Conf = DEFAULT_CONF,
    once: Annotated[bool, typer.Option("--once", help="Look once; without it, stay on until SIGTERM.")] = False,
    every: Annotated[
        str | None, typer.Option("--every", help="Time between two looks, like 30s; that of the settings without it.")
    ] = None,
    as_json: Json = False,
) -> int:
    """Write positions of all clusters, groups and flows to the lake where they have changed, for lag over time."""
    if once and every is not None:
        raise UsageError("--every and --once exclude each other", remedy="mirrorlake sample --every 30s")
    from mirrorlake.mirror import load

    output, mirror, failed = Output(as_json=as_json), load(conf), [0]

    def tell(seen: SampledMoment) -> None:
        failed[0] = len(seen.unanswered)
        if once:
            output.document(as_document(seen))
        output.say(str(seen))

    in_background(lambda stop: mirror.sample(once=once, every=every, stop=stop, tell=tell))
    return 4 if once and failed[0] else 0


def as_document(seen: SampledMoment) -> dict[str, object]:
    """Build the document that `--json` prints of a sample."""
    return {
        "observed_at": seen.observed_at.isoformat(),
        "changed": seen.changed,
        "looks": [
            {
                "subject": look.subject,
                "name": look.name,
                "positions": len(look.positions),
                "changed": look.changed,
                "complete": look.complete,
                "took_ms": look.took_ms,
                "error": look.error,
            }
            for look in seen.looks
        ],
    }
