"""What typed tables cost, in CPU-seconds of all processes: a warm drain, a small batch by the table's size; and how fresh they are."""

from __future__ import annotations

import io
import json
import random
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import fastavro
import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from deltalake import write_deltalake

from mirrorlake.lake.metadata import KnownTopic, topic_row
from mirrorlake.lake.schema import METADATA
from mirrorlake.mirror import Mirror, from_settings
from tests.bench.options import Options
from tests.bench.results import Book, Say
from tests.kit.lake import TABLES
from tests.kit.processes import beside
from tests.servers.registry import RegistryServer

SIZES = (100, 1_000)
KEYS = (10_000, 1_000_000)
UPSERTS: dict[str, dict[str, Any]] = {"append": {}, "upsert": {"mode": "upsert"}}
_BATCH = 500
_TABLES = 8
# Spark compiles what the first batches need.
_WARM_S = 20
_NOW = datetime(2026, 1, 1, tzinfo=timezone.utc)
_FIELDS = {"id": "long", "customer": "string", "amount": "double", "paid": "boolean", "note": "string"}
_AVRO = {"type": "record", "name": "Sale", "fields": [{"name": name, "type": kind} for name, kind in _FIELDS.items()]}
_PARSED = fastavro.parse_schema(_AVRO)


def measure(options: Options, book: Book, say: Say) -> None:
    """Measure appended tables of JSON and Avro, and upserted ones of JSON, on a million records or a share of them."""
    records = max(20_000, round(1_000_000 * options.scale))
    with _registry() as registry:
        schema_id = SchemaRegistryClient({"url": registry.url}).register_schema(
            "sales-value", Schema(json.dumps(_AVRO))
        )
        frame = b"\0" + schema_id.to_bytes(4, "big")
        for name, encode, settings in (
            ("json", _json, {}),
            ("avro", lambda sale: frame + _avro(sale), {"values": "avro", "registry": {"url": registry.url}}),
        ):
            cost = {f"{size:,} B": _cost(encode, size, records, records, settings) for size in SIZES}
            book.keep("tables", f"{name}, append", cost, mode="drain, warm; CPU-s per M of all processes")
            say(f"tables {name}: {cost}")
        for keys in KEYS:
            cost = {"100 B": _cost(_json, 100, records, keys, {"mode": "upsert"})}
            book.keep(
                "tables", f"json, upsert of {keys:,} keys", cost, mode="drain, warm; CPU-s per M of all processes"
            )
            say(f"tables upsert {keys}: {cost}")
    for name, settings in UPSERTS.items():
        growth = {f"{rows:,} rows": _batch_cost(rows, settings) for rows in (records // 50, records)}
        book.keep("tables", f"json, a batch of 500, {name}", growth, mode="drain, warm; CPU-s a batch, least of 5")
        say(f"tables batch, {name}: {growth}")
        fresh = _freshness(settings, seconds=60)
        book.keep(
            "tables", f"json, 1,000 records/s, {name}", fresh, mode="always on; s from timestamp to commit, cores"
        )
        say(f"tables fresh, {name}: {fresh}")
    cores = {"cores": _cores_of_many(seconds=60)}
    book.keep(
        "tables", f"json, {_TABLES} tables, 1,000 records/s, one query", cores, mode="always on, every 5 s; cores"
    )
    say(f"tables, {_TABLES}: {cores}")


def _cost(
    encode: Callable[[dict[str, Any]], bytes], size: int, records: int, keys: int, settings: dict[str, Any]
) -> float:
    """Return the CPU-seconds per million records of the second of two drains."""
    with _mirror(settings) as mirror:
        spent = 0.0
        for first in (0, records):
            _land(mirror, encode, size, range(first, first + records), keys)
            spent = _drain(mirror, records)
        return spent / records * 1_000_000


def _batch_cost(rows: int, settings: dict[str, Any]) -> float:
    """Return the least CPU-seconds of five batches into a table of so many records, with as many keys."""
    with _mirror(settings) as mirror:
        _land(mirror, _json, 100, range(rows), rows)
        _drain(mirror, rows)
        spent = []
        for first in range(rows, rows + 5 * _BATCH, _BATCH):
            _land(mirror, _json, 100, range(first, first + _BATCH), rows)
            spent.append(_drain(mirror, _BATCH))
        return min(spent)


def _cores_of_many(*, seconds: int) -> float:
    """Return the cores that tables of one topic each take."""
    topics = [f"sales{number}" for number in range(_TABLES)]
    tables = [{"topics": topic, "every": "5s"} for topic in topics]
    with _mirror(*tables, topics=topics) as mirror, beside(lambda stop: mirror.keep_tables(stop=stop)):
        each = 500 // _TABLES

        def land(turn: int) -> None:
            _land(mirror, _json, 100, range(turn * each, turn * each + each), 10_000, topics=topics)

        return _cores_of_turns(land, seconds)


def _cores_of_turns(land: Callable[[int], None], seconds: int) -> float:
    """Land twice a second, and return the cores that all took after the warm-up."""
    spent = 0.0
    for turn in range(2 * (seconds + _WARM_S)):
        spent = _cpu() if turn == 2 * _WARM_S else spent
        end = time.monotonic() + 0.5
        land(turn)
        time.sleep(max(0.0, end - time.monotonic()))
    return (_cpu() - spent) / seconds


def _freshness(settings: dict[str, Any], *, seconds: int) -> dict[str, float]:
    """Land 1 000 records/s beside a running query; return the seconds from a record's timestamp to the commit with its row."""
    with _mirror(settings) as mirror:
        _land(mirror, _json, 100, range(1_000), 10_000)
        _drain(mirror, 1_000)

        def land(turn: int) -> None:
            first = 1_000 + 500 * turn
            _land(mirror, _json, 100, range(first, first + 500), 10_000, at=datetime.now(timezone.utc))

        with beside(lambda stop: mirror.keep_tables(stop=stop)):
            cores = _cores_of_turns(land, seconds)
        waited = sorted(_waited(Path(mirror.lake.typed_location("sales")), after=1_000 + 1_000 * _WARM_S))
        return {
            "p50 s": waited[len(waited) // 2],
            "p99 s": waited[len(waited) * 99 // 100],
            "cores": cores,
        }


def _waited(table: Path, *, after: int) -> Iterator[float]:
    """Yield the seconds from each record's timestamp to the first commit with its row, from an offset on."""
    seen = set[int]()
    for commit in sorted((table / "_delta_log").glob("*.json")):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        at = next(one["commitInfo"]["timestamp"] for one in actions if "commitInfo" in one) / 1000
        for path in (unquote(one["add"]["path"]) for one in actions if "add" in one):
            # Of an upserted table, a file that was replaced may be deleted by now.
            for row in pq.read_table(table / path, columns=["_offset", "_timestamp"]).to_pylist():
                if row["_offset"] >= after and row["_offset"] not in seen:
                    seen.add(row["_offset"])
                    yield at - row["_timestamp"].timestamp()


@contextmanager
def _mirror(*tables: dict[str, Any], topics: Sequence[str] = ("sales",)) -> Iterator[Mirror]:
    with tempfile.TemporaryDirectory() as folder:
        mirror = from_settings(
            {
                "lake": {"root": folder},
                "clusters": {alias: {"bootstrap_servers": "127.0.0.1:1"} for alias in ("east", "central")},
                "flows": [{"source": "east", "target": "central", "topics": ".*"}],
                "tables": [{"topics": "sales", **table} for table in tables],
            }
        )
        mirror.lake.create_all(["east"])
        known = [KnownTopic(name=topic, generation=1, topic_id=topic, partitions=1, present=True) for topic in topics]
        mirror.lake.append(METADATA, [topic_row("east", "source", topic, _NOW) for topic in known])
        yield mirror


def _drain(mirror: Mirror, records: int) -> float:
    """Write what the relay holds, so many records; return the CPU-seconds."""
    before = _cpu()
    [done] = mirror.keep_tables(once=True)
    if (done.records, done.bad) != (records, 0):
        raise AssertionError(f"{records} records, but {done} were written")
    return _cpu() - before


def _land(
    mirror: Mirror,
    encode: Callable[[dict[str, Any]], bytes],
    size: int,
    offsets: range,
    keys: int,
    *,
    at: datetime | None = None,
    topics: Sequence[str] = ("sales",),
) -> None:
    """Land records in one commit, those of `offsets` in each topic."""
    rng, rows = random.Random(offsets.start), len(offsets) * len(topics)
    note = "x" * max(0, size - 90)
    values = [
        encode({"id": n, "customer": f"c{n % 9999}", "amount": rng.random() * 100, "paid": n % 2 == 0, "note": note})
        for _ in topics
        for n in offsets
    ]
    columns: dict[str, Any] = {
        "topic": [topic for topic in topics for _ in offsets],
        "generation": [1] * rows,
        "partition": [0] * rows,
        "offset": [*offsets] * len(topics),
        "timestamp": [at or _NOW] * rows,
        "timestamp_type": [0] * rows,
        "key": [b"%d" % rng.randrange(keys) for _ in range(rows)],
        "value": values,
        "headers": [None] * rows,
        "landed_at": [at or _NOW] * rows,
    }
    write_deltalake(mirror.lake.relay_location("east"), pa.table(columns, schema=TABLES["relay"]), mode="append")


def _json(sale: dict[str, Any]) -> bytes:
    return json.dumps(sale).encode()


def _avro(sale: dict[str, Any]) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, _PARSED, sale)
    return out.getvalue()


def _cpu() -> float:
    """Return the CPU-seconds of this process, the JVM and its workers, also of those that ended."""
    process, total = psutil.Process(), 0.0
    for one in (process, *process.children(recursive=True)):
        times = one.cpu_times()
        total += times.user + times.system + times.children_user + times.children_system
    return total


@contextmanager
def _registry() -> Iterator[RegistryServer]:
    with tempfile.TemporaryDirectory() as folder:
        registry = RegistryServer(Path(folder)).start()
        try:
            yield registry
        finally:
            registry.kill()
