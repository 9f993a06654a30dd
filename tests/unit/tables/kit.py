"""Mirrors with typed tables in a folder, whose rows delta-rs writes as the stream's batches do."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
from deltalake import CommitProperties, write_deltalake

from mirrorlake.context import Context
from mirrorlake.lake import METADATA, RELAY, SIDE_TABLES, FolderTables
from mirrorlake.lake.metadata import KnownTopic, topic_row
from mirrorlake.model.flow import SourcePartition
from mirrorlake.tables.progress import TableProgress
from tests.builders import NOON
from tests.kit.lake import arrow
from tests.kit.lake import rows as records
from tests.unit.doctor.kit import context_of, settings


def mirror(folder: Path, *tables: Mapping[str, Any], topics: Iterable[str] = ()) -> Context:
    """Return a mirror with these entries of `tables:`, whose source has topics of four landed records each."""
    context = context_of(folder, given=settings(tables=[dict(table) for table in tables]))
    if not Path(context.lake.relay_location("east")).exists():
        FolderTables().create(context.lake.relay_location("east"), RELAY)
        for table in SIDE_TABLES:
            FolderTables().create(context.lake.meta_location(table), table)
    for topic in topics:
        known = KnownTopic(name=topic, generation=1, topic_id=topic, partitions=1, present=True)
        context.lake.append(METADATA, [topic_row("east", "source", known, NOON)])
        land(context, topic, *range(4))
    return context


def land(context: Context, topic: str, *offsets: int, **columns: Any) -> None:
    FolderTables().append(context.lake.relay_location("east"), arrow("relay", records(topic, 0, *offsets, **columns)))


def keep(context: Context, *, position: int, rows: pa.Table | None = None, **properties: Any) -> None:
    """Write a batch of the table `sales`, up to a position of its topic: these rows, or its last offset."""
    location = context.lake.typed_location("sales")
    progress = TableProgress(1, "me", {"east": {SourcePartition("sales", 1, 0): position}})
    write_deltalake(
        location,
        pa.table({"_offset": pa.array([position - 1], pa.int64())}) if rows is None else rows,
        mode="append",
        commit_properties=CommitProperties(custom_metadata={"userMetadata": progress.to_text()}),
    )
    if properties:
        kept = {f"mirrorlake.{name}": json.dumps(value) for name, value in properties.items()}
        FolderTables().set_properties(location, kept)
