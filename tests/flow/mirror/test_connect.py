"""Clients of Spark Connect, with neither a JVM nor a classic session: questions are answered, and streams are refused."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

import mirrorlake
from mirrorlake.sandbox import KafkaCluster
from tests.kit.commands import write_conf
from tests.kit.records import count, new_topic
from tests.servers.connect import HOUSE, ConnectServer, Said

Clusters = Mapping[str, KafkaCluster]
# What no command prints: SQL over the relay and over a view, by the session of the client.
_SQL = """
import sys
import mirrorlake
mirror = mirrorlake.load(sys.argv[1])
rows = mirror.sql("SELECT count(*) AS records FROM relay_east").collect()
print(rows[0].records)
"""


@pytest.fixture
def clusters(east: KafkaCluster, central: KafkaCluster) -> Clusters:
    return {"east": east, "central": central}


def job(name: str, *arguments: str) -> list[str]:
    return [str(HOUSE / "jobs" / "mirrorlake.py"), name, *arguments]


def write_settings(folder: Path, clusters: Clusters, lake: Mapping[str, str] | None = None, **flow: Any) -> str:
    addresses = {alias: one.bootstrap_servers for alias, one in clusters.items()}
    flows = [{"source": "east", "target": "central", "sync": {"groups": False}, **flow}]
    return str(write_conf(folder, addresses, flows, lake=lake))


def check_answers(step: Callable[..., Said], conf: list[str], topic: str) -> None:
    """Ask what there is to ask of a flow that has sent all."""
    [flow] = step(*job("status", *conf, "--json")).document["flows"]
    assert {row["verdict"] for row in flow["partitions"]} == {"OK"}, flow
    assert {row["offset_lag"] for row in flow["partitions"]} == {0}, flow
    place = ["--flow", "east->central", "--topic", topic, "--partition", "1", "--offset", "7"]
    translated = step("offsets", *place, *conf, "--json").document
    assert translated["status"] == "exact", translated
    step(*job("lag", *conf, "--json"))
    [verified] = step(*job("verify", *conf, "--json")).document["flows"]
    assert verified["equal"], verified


def check_refusals(step: Callable[..., Said], conf: list[str]) -> None:
    for stream in (
        job("run", "--once"),
        job("run"),
        job("land", "--source", "east", "--once"),
        job("republish", "--flow", "east->central"),
        job("tables", "--run", "--once"),
    ):
        refused = step(*stream, *conf, code=2)
        assert "streams need a classic Spark session" in refused.log.rpartition("error")[2], stream


def test_streams_are_refused_over_connect_and_questions_of_a_folder_are_answered(
    connect_server: ConnectServer, clusters: Clusters, tmp_path: Path
) -> None:
    topic = new_topic(clusters["east"], 100)
    path = write_settings(tmp_path, clusters, topics=topic)
    conf = ["--conf", path]
    with connect_server.steps() as step:
        step(*job("apply", *conf))
        check_refusals(step, conf)
        assert count(clusters["central"], f"east.{topic}") == 0
        mirrorlake.load(path).run(once=True)
        check_answers(step, conf, topic)
    asked = connect_server.client("-c", _SQL, path)
    out, err = asked.communicate(timeout=300)
    assert (asked.returncode, out.split()) == (0, ["100"]), err


def test_streams_are_refused_over_connect_and_questions_of_a_catalog_are_answered(
    connect_server: ConnectServer, clusters: Clusters, tmp_path: Path
) -> None:
    topic = new_topic(clusters["east"], 303, partitions=3)
    mirrorlake.load(write_settings(tmp_path, clusters, topics=topic)).run(once=True)
    lake = {"catalog": "spark_catalog", "schema": "mirror", "checkpoints": str(tmp_path / "checkpoints")}
    (tmp_path / "catalog").mkdir()
    conf = ["--conf", write_settings(tmp_path / "catalog", clusters, lake, topics=topic, execution="streaming")]
    with connect_server.steps() as step:
        step("sql", "CREATE SCHEMA spark_catalog.mirror")
        # What a classic session has landed and sent, as tables of the server's catalog.
        for log in (tmp_path / "lake").glob("*/*/_delta_log"):
            name = f"relay_{log.parent.name}" if log.parents[1].name == "relay" else log.parent.name
            step("sql", f"CREATE TABLE spark_catalog.mirror.{name} USING delta LOCATION '{log.parent}'")
        check_refusals(step, conf)
        check_answers(step, conf, topic)
