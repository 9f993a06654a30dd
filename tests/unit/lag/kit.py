"""Looks at a flow from east to central and records of its source: rows of a lake in a folder, or of one question."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from mirrorlake.lag.sql import LagTables
from mirrorlake.lake import OFFSET_MAP, POSITIONS, RELAY, SAMPLES, WITHHELD, Lake, TableSchema, arrow_table
from mirrorlake.lake.arrow_types import arrow_types
from tests.builders import NOON
from tests.lakes import lake_in

FLOW = "east->central"
FLOWS = {FLOW: ("east", "central")}
SUBJECTS = (("cluster", "east"), ("cluster", "central"), ("relay", "east"), ("flow", FLOW))
TABLES = (POSITIONS, SAMPLES, OFFSET_MAP, WITHHELD)
_PLACE = ("topic", "generation", "partition", "offset", "timestamp")
_RELAYS = pa.schema({"source": pa.string(), **{name: arrow_types(RELAY)[name] for name in _PLACE}})


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def landed(stamps: Mapping[int, datetime], *, topic: str = "t", generation: int = 1, **more: Any) -> list[Any]:
    """Return records of a relay by offset and timestamp."""
    place = {"topic": topic, "generation": generation, "partition": 0, "timestamp_type": 0, "landed_at": NOON, **more}
    return [{**place, "offset": offset, "timestamp": stamp} for offset, stamp in stamps.items()]


def stood(moment: datetime, *, topic: str = "t", generation: int = 1, partition: int = 0, **kinds: Any) -> list[Any]:
    """Return rows of `positions`: where each kind of position stood at a moment, of what was seen."""
    place = {"source": "east", "topic": topic, "generation": generation, "partition": partition, "observed_at": moment}
    return [
        {**place, "kind": kind, "flow": FLOW if kind == "republished" else None, "position": position}
        for kind, position in kinds.items()
        if position is not None
    ]


def sampled(moment: datetime, *, complete: bool = True, error: str | None = None) -> list[dict[str, Any]]:
    """Return rows of `samples`: a look at each subject; with an error the source did not answer."""
    whys = [error if subject == ("cluster", "east") else None for subject in SUBJECTS]
    return [
        {"observed_at": moment, "subject": kind, "name": name, "complete": complete and why is None, "error": why}
        for (kind, name), why in zip(SUBJECTS, whys, strict=True)
    ]


def append(lake: Lake, table: TableSchema, rows: list[dict[str, Any]]) -> None:
    """Write rows of a side table, or records of east's relay."""
    place = lake.relay_location("east") if table is RELAY else lake.meta_location(table)
    lake._folder.append(place, arrow_table(table, rows))


def question(
    records: list[dict[str, Any]], flows: Mapping[str, tuple[str, str]] = FLOWS, *, since: Any = None, **rows: list[Any]
) -> LagTables:
    """Return what a question is asked of: records with their source, and rows of tables by name."""
    return LagTables(
        lake=lake_in("/nowhere"),
        relays="(SELECT source, topic, generation, partition, `offset`, timestamp FROM {relays_held})",
        since=since,
        tables={
            **{table.name: arrow_table(table, rows.get(table.name, [])) for table in TABLES},
            "relays_held": pa.Table.from_pylist(records, _RELAYS),
            "flows": pa.Table.from_pylist([{"flow": flow, "source": s, "target": t} for flow, (s, t) in flows.items()]),
        },
    )
