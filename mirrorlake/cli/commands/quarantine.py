"""The command `quarantine`: what no rule could judge, and sending it again."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

import typer

from mirrorlake.cli.options import DEFAULT_CONF, Conf, Json, OneFlow
from mirrorlake.cli.output import Output


def quarantine(
    flow: OneFlow,
    conf: Conf = DEFAULT_CONF,
    redrive: Annotated[
        bool, typer.Option("--redrive", help="Send the records through the flow's present rules, each once.")
    ] = False,
    as_json: Json = False,
) -> int:
    """Show the records that no rule could judge, by topic and reason; with --redrive send them again."""
    from mirrorlake.mirror import load

    output = Output(as_json=as_json)
    held = load(conf, display=output.display).quarantine(flow)
    if redrive:
        done = held.redrive()
        output.document(asdict(done))
        output.say(
            f"{flow}: {done.sent:,} record(s) sent, {done.filtered:,} filtered, {done.still_quarantined:,} quarantined again"
        )
        return 1 if done.still_quarantined else 0
    found = held.summary()
    output.document({"flow": flow, "quarantined": [asdict(one) for one in found]})
    columns = ["topic", "rule", "reason", "records", "first offset", "last offset"]
    rows = [[q.topic, q.rule, q.reason, q.records, str(q.first_offset), str(q.last_offset)] for q in found]
    if rows:
        output.table(f"quarantined by {flow}", columns, rows)
        output.say(f"mend the rule or the cause, then: mirrorlake quarantine --flow '{flow}' --redrive")
    else:
        output.say(f"{flow}: nothing is quarantined")
    return 0
