"""Typed tables of three regions, kept while a mirror runs and is killed, equal a fold over the source topics.

`KILLS=10` kills the mirror as often; once is for every day.
"""

from __future__ import annotations

import json
import os
import random
import sys
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from mirrorlake.mirror import load
from mirrorlake.sandbox import KafkaCluster, start_all
from tests.kit.commands import run_cli, told, write_conf
from tests.kit.processes import Process, wait_until
from tests.kit.records import consume, create_topic
from tests.servers.registry import RegistryServer
from tests.servers.schemas import Writer, protobuf

REGIONS = ("east", "north", "west")
KILLS = int(os.environ.get("KILLS", "1"))
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


class Shop(threading.Thread):
    """Sell in three regions until `stop` is set: sales, some broken, and orders are appended; customers change and leave."""

    def __init__(self, addresses: dict[str, str], registry: RegistryServer, customer: Any, seed: int) -> None:
        super().__init__(daemon=True)
        self._producers = {
            alias: Producer({"bootstrap.servers": address, "linger.ms": 5}) for alias, address in addresses.items()
        }
        self._rng = random.Random(seed)
        self._order, self._customer = Writer(registry, "orders"), Writer(registry, "customers")
        self._kind = customer
        # The registry is away later.
        self._order(FIRST, {"id": 0, "customer": ""})
        self._order(SECOND, {"id": 0, "customer": "", "currency": ""})
        self._customer.protobuf(customer())
        self.stop = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            number = 0
            # Bursts: each commit of a relay costs its three tables, its flow and its upkeep.
            while not self.stop.wait(1.0):
                for producer in self._producers.values():
                    for _ in range(6):
                        number += 1
                        self._sell(producer, number)
                    producer.poll(0)
            for producer in self._producers.values():
                assert producer.flush(60) == 0
        except BaseException as error:
            self.failure = error

    def _sell(self, producer: Producer, number: int) -> None:
        rng = self._rng
        name = f"c{rng.randrange(40)}"
        sale: dict[str, Any] = {"id": number, "amount": round(rng.random() * 100, 2), "customer": name}
        if number > 300:
            sale["lines"] = [{"item": rng.choice("abc"), "count": rng.randrange(9)}]
        value = b"{broken" if number % 37 == 0 else json.dumps(sale).encode()
        producer.produce("sales", value, f"s{number}".encode())
        order = {"id": number, "customer": name}
        newer = number > 150 and rng.random() < 0.5
        written = self._order(SECOND, {**order, "currency": "USD"}) if newer else self._order(FIRST, order)
        producer.produce("orders", written, f"o{number}".encode())
        known = None if rng.random() < 0.2 else self._customer.protobuf(self._kind(name=name.upper(), bought=number))
        producer.produce("customers", known, name.encode())


@pytest.mark.law("F")
@pytest.mark.parametrize("seed", [301126])
def test_law_f_tables_of_a_mirror_that_is_killed_equal_a_fold_over_the_topics(
    make_cluster: Callable[..., KafkaCluster],
    make_registry: Callable[[str], RegistryServer],
    spark: SparkSession,
    tmp_path: Path,
    seed: int,
) -> None:
    rng, registry, customer = random.Random(seed), make_registry("shop"), protobuf(tmp_path / "proto")
    clusters = dict(
        zip((*REGIONS, "central"), start_all([make_cluster(alias) for alias in (*REGIONS, "central")]), strict=True)
    )
    addresses = {alias: cluster.bootstrap_servers for alias, cluster in clusters.items()}
    for alias in REGIONS:
        for topic, partitions in (("sales", 3), ("orders", 2), ("customers", 2)):
            create_topic(clusters[alias], topic, partitions)
    conf = write_conf(
        tmp_path, addresses, [{"source": alias, "target": "central", "topics": ".*"} for alias in REGIONS]
    )
    settings = json.loads(conf.read_text())
    settings["maintenance"] = {"every": "15s", "keep_removed": "1h", "keep_log": "5m"}
    shared = {"every": "8s", "registry": {"url": registry.url}}
    settings["tables"] = [
        {"topics": "sales", "every": "8s", "columns": {"cents": "CAST(amount * 100 AS BIGINT)"}},
        {"topics": "orders", "values": "avro", **shared},
        {"topics": "customers", "values": "protobuf", "mode": "upsert", **shared},
    ]
    conf.write_text(json.dumps(settings))
    shop = Shop({alias: addresses[alias] for alias in REGIONS}, registry, customer, seed)
    shop.start()
    process = Process(tmp_path / "run.log", "run", "--conf", str(conf))

    def wait_for_rows(*names: str) -> None:
        seen = {name: _newest(tmp_path, name) for name in names}
        # Three tables, three sources and a target beside the rest of the suite: half a minute alone, three and a half at a load of 25.
        wait_until(
            lambda: all(_newest(tmp_path, name) > seen[name] for name in names),
            f"{names} have come further",
            timeout=900,
        )

    try:
        for kill in range(KILLS):
            wait_for_rows("sales", "orders", "customers")
            threading.Event().wait(rng.uniform(0.5, 10.0))
            process.kill()
            if kill == 0:
                registry.kill()
            process = Process(tmp_path / "run.log", "run", "--conf", str(conf))
            if kill == 0:
                before = _newest(tmp_path, "customers")
                wait_for_rows("sales")
                assert _newest(tmp_path, "customers") == before, "no schema is known, and the others go on"
                registry.start()
        wait_for_rows("sales", "orders", "customers")
        shop.stop.set()
        shop.join(120)
        assert shop.failure is None, shop.failure
        assert process.terminate() == 0, process.output[-4000:]
        drained = run_cli("run", "--once", "--conf", str(conf))
        assert drained.returncode == 0, drained.stderr
        listed = told("tables", "--conf", str(conf))["tables"]
        found = {one["name"]: (one["state"], one["offset_lag"]) for one in listed}
        assert found == dict.fromkeys(("sales", "orders", "customers"), ("ok", 0))
    except BaseException:
        sys.stderr.write(process.output[-6000:])
        raise
    finally:
        if process.is_running:
            process.kill()
    sales, broken = _sales(clusters)
    orders, customers = _orders(clusters, registry), _customers(clusters, customer)
    place = ("_source", "_partition", "_offset")
    assert _rows(tmp_path, "sales", place, ("id", "amount", "cents", "customer", "lines")) == sales
    assert _rows(tmp_path, "orders", place, ("id", "customer", "currency")) == orders
    assert _rows(tmp_path, "customers", ("_source", "_key"), ("name", "bought")) == customers
    bad = DeltaTable(tmp_path / "lake" / "meta" / "bad_records").to_pyarrow_table().to_pylist()
    assert sorted((row["source"], row["partition"], row["offset"]) for row in bad) == sorted(broken)
    answer = load(conf).query(JOIN).to_pylist()
    assert {(row["_source"], row["name"]): (pytest.approx(row["amount"]), row["orders"]) for row in answer} == _joined(
        sales, orders, customers
    )
    assert spark.read.format("delta").load(str(tmp_path / "lake" / "tables" / "sales")).count() == len(sales)


def _newest(folder: Path, name: str) -> int:
    """Return the number of a table's newest batch; upkeep's commits have none."""
    commits = (folder / "lake" / "tables" / name / "_delta_log").glob("*.json")
    infos = [json.loads(line).get("commitInfo", {}) for commit in commits for line in commit.read_text().splitlines()]
    return max((json.loads(one["userMetadata"]).get("batch", -1) for one in infos if "userMetadata" in one), default=-1)


def _rows(folder: Path, name: str, by: tuple[str, ...], columns: tuple[str, ...]) -> dict[Any, Any]:
    rows = DeltaTable(folder / "lake" / "tables" / name).to_pyarrow_table().to_pylist()
    found = {tuple(row[column] for column in by): tuple(row[column] for column in columns) for row in rows}
    assert len(found) == len(rows), "each once"
    return found


def _records(clusters: dict[str, KafkaCluster], topic: str) -> Iterator[tuple[tuple[str, int, int], Any]]:
    for alias in REGIONS:
        for partition, records in consume(clusters[alias], topic).items():
            for record in records:
                yield (alias, partition, record.offset), record


def _sales(clusters: dict[str, KafkaCluster]) -> tuple[dict[Any, Any], list[Any]]:
    """Return what each record of the topic sales should be: a row, or a bad record."""
    rows, broken = {}, []
    for place, record in _records(clusters, "sales"):
        try:
            sale = json.loads(record.value or b"")
        except ValueError:
            broken.append(place)
            continue
        rows[place] = sale["id"], sale["amount"], int(sale["amount"] * 100), sale["customer"], sale.get("lines")
    return rows, broken


def _orders(clusters: dict[str, KafkaCluster], registry: RegistryServer) -> dict[Any, Any]:
    """Return each record of the topic orders, read into the second schema."""
    read = AvroDeserializer(SchemaRegistryClient({"url": registry.url}), SECOND)
    context = SerializationContext("orders", MessageField.VALUE)
    orders = {place: read(record.value, context) for place, record in _records(clusters, "orders")}
    return {place: (order["id"], order["customer"], order["currency"]) for place, order in orders.items()}


def _customers(clusters: dict[str, KafkaCluster], kind: Any) -> dict[Any, Any]:
    """Return the newest value of each key of each region."""
    read = ProtobufDeserializer(kind, {"use.deprecated.format": False})
    context = SerializationContext("customers", MessageField.VALUE)
    found: dict[Any, Any] = {}
    for (alias, *_), record in _records(clusters, "customers"):
        found[alias, (record.key or b"").decode()] = None if record.value is None else read(record.value, context)
    return {key: (value.name, value.bought) for key, value in found.items() if value is not None}


def _joined(sales: dict[Any, Any], orders: dict[Any, Any], customers: dict[Any, Any]) -> dict[Any, Any]:
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
