"""A lake with relays of several regions, typed tables over them, and the fold over their records."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timedelta, timezone
from typing import Any

from deltalake import DeltaTable

from mirrorlake.lake import POSITIONS, FolderTables, position_row
from mirrorlake.lake.arrow_types import arrow_table
from mirrorlake.lake.metadata import KnownTopic, topic_row
from mirrorlake.lake.schema import METADATA, RELAY
from mirrorlake.mirror import Mirror
from mirrorlake.model.flow import SourcePartition
from mirrorlake.tables import session_of

NOON = datetime(2026, 7, 1, 12, tzinfo=timezone.utc)
Make = Callable[..., Mirror]


class Regions:
    """Records in the relays of several regions, and the fold over them."""

    def __init__(self, mirror: Mirror) -> None:
        self.mirror = mirror
        self.records: list[tuple[str, str, int, int, bytes | None, bytes | None]] = []
        self._next: dict[tuple[str, str, int], int] = {}

    def land(self, source: str, topic: str, *pairs: tuple[Any, Any], partition: int = 0, generation: int = 1) -> None:
        rows = []
        for key, value in pairs:
            at = self._next.get((source, topic, partition), 0)
            self._next[source, topic, partition] = at + 1
            stamp = NOON + timedelta(seconds=len(self.records))
            key, value = _bytes(key), value if value is None or isinstance(value, bytes) else json.dumps(value).encode()
            self.records.append((source, topic, partition, at, key, value))
            rows.append((topic, generation, partition, at, stamp, 0, key, value, None, NOON))
        landed = arrow_table(RELAY, [dict(zip(RELAY.columns, row, strict=True)) for row in rows])
        FolderTables().append(self.mirror.lake.relay_location(source), landed)
        self._observe(source, topic)

    def _observe(self, source: str, topic: str) -> None:
        known = KnownTopic(name=topic, generation=1, topic_id=f"{source}-{topic}", partitions=2, present=True)
        self.mirror.lake.append_rows(METADATA, [topic_row(source, "source", known, NOON)])

    def newest(self, topic: str) -> dict[tuple[str, str], Any]:
        """Return the newest value of each key of each region; a tombstone deletes."""
        found: dict[tuple[str, str], Any] = {}
        for source, of, _, _, key, value in self.records:
            if of == topic and key is not None:
                found[source, key.decode()] = None if value is None else json.loads(value)
        return {key: value for key, value in found.items() if value is not None}


def _bytes(value: Any) -> bytes | None:
    return value.encode() if isinstance(value, str) else value


def rows(mirror: Mirror, name: str, *columns: str) -> list[tuple[Any, ...]]:
    """Read columns of a table with delta-rs, in the order of its records: Spark takes half a second of CPU each time."""
    order = ("_source", "_topic", "_partition", "_offset")
    found = DeltaTable(mirror.lake.typed_location(name)).to_pyarrow_table(columns=[*{*order, *columns}]).to_pylist()
    found.sort(key=lambda row: [row[name] for name in order])
    return [tuple(row[name] for name in columns) for row in found]


def bad(mirror: Mirror) -> list[tuple[Any, ...]]:
    found = mirror.lake.query_rows("SELECT table_name, source, offset, reason FROM {bad_records} ORDER BY 1, 2, 3")
    return [(row.table_name, row.source, row.offset, row.reason) for row in found]


def past_records(mirror: Mirror, topic: str, *, first: int) -> Any:
    """Return the records of a topic of east from an offset on, as a writer takes them."""
    from pyspark.sql import functions as F

    session = session_of(mirror.spark)
    relay = mirror.lake.load_relay(session.read, "east").where(f"topic = '{topic}' AND offset >= {first}")
    names = ("topic", "generation", "partition", "offset", "timestamp")
    return relay.select(
        F.lit("east").alias("_source"), *(F.col(name).alias(f"_{name}") for name in names), "key", "value"
    )


def account(mirror: Mirror) -> None:
    """Account for all records of the relay of east."""
    at = SourcePartition("sales", 1, 0)
    end = mirror.lake.relay("east").count()
    mirror.lake.append_rows(POSITIONS, [position_row("east", at, "landed", end, NOON)])
