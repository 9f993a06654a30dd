"""Records of a source, and what a question about them is asked of."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
from mirrorlake.lag.sql import LagTables

from mirrorlake.config.schema import LakeConfig
from mirrorlake.lake import Lake
from tests.kit.lake import FLOW, NOON, TABLES, Row, arrow

FLOWS = {FLOW: ("east", "central")}
_PLACE = ("topic", "generation", "partition", "offset", "timestamp")
_RELAYS = pa.schema([pa.field("source", pa.string()), *map(TABLES["relay"].field, _PLACE)])
NOWHERE = Lake(None, LakeConfig(root="/nowhere"))  # type: ignore[arg-type]


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def landed(stamps: Mapping[int, datetime], *, topic: str = "t", generation: int = 1, **more: Any) -> list[Row]:
    """Return records of a relay by offset and timestamp."""
    place = {"topic": topic, "generation": generation, "partition": 0, "timestamp_type": 0, "landed_at": NOON, **more}
    return [{**place, "offset": offset, "timestamp": stamp} for offset, stamp in stamps.items()]


def question(
    records: list[dict[str, Any]], flows: Mapping[str, tuple[str, str]] = FLOWS, *, since: Any = None, **rows: list[Any]
) -> LagTables:
    """Return what a question is asked of: records with their source, and rows of tables by name."""
    return LagTables(
        lake=NOWHERE,
        relays="(SELECT source, topic, generation, partition, `offset`, timestamp FROM {relays_held})",
        since=since,
        tables={
            **{name: arrow(name, rows.get(name, [])) for name in ("positions", "samples", "offset_map", "withheld")},
            "relays_held": pa.Table.from_pylist(records, _RELAYS),
            "flows": pa.Table.from_pylist([{"flow": flow, "source": s, "target": t} for flow, (s, t) in flows.items()]),
        },
    )
