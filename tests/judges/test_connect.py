"""A client of Spark Connect, with neither a JVM nor a classic session: questions are answered, and streams are refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession

import mirrorlake as ml
from mirrorlake.sandbox import KafkaCluster
from tests.kit.commands import write_conf
from tests.kit.records import count, new_topic
from tests.servers.connect import HOUSE, ConnectServer

# What no command prints: SQL over the relay, by the session of the client.
_SQL = """
import sys
import mirrorlake
rows = mirrorlake.load(sys.argv[1]).sql("SELECT count(*) AS records FROM relay_east").collect()
print(rows[0].records)
"""


def test_streams_are_refused_over_connect_and_questions_are_answered(
    connect_server: ConnectServer, spark: SparkSession, east: KafkaCluster, central: KafkaCluster, tmp_path: Path
) -> None:
    topic = new_topic(east, 303, partitions=3)
    (tmp_path / "catalog").mkdir()

    def settings(folder: Path, lake: dict[str, str] | None = None, **flow: Any) -> list[str]:
        addresses = {"east": east.bootstrap_servers, "central": central.bootstrap_servers}
        # Its name is its own, and so is its ledger.
        given = {"name": topic, "source": "east", "target": "central", "topics": topic, "sync": {"groups": False}}
        flows = [{**given, **flow}]
        return ["--conf", str(write_conf(folder, addresses, flows, lake=lake))]

    def job(name: str, *arguments: str) -> list[str]:
        return [str(HOUSE / "jobs" / "mirrorlake.py"), name, *arguments]

    schema = {"catalog": "spark_catalog", "schema": "mirror", "checkpoints": str(tmp_path / "checkpoints")}
    folder, catalog = settings(tmp_path), settings(tmp_path / "catalog", schema, execution="streaming")
    with connect_server.steps() as step:
        step(*job("apply", *folder))
        land = job("land", "--source", "east", "--once")
        streams = (job("run", "--once"), job("run"), land, job("tables", "--run", "--once"))
        for stream in streams:
            refused = step(*stream, *folder, code=2)
            assert "streams need a classic Spark session" in refused.log.rpartition("error")[2], stream
        assert count(central, f"east.{topic}") == 0

        ml.load(folder[1], spark=spark).run(once=True)
        step("sql", "CREATE SCHEMA spark_catalog.mirror")
        # What a classic session has landed and sent, as tables of the server's catalog.
        for log in (tmp_path / "lake").glob("*/*/_delta_log"):
            name = f"relay_{log.parent.name}" if log.parents[1].name == "relay" else log.parent.name
            step("sql", f"CREATE TABLE spark_catalog.mirror.{name} USING delta LOCATION '{log.parent}'")
        step(*land, *catalog, code=2)
        [flow] = step(*job("status", *catalog, "--json")).document["flows"]
        assert [(row["verdict"], row["offset_lag"]) for row in flow["partitions"]] == [("OK", 0)] * 3, flow
        place = ["--flow", topic, "--topic", topic, "--partition", "1", "--offset", "7"]
        translated = step("offsets", *place, *catalog, "--json").document
        assert (translated["status"], translated["downstream_offset"]) == ("exact", 7), translated
        step(*job("lag", *catalog, "--json"))
        [verified] = step(*job("verify", *catalog, "--json")).document["flows"]
        assert (verified["equal"], verified["verified"]) == (True, 303), verified
    asked = connect_server.client("-c", _SQL, folder[1])
    out, err = asked.communicate(timeout=300)
    assert (asked.returncode, out.split()) == (0, ["303"]), err
