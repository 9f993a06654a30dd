"""Lakes and records that the growth benchmarks generate, and clusters that are played: no broker, no Spark."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta, timezone
from typing import Any

import duckdb
import pyarrow as pa

import mirrorlake as ml
from mirrorlake.config.loading import loads
from mirrorlake.errors import ClusterError
from mirrorlake.lake import RELAY_ROWS, Lake, WrittenFile, land_rows
from mirrorlake.lake.arrow_types import arrow_types
from mirrorlake.lake.delta_rs import FolderTables
from mirrorlake.lake.schema import RELAY, SIDE_TABLES, TableSchema
from mirrorlake.mirror import Mirror
from mirrorlake.model.flow import SourcePartition
from mirrorlake.records.passport import Registry

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
FLOW = "east->central"
# Between two looks of the sampler.
EVERY_S = 30
# Records of a file that is named only: what four batches a second bring of a partition with 40 records a second.
EACH = 10


class Away:
    """Clusters that are not asked: what the lake knows has to do."""

    def __init__(self, root: str, topics: str) -> None:
        self.config = loads(
            f"""
            lake: {{root: {root}}}
            clusters: {{east: {{bootstrap_servers: "e:1"}}, central: {{bootstrap_servers: "c:1"}}}}
            flows: [{{source: east, target: central, topics: "{topics}"}}]
            """
        )

    def admin(self, alias: str) -> Any:
        raise ClusterError(f"{alias} was asked", alias=alias)


def _no_spark() -> Any:
    raise AssertionError("Spark was started")


@contextmanager
def growth_folder() -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="mirrorlake-growth-") as folder:
        yield folder


@contextmanager
def new_lake(topics: str) -> Iterator[tuple[Lake, Registry]]:
    """Lend an empty lake of the source east, and what gives passports from it."""
    with growth_folder() as root:
        clusters: Any = Away(root, topics)
        lake, tables = Lake(_no_spark, clusters.config.lake), FolderTables()
        tables.create(lake.relay_location("east"), RELAY)
        for table in SIDE_TABLES:
            tables.create(lake.meta_location(table), table)
        clusters.lake = lake
        yield lake, Registry(clusters)


def played_mirror(folder: str) -> Mirror:
    """Make a mirror with empty tables whose clusters nobody reaches."""
    mirror = ml.from_settings(
        {
            "lake": {"root": f"{folder}/lake"},
            "clusters": {alias: {"bootstrap_servers": "127.0.0.1:1"} for alias in ("east", "central")},
            "flows": [{"source": "east", "target": "central", "topics": "t.*"}],
        }
    )
    mirror.lake.create_all(["east"])
    return mirror


def play(mirror: Mirror, played: Any) -> None:
    """Let `played` answer for both clusters of a mirror, for its groups and for its ledger."""
    both = {"east": played, "central": played}
    for client in ("admin", "source", "groups"):
        setattr(mirror._context, client, both.__getitem__)
    mirror._context.ledger = lambda _: played  # type: ignore[method-assign]


def source_of(number: int) -> SourcePartition:
    """Name a partition by its number; a topic has ten."""
    return SourcePartition(f"t{number // 10}", 1, number % 10)


def known_topics(ids: Mapping[str, str], partitions: int, observed_at: datetime = NOON) -> list[dict[str, Any]]:
    """Return rows of `metadata` that name topics of the source, by their ids."""
    seen = {"cluster": "east", "role": "source", "kind": "topic", "generation": 1, "configs": {}, "present": True}
    seen |= {"partitions": partitions, "observed_at": observed_at}
    return [seen | {"topic": name, "topic_id": ids[name]} for name in sorted(ids)]


def file_of(name: str, source: SourcePartition, first: int) -> WrittenFile:
    """Name a file of ten records from an offset on; it need not be there."""
    at = f"{NOON + timedelta(milliseconds=first):%Y-%m-%dT%H:%M:%S}.000Z"
    place = {"topic": source.topic, "generation": 1, "partition": source.partition, "timestamp": at, "landed_at": at}
    ends = [{**place, "offset": offset} for offset in (first, first + EACH - 1)]
    counts = dict.fromkeys(ends[0], 0)
    stats = {"numRecords": EACH, "minValues": ends[0], "maxValues": ends[1], "nullCount": counts}
    return WrittenFile(name, 3_000, EACH, 300, json.dumps(stats))


def fetched(firsts: Mapping[SourcePartition, int], records: int, at: datetime = NOON) -> pa.Table:
    """Return what a fetch brings: so many records of 100 B of each partition, from these offsets on, in their order."""
    columns = ("offset", "timestamp", "timestamp_type", "key", "value", "headers")
    numbers = range(records)
    rows: dict[str, Any] = {
        "offset": [first + n for first in firsts.values() for n in numbers],
        "timestamp": [at] * records * len(firsts),
        "timestamp_type": [0] * records * len(firsts),
        "key": [b"%012d" % n for n in numbers] * len(firsts),
        "value": [b"%088d" % n for n in numbers] * len(firsts),
        "headers": [None] * records * len(firsts),
    }
    return pa.table(rows, schema=pa.schema([RELAY_ROWS.field(name) for name in columns]))


def relay_rows(firsts: Mapping[SourcePartition, int], records: int, at: datetime = NOON) -> Iterator[pa.RecordBatch]:
    """Return the same as rows of the relay, landed when they were written."""
    return iter(land_rows(RELAY_ROWS, [*firsts], [records] * len(firsts), fetched(firsts, records, at), at))


def append_looks(
    lake: Lake, tables: Sequence[tuple[TableSchema, str, Mapping[str, str]]], begin_s: int, looks: range
) -> None:
    """Append rows for each of these looks: of a table, from what is joined to them, columns by their SQL; others are null.

    A look has its number `n` and its `moment`.
    """
    moments = (
        f"(SELECT n, make_timestamptz(({begin_s} + n * {EVERY_S}) * 1000000::BIGINT) AS moment "  # noqa: S608  numbers
        f"FROM range({looks.start}, {looks.stop}) AS r(n))"
    )
    connection = duckdb.connect(config={"threads": 1})
    connection.execute("SET TimeZone = 'UTC'")
    for table, source, columns in tables:
        schema = pa.schema(list(arrow_types(table).items()))
        cells = ", ".join(f'{columns.get(name, "NULL")} AS "{name}"' for name in schema.names)
        rows = connection.sql(f"SELECT {cells} FROM {moments}, {source} ORDER BY n").to_arrow_table()  # noqa: S608
        FolderTables().append(lake.meta_location(table), rows.cast(schema))


def say(**values: Any) -> None:
    """Print one line a measurement."""
    sys.stdout.write(json.dumps(values) + "\n")
    sys.stdout.flush()


def cost(do: Callable[[], object], times: int = 3) -> dict[str, float]:
    """Measure what a call takes on average, after one that is not counted."""
    do()
    began, cpu = time.monotonic(), time.process_time()
    for _ in range(times):
        do()
    return {
        "ms": round((time.monotonic() - began) / times * 1000, 1),
        "cpu_ms": round((time.process_time() - cpu) / times * 1000, 1),
    }


def least(
    do: Callable[[], object], times: int = 3, *, before: Callable[[], object] = lambda: None, digits: int = 1
) -> float:
    """Measure the least CPU-milliseconds of several calls, after one that is not counted; nor is what is done `before` each."""
    took = []
    for _ in range(times + 1):
        before()
        cpu = time.process_time()
        do()
        took.append(time.process_time() - cpu)
    return round(min(took[1:]) * 1000, digits)
