"""The jobs as clients of Spark Connect, with neither a JVM nor a classic session: tables of a catalog, and a folder."""

from __future__ import annotations

import json
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import urlopen

import pytest

from mirrorlake.sandbox import KafkaCluster
from mirrorlake.sandbox.ports import free_ports
from tests.commands import write_conf
from tests.flow.kit import (
    ABORTED,
    assert_equal_topics,
    consume,
    count,
    new_topic,
    produce,
    send_transactions,
    topics_of,
    wait_until,
)
from tests.servers.connect import HOUSE, ConnectServer, Said

Clusters = Mapping[str, KafkaCluster]


@pytest.fixture
def clusters(east: KafkaCluster, central: KafkaCluster) -> Clusters:
    return {"east": east, "central": central}


def job(name: str, *arguments: str) -> list[str]:
    return [str(HOUSE / "jobs" / "mirrorlake.py"), name, *arguments]


def write_settings(folder: Path, clusters: Clusters, lake: Mapping[str, str] | None = None, **flow: Any) -> str:
    addresses = {alias: one.bootstrap_servers for alias, one in clusters.items()}
    flows = [{"source": "east", "target": "central", "sync": {"groups": False}, **flow}]
    return str(write_conf(folder, addresses, flows, lake=lake))


def is_live(port: int) -> bool:
    try:
        with urlopen(f"http://127.0.0.1:{port}/healthz") as answer:
            return {"land east", "republish east->central"} == set(json.load(answer)["streams"])
    except HTTPError as refused:
        return json.load(refused)["live"]
    except URLError:
        return False


def check_answers(step: Callable[..., Said], conf: list[str], topic: str, *, records: int) -> None:
    """Apply the settings, drain the source, and ask what there is to ask."""
    step(*job("apply", *conf))
    ran = step(*job("run", "--once", *conf, "--json")).document
    assert [sum(one["records"] for one in ran[name]) for name in ("landed", "republished")] == [records, records]
    [flow] = step(*job("status", *conf, "--json")).document["flows"]
    assert {row["verdict"] for row in flow["partitions"]} == {"OK"}, flow
    assert {row["offset_lag"] for row in flow["partitions"]} == {0}, flow
    place = ["--flow", "east->central", "--topic", topic, "--partition", "1", "--offset", "7"]
    translated = step("offsets", *place, *conf, "--json").document
    assert translated["status"] == "exact", translated


@pytest.mark.law("C", "D", "F")
def test_tables_of_a_catalog_are_mirrored_over_connect_once_and_always_on_until_the_server_dies(
    connect_server: ConnectServer, clusters: Clusters, tmp_path: Path
) -> None:
    """The run ends by itself with exit 4, as its session is gone with the server; the next one goes on where it was."""
    east, central = clusters["east"], clusters["central"]
    topic = new_topic(east, 300, partitions=3)
    remote = f"east.{topic}"
    aborted = [({"value": ABORTED + b"x", "partition": 0},)] * 2
    kept = [{"value": b"kept", "partition": number, "headers": [("h", b"1"), ("h", None)]} for number in range(3)]
    send_transactions(east, topic, [(kept, True), ([one for (one,) in aborted], False)])
    lake = {"catalog": "spark_catalog", "schema": "mirror", "checkpoints": str(tmp_path / "checkpoints")}
    conf = ["--conf", write_settings(tmp_path, clusters, lake, topics=topic, execution="streaming")]
    # As on Databricks, whose own statement is refused here: the tables are made all the same, and the log says what to do.
    with connect_server.steps(DATABRICKS_RUNTIME_VERSION="17.3") as step:
        step("sql", "CREATE SCHEMA spark_catalog.mirror")
        check_answers(step, conf, topic, records=303)
        assert_equal_topics(consume(east, topic), consume(central, remote))
        # A stranger's rewrite of the relay, as predictive optimisation does it, between landing and republishing.
        produce(east, topic, 60, partitions=3, seed=2)
        assert step(*job("land", "--source", "east", "--once", *conf, "--json")).document["records"] == 60
        step("sql", "OPTIMIZE spark_catalog.mirror.relay_east")
        again = step(*job("republish", "--flow", "east->central", "--once", *conf, "--json"))
        assert again.document["records"] == 60, "law F: a rewritten relay was sent again, or not at all"
    refused = "next=ALTER TABLE `spark_catalog`.`mirror`.`relay_east` DISABLE PREDICTIVE OPTIMIZATION"
    assert refused in again.log
    assert_equal_topics(consume(east, topic), consume(central, remote))

    produce(east, topic, 100, partitions=3, seed=3)
    process = connect_server.client(*job("run", *conf))

    def sent(records: int) -> bool:
        return process.poll() is not None or count(central, remote) >= records

    try:
        wait_until(lambda: sent(463), "what was there has come")
        assert process.poll() is None, process.communicate()
        assert "VERSION_NOT_FOUND" not in connect_server.log, "a look at an unchanged table is no error to the server"
        produce(east, topic, 20_000, partitions=3, seed=4)
        wait_until(lambda: sent(464), "what came later is under way")
        connect_server.kill()
        out, err = process.communicate(timeout=300)
    finally:
        process.kill()
    assert process.returncode == 4, out + err
    assert "Spark does not answer" in err, err
    connect_server.start()
    produce(east, topic, 50, partitions=3, seed=5)
    with connect_server.steps() as step:
        # This server's catalog is in its memory.
        step("sql", "CREATE SCHEMA spark_catalog.mirror")
        for one in connect_server.tables("mirror"):
            step("sql", f"CREATE TABLE spark_catalog.mirror.{one.name} USING delta LOCATION '{one}'")
        step(*job("run", "--once", *conf))
        # Of the relay that was rewritten and of what was landed since, by whichever server.
        verified = step(*job("verify", *conf, "--json"))
    assert verified.document["flows"][0]["equal"], verified.document
    assert count(central, remote) == 20_513
    assert_equal_topics(consume(east, topic), consume(central, remote))


@pytest.mark.law("C", "D", "F")
def test_a_folder_is_mirrored_over_connect_once_and_always_on(
    connect_server: ConnectServer, clusters: Clusters, tmp_path: Path
) -> None:
    east, central = clusters["east"], clusters["central"]
    topic = new_topic(east, 100)
    conf = ["--conf", write_settings(tmp_path, clusters, topics=topic)]
    with connect_server.steps() as step:
        check_answers(step, conf, topic, records=100)
        [verified] = step(*job("verify", *conf, "--json")).document["flows"]
        assert verified["equal"], verified
    (port,) = free_ports(1)
    process = connect_server.client(*job("run", "--metrics-port", str(port), *conf))
    produce(east, topic, 100, seed=2)
    wait_until(lambda: process.poll() is not None or count(central, f"east.{topic}") == 200, "all are on the target")
    wait_until(lambda: process.poll() is not None or is_live(port), "a probe hears that turns are made")
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=400)
    assert process.returncode == 0, out + err
    assert_equal_topics(consume(east, topic), consume(central, f"east.{topic}"))
    assert topic in topics_of(east)
