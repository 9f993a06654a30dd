"""Typed tables of several regions, kept while a mirror runs and is killed, equal a fold over the source topics."""

from __future__ import annotations

import json
import random
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from mirrorlake.config.predicates import engine
from mirrorlake.sandbox import KafkaCluster, start_all
from tests.commands import run_cli, told, write_conf
from tests.flow.kit import Process, consume, create_topic, wait_until

REGIONS = ("east", "west")
KILLS = 1


class Shop(threading.Thread):
    """Sell in two regions until `stop` is set: sales are appended, customers change and leave; some records are broken."""

    def __init__(self, addresses: dict[str, str], seed: int) -> None:
        super().__init__(daemon=True)
        self._producers = {
            alias: Producer({"bootstrap.servers": address, "linger.ms": 5}) for alias, address in addresses.items()
        }
        self._rng = random.Random(seed)
        self.stop = threading.Event()
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            number = 0
            while not self.stop.wait(0.05):
                for alias, producer in self._producers.items():
                    for _ in range(5):
                        number += 1
                        self._sell(alias, producer, number)
                    producer.poll(0)
            for producer in self._producers.values():
                assert producer.flush(60) == 0
        except BaseException as error:
            self.failure = error

    def _sell(self, alias: str, producer: Producer, number: int) -> None:
        rng = self._rng
        sale: dict[str, Any] = {"id": number, "amount": round(rng.random() * 100, 2), "region": alias}
        if number > 1_000:
            sale["lines"] = [{"item": rng.choice("abc"), "count": rng.randrange(9)}]
        value = b"{broken" if number % 101 == 0 else json.dumps(sale).encode()
        producer.produce("sales", value, f"s{number}".encode())
        customer = rng.randrange(40)
        known = None if rng.random() < 0.2 else json.dumps({"name": f"c{customer}", "bought": number}).encode()
        producer.produce("customers", known, f"c{customer}".encode())


@pytest.mark.law("F")
@pytest.mark.parametrize("seed", [301126])
def test_law_f_tables_of_a_mirror_that_is_killed_equal_a_fold_over_the_topics(
    make_cluster: Callable[..., KafkaCluster], spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    rng = random.Random(seed)
    clusters = dict(
        zip((*REGIONS, "central"), start_all([make_cluster(alias) for alias in (*REGIONS, "central")]), strict=True)
    )
    addresses = {alias: cluster.bootstrap_servers for alias, cluster in clusters.items()}
    for alias in REGIONS:
        create_topic(clusters[alias], "sales", 3)
        create_topic(clusters[alias], "customers", 2)
    conf = write_conf(
        tmp_path, addresses, [{"source": alias, "target": "central", "topics": ".*"} for alias in REGIONS]
    )
    settings = json.loads(conf.read_text())
    settings["maintenance"] = {"every": "5s", "keep_removed": "1h", "keep_log": "5m"}
    settings["tables"] = [
        {"topics": "sales", "every": "1s", "columns": {"cents": "CAST(amount * 100 AS BIGINT)"}},
        {"topics": "customers", "mode": "upsert", "every": "1s"},
    ]
    conf.write_text(json.dumps(settings))
    shop = Shop({alias: addresses[alias] for alias in REGIONS}, seed)
    shop.start()
    process = Process(tmp_path / "run.log", "run", "--conf", str(conf))
    seen = {"version": -1}
    try:
        for _ in range(KILLS):
            wait_until(lambda: _newest(tmp_path, "customers") > seen["version"], "the table has come further")
            threading.Event().wait(rng.uniform(0.5, 5.0))
            process.kill()
            seen["version"] = _newest(tmp_path, "customers")
            process = Process(tmp_path / "run.log", "run", "--conf", str(conf))
        wait_until(lambda: _newest(tmp_path, "customers") > seen["version"], "the table has come further")
        shop.stop.set()
        shop.join(120)
        assert shop.failure is None, shop.failure
        assert process.terminate() == 0, process.output[-4000:]
        drained = run_cli("run", "--once", "--conf", str(conf))
        assert drained.returncode == 0, drained.stderr
        listed = told("tables", "--conf", str(conf))["tables"]
        assert {one["name"]: (one["state"], one["offset_lag"]) for one in listed} == {
            "sales": ("ok", 0),
            "customers": ("ok", 0),
        }
    except BaseException:
        sys.stderr.write(process.output[-6000:])
        raise
    finally:
        if process.is_running:
            process.kill()
    sales, broken = _sales(clusters)
    found = {
        (row["_source"], row["_partition"], row["_offset"]): (row["id"], row["amount"], row["cents"], row["lines"])
        for row in _rows(tmp_path, "sales")
    }
    assert len(_rows(tmp_path, "sales")) == len(found)
    assert found == sales
    bad = DeltaTable(tmp_path / "lake" / "meta" / "bad_records").to_pyarrow_table().to_pylist()
    assert sorted((row["source"], row["partition"], row["offset"]) for row in bad) == sorted(broken)
    customers = {(row["_source"], row["_key"]): (row["name"], row["bought"]) for row in _rows(tmp_path, "customers")}
    assert customers == _customers(clusters)
    location = str(tmp_path / "lake" / "tables" / "sales")
    total = sum(amount for _, amount, *_ in sales.values())
    with engine() as connection:
        connection.register("sales", DeltaTable(location).to_pyarrow_dataset())
        assert connection.sql("SELECT sum(amount) FROM sales").fetchall()[0][0] == pytest.approx(total)
    assert spark.read.format("delta").load(location).count() == len(sales)


def _newest(folder: Path, name: str) -> int:
    log = folder / "lake" / "tables" / name / "_delta_log"
    return max((int(commit.stem) for commit in log.glob("*.json")), default=-1)


def _rows(folder: Path, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = DeltaTable(folder / "lake" / "tables" / name).to_pyarrow_table().to_pylist()
    return rows


def _sales(clusters: dict[str, KafkaCluster]) -> tuple[dict[Any, Any], list[Any]]:
    """Return what each record of the topic sales should be: a row, or a bad record."""
    rows, broken = {}, []
    for alias in REGIONS:
        for partition, records in consume(clusters[alias], "sales").items():
            for record in records:
                place = alias, partition, record.offset
                try:
                    sale = json.loads(record.value or b"")
                except ValueError:
                    broken.append(place)
                    continue
                rows[place] = sale["id"], sale["amount"], int(sale["amount"] * 100), sale.get("lines")
    return rows, broken


def _customers(clusters: dict[str, KafkaCluster]) -> dict[Any, Any]:
    """Return the newest value of each key of each region."""
    found: dict[Any, Any] = {}
    for alias in REGIONS:
        for records in consume(clusters[alias], "customers").values():
            for record in records:
                value = None if record.value is None else json.loads(record.value)
                found[alias, (record.key or b"").decode()] = value
    return {key: (value["name"], value["bought"]) for key, value in found.items() if value is not None}
