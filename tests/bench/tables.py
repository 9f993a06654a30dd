"""What typed tables cost: CPU-seconds per million records of all processes, of a warm drain from the relay."""

from __future__ import annotations

import io
import json
import random
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import fastavro
import psutil
import pyarrow as pa
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient
from deltalake import write_deltalake

from mirrorlake.lake.metadata import KnownTopic, topic_row
from mirrorlake.lake.schema import METADATA
from mirrorlake.mirror import Mirror, from_settings
from tests.bench.options import Options
from tests.bench.results import Book, Say
from tests.lakes import SCHEMA
from tests.servers.registry import RegistryServer

SIZES = (100, 1_000)
KEYS = (10_000, 1_000_000)
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


def _cost(
    encode: Callable[[dict[str, Any]], bytes], size: int, records: int, keys: int, settings: dict[str, Any]
) -> float:
    """Return the CPU-seconds per million records of the second of two drains."""
    with tempfile.TemporaryDirectory() as folder:
        mirror = from_settings(
            {
                "lake": {"root": folder},
                "clusters": {alias: {"bootstrap_servers": "127.0.0.1:1"} for alias in ("east", "central")},
                "flows": [{"source": "east", "target": "central", "topics": ".*"}],
                "tables": [{"topics": "sales", **settings}],
            }
        )
        mirror.lake.create_all(["east"])
        topic = KnownTopic(name="sales", generation=1, topic_id="sales", partitions=1, present=True)
        mirror.lake.append_rows(METADATA, [topic_row("east", "source", topic, _NOW)])
        spent = 0.0
        for first in (0, records):
            _land(mirror, encode, size, range(first, first + records), keys)
            before = _cpu()
            [done] = mirror.keep_tables(once=True)
            spent = _cpu() - before
            if (done.records, done.bad) != (records, 0):
                raise AssertionError(f"{records} records, but {done} were written")
        return spent / records * 1_000_000


def _land(mirror: Mirror, encode: Callable[[dict[str, Any]], bytes], size: int, offsets: range, keys: int) -> None:
    rng, rows = random.Random(offsets.start), len(offsets)
    note = "x" * max(0, size - 90)
    values = [
        encode({"id": at, "customer": f"c{at % 9999}", "amount": rng.random() * 100, "paid": at % 2 == 0, "note": note})
        for at in offsets
    ]
    columns: dict[str, Any] = {
        "topic": ["sales"] * rows,
        "generation": [1] * rows,
        "partition": [0] * rows,
        "offset": list(offsets),
        "timestamp": [_NOW] * rows,
        "timestamp_type": [0] * rows,
        "key": [b"%d" % rng.randrange(keys) for _ in offsets],
        "value": values,
        "headers": [None] * rows,
        "landed_at": [_NOW] * rows,
    }
    write_deltalake(mirror.lake.relay_location("east"), pa.table(columns, schema=SCHEMA), mode="append")


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
