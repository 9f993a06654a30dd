"""`mirrorlake conflicts`: records with one key that two regions wrote at about the same time."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated

import typer

from mirrorlake.cli.options import DEFAULT_CONF, Conf, Json
from mirrorlake.cli.output import Output


def conflicts(
    topic: Annotated[str, typer.Option("--topic", help="The topic, as it is called where its records are produced.")],
    conf: Conf = DEFAULT_CONF,
    within: Annotated[str, typer.Option("--within", help="The most time between the two records.")] = "5 minutes",
    limit: Annotated[int, typer.Option("--limit", min=1, help="The most pairs to show.")] = 1000,
    as_json: Json = False,
) -> int:
    """List records with the same key that two regions wrote within a time; exit 1 where there are any."""
    from mirrorlake.mirror import load

    output = Output(as_json=as_json)
    rows = load(conf).conflicts(topic, within=within).orderBy("first_timestamp", "first_source").limit(limit).collect()
    found = [row.asDict() | {"key": bytes(row.key).hex()} for row in rows]
    output.document({"topic": topic, "within": within, "conflicts": found})
    output.table(
        f"{topic}: {len(found)} conflict(s) within {within}",
        ["key", "first", "second", "apart", "same value"],
        [
            (
                bytes(row.key),
                _place(one, "first"),
                _place(one, "second"),
                timedelta(milliseconds=row.apart_ms),
                one["same_value"],
            )
            for row, one in zip(rows, found, strict=True)
        ],
    )
    return 1 if found else 0


def _place(row: dict[str, object], side: str) -> str:
    return f"{row[f'{side}_source']} {row[f'{side}_topic']}-{row[f'{side}_partition']}@{row[f'{side}_offset']}"
