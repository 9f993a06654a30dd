"""`mirrorlake report`: lag, latency, RPO, verdicts and proofs of a stretch of time as one page."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from mirrorlake.cli.options import DEFAULT_CONF, Conf, Json
from mirrorlake.cli.output import Output
from mirrorlake.lag.verdict import Verdict


def report(
    conf: Conf = DEFAULT_CONF,
    out: Annotated[Path, typer.Option("--out", help="The file to write; an existing one is replaced.")] = Path(
        "report.html"
    ),
    since: Annotated[str, typer.Option("--since", help="How far back the page goes, like 24h.")] = "24h",
    flow: Annotated[str | None, typer.Option("--flow", help="The flow; all flows without it.")] = None,
    verify: Annotated[
        bool, typer.Option("--verify", help="Compare source, relay and target first, as `mirrorlake verify` does.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Write a report on lag, latency, RPO and verdicts: one HTML file that needs no network and no script."""
    from mirrorlake.mirror import load

    output = Output(as_json=as_json)
    found = load(conf).report(since=since, flow=flow, verify=verify)
    path = found.write(out)
    output.document(found.as_dict() | {"path": str(path)})
    output.say(f"{found}\nwritten to {path}")
    is_well = found.verdict.verdict <= Verdict.OK and not found.verdict.at_risk
    return 0 if is_well and all(one.equal for one in found.verifications) else 1
