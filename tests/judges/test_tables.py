"""Typed tables of three regions, kept by drains that die, equal a fold over the source topics."""

from __future__ import annotations

import json
import random
import signal
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from deltalake import DeltaTable
from pyspark.sql import SparkSession

import mirrorlake as ml
from mirrorlake.sandbox import KafkaCluster
from tests.kit.commands import run_cli, told, write_conf
from tests.kit.processes import Killed, Process, acting, kill
from tests.kit.records import consume, create_topic, new_topic, send, topic_name
from tests.servers.registry import RegistryServer
from tests.servers.schemas import Writer, protobuf

Regions = Mapping[str, KafkaCluster]
NAMES = ("sales", "orders", "customers")
FIELDS = [{"name": "id", "type": "int"}, {"name": "customer", "type": "string"}]
CURRENCY = {"name": "currency", "type": "string", "default": "EUR"}
FIRST, SECOND = (
    json.dumps({"type": "record", "name": "Order", "fields": fields})
    for fields in (FIELDS, [{"name": "id", "type": "long"}, FIELDS[1], CURRENCY])
)
JOIN = """
SELECT c._source, c.name, s.amount, o.orders FROM customers c
JOIN (SELECT _source, customer, sum(amount) AS amount FROM sales GROUP BY _source, customer) s
  ON s._source = c._source AND s.customer = c._key
JOIN (SELECT _source, customer, count(*) AS orders FROM orders GROUP BY _source, customer) o
  ON o._source = c._source AND o.customer = c._key
"""


@pytest.mark.law("G")
def test_law_g_apply_puts_the_tables_in_force_that_plan_has_shown(
    east: KafkaCluster, central: KafkaCluster, tmp_path: Path
) -> None:
    topic = new_topic(east, partitions=1, prefix="sales")
    addresses = {"east": east.bootstrap_servers, "central": central.bootstrap_servers}
    flows = [{"source": "east", "target": "central", "topics": topic}]
    conf = write_conf(tmp_path, addresses, flows, tables=[{"topics": topic, "name": "sales"}])
    mirror = ml.load(conf)
    planned = {(one.where, one.kind, one.name, one.action) for one in mirror.plan().changes}
    assert ("settings", "table", "sales", "create") in planned
    assert all(one.kind != "table" or one.where == "lake" for one in mirror.plan("east->central").changes)
    mirror.apply()
    assert not mirror.plan()
    # Nothing landed, so no topic of a table is known.
    assert mirror.status().tables == ()
    mirror.land("east", once=True)
    [table] = told("status", "--conf", str(conf))["tables"]
    assert (table["name"], table["state"], table["verdict"], table["offset_lag"]) == ("sales", "new", "OK", 0)


class Shop:
    """Sells in three regions: sales, some broken, and orders are appended; customers change and leave."""

    def __init__(self, regions: Regions, tag: str, registry: RegistryServer, customer: Any, seed: int) -> None:
        self._regions, self._tag, self._kind = regions, tag, customer
        self._rng, self._number = random.Random(seed), 0
        self._order, self._customer = Writer(registry, f"orders-{tag}"), Writer(registry, f"customers-{tag}")
        # The registry is away later.
        self._order(FIRST, {"id": 0, "customer": ""})
        self._order(SECOND, {"id": 0, "customer": "", "currency": ""})
        self._customer.protobuf(customer())

    def sell(self, records: int = 40) -> None:
        for cluster in self._regions.values():
            sold = [self._sell() for _ in range(records)]
            for name, several in zip(NAMES, zip(*sold, strict=True), strict=True):
                send(cluster, f"{name}-{self._tag}", several)

    def _sell(self) -> tuple[tuple[Any, bytes], ...]:
        self._number += 1
        rng, number, name = self._rng, self._number, f"c{self._rng.randrange(40)}"
        sale: dict[str, Any] = {"id": number, "amount": round(rng.random() * 100, 2), "customer": name}
        if number > 300:
            sale["lines"] = [{"item": rng.choice("abc"), "count": rng.randrange(9)}]
        value = b"{broken" if number % 37 == 0 else json.dumps(sale).encode()
        order = {"id": number, "customer": name}
        newer = number > 150 and rng.random() < 0.5
        written = self._order(SECOND, {**order, "currency": "USD"}) if newer else self._order(FIRST, order)
        known = None if rng.random() < 0.2 else self._customer.protobuf(self._kind(name=name.upper(), bought=number))
        return (value, f"s{number}".encode()), (written, f"o{number}".encode()), (known, name.encode())


@pytest.mark.law("F")
@pytest.mark.parametrize("seed", [301126])
def test_law_f_tables_of_drains_that_die_equal_a_fold_over_the_topics(
    east: KafkaCluster,
    west: KafkaCluster,
    central: KafkaCluster,
    registry: RegistryServer,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    seed: int,
) -> None:
    regions, tag, customer = (
        {"east": east, "north": central, "west": west},
        topic_name("shop"),
        protobuf(tmp_path / "p"),
    )
    for cluster in regions.values():
        for name, partitions in zip(NAMES, (3, 2, 2), strict=True):
            create_topic(cluster, f"{name}-{tag}", partitions)
    shared = {"registry": {"url": registry.url}}
    tables = [
        {"columns": {"cents": "CAST(amount * 100 AS BIGINT)"}},
        {"values": "avro", **shared},
        {"values": "protobuf", "mode": "upsert", **shared},
    ]
    topics = ", ".join(f"{name}-{tag}" for name in NAMES)
    targets = {"east": "north", "north": "east", "west": "north"}
    flows = [{"name": f"{one}-{tag}", "source": one, "target": to, "topics": topics} for one, to in targets.items()]
    written = write_conf(
        tmp_path,
        {alias: cluster.bootstrap_servers for alias, cluster in regions.items()},
        flows,
        tables=[{"topics": f"{name}-{tag}", "name": name, **more} for name, more in zip(NAMES, tables, strict=True)],
    )
    conf, shop = str(written), Shop(regions, tag, registry, customer, seed)

    def listed() -> dict[str, tuple[str, int]]:
        return {one["name"]: (one["state"], one["offset_lag"]) for one in told("tables", "--conf", conf)["tables"]}

    # The first batch of a table is in it, and its process is dead.
    shop.sell()
    process = Process(tmp_path / "run.log", "run", "--once", "--conf", conf, MIRRORLAKE_DIE_AT="table.committed")
    assert process.popen.wait(400) == -signal.SIGKILL, process.output
    # No schema is known, and the others go on.
    shop.sell()
    registry.kill()
    try:
        run_cli("run", "--once", "--conf", conf)
        sold = listed()
        assert (sold["sales"], sold["customers"][1] > 0) == (("ok", 0), True), sold
    finally:
        registry.start()
    # Ten deaths in all: after the bad records, the files and the commit; upkeep takes numbers of batches.
    monkeypatch.setenv("MIRRORLAKE_TIMING", "hot_s=0")
    points = ("table.bad_recorded", "table.files_written", "table.committed")
    for number, point in enumerate(points * 3):
        shop.sell(40 if number < 2 else 20)
        with acting(point, kill, nth=1 + number // 3 if point == points[2] else 1), pytest.raises(Killed):
            ml.load(conf, spark=spark).run(once=True)
        if number < 2:
            ml.load(conf, spark=spark).maintain()
    shop.sell()
    drained = run_cli("run", "--once", "--conf", conf)
    assert drained.returncode == 0, drained.stderr
    assert listed() == dict.fromkeys(NAMES, ("ok", 0))

    sales, broken = sales_of(regions, tag)
    orders, customers = orders_of(regions, tag, registry), customers_of(regions, tag, customer)
    place = ("_source", "_partition", "_offset")
    assert rows(tmp_path, "sales", place, ("id", "amount", "cents", "customer", "lines")) == sales
    assert rows(tmp_path, "orders", place, ("id", "customer", "currency")) == orders
    assert rows(tmp_path, "customers", ("_source", "_key"), ("name", "bought")) == customers
    bad = DeltaTable(tmp_path / "lake" / "meta" / "bad_records").to_pyarrow_table().to_pylist()
    assert sorted((row["source"], row["partition"], row["offset"]) for row in bad) == sorted(broken)
    answer = ml.load(conf).query(JOIN).to_pylist()
    assert {(row["_source"], row["name"]): (pytest.approx(row["amount"]), row["orders"]) for row in answer} == joined(
        sales, orders, customers
    )
    assert spark.read.format("delta").load(str(tmp_path / "lake" / "tables" / "sales")).count() == len(sales)


def rows(folder: Path, name: str, by: tuple[str, ...], columns: tuple[str, ...]) -> dict[Any, Any]:
    held = DeltaTable(folder / "lake" / "tables" / name).to_pyarrow_table().to_pylist()
    found = {tuple(row[column] for column in by): tuple(row[column] for column in columns) for row in held}
    assert len(found) == len(held), "each once"
    return found


def records_of(regions: Regions, topic: str) -> Iterator[tuple[tuple[str, int, int], Any]]:
    for alias, cluster in regions.items():
        for partition, records in consume(cluster, topic).items():
            for record in records:
                yield (alias, partition, record.offset), record


def sales_of(regions: Regions, tag: str) -> tuple[dict[Any, Any], list[Any]]:
    """Return what each record of the topic sales should be: a row, or a bad record."""
    found, broken = {}, []
    for place, record in records_of(regions, f"sales-{tag}"):
        try:
            sale = json.loads(record.value or b"")
        except ValueError:
            broken.append(place)
            continue
        found[place] = sale["id"], sale["amount"], int(sale["amount"] * 100), sale["customer"], sale.get("lines")
    return found, broken


def orders_of(regions: Regions, tag: str, registry: RegistryServer) -> dict[Any, Any]:
    """Return each record of the topic orders, read with its own schema: a member that this lacks is NULL."""
    read = AvroDeserializer(SchemaRegistryClient({"url": registry.url}))
    context = SerializationContext(f"orders-{tag}", MessageField.VALUE)
    orders = {place: read(record.value, context) for place, record in records_of(regions, f"orders-{tag}")}
    return {place: (order["id"], order["customer"], order.get("currency")) for place, order in orders.items()}


def customers_of(regions: Regions, tag: str, kind: Any) -> dict[Any, Any]:
    """Return the newest value of each key of each region."""
    read = ProtobufDeserializer(kind, {"use.deprecated.format": False})
    context = SerializationContext(f"customers-{tag}", MessageField.VALUE)
    found: dict[Any, Any] = {}
    for (alias, *_), record in records_of(regions, f"customers-{tag}"):
        found[alias, (record.key or b"").decode()] = None if record.value is None else read(record.value, context)
    return {key: (value.name, value.bought) for key, value in found.items() if value is not None}


def joined(sales: dict[Any, Any], orders: dict[Any, Any], customers: dict[Any, Any]) -> dict[Any, Any]:
    """Return the amount and the number of orders of each customer who has both."""
    amounts, counts = defaultdict[Any, float](float), Counter[Any]()
    for (source, *_), (_, amount, _, name, _) in sales.items():
        amounts[source, name] += amount
    for (source, *_), (_, name, _) in orders.items():
        counts[source, name] += 1
    return {
        (source, name): (amounts[source, key], counts[source, key])
        for (source, key), (name, _) in customers.items()
        if (source, key) in amounts and (source, key) in counts
    }
