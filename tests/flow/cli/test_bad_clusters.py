"""Clusters and records that refuse: a clear sentence, the right exit code, nothing lost."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mirrorlake.errors import RecordTooLarge
from mirrorlake.sandbox import KafkaCluster
from tests.kit.commands import run_cli, told, write_conf
from tests.kit.records import create_topic, send
from tests.servers.lakes import Pair


@pytest.mark.parametrize("command", [["plan"], ["run", "--once"], ["land", "--source", "east", "--once"]])
def test_an_unreachable_source_exits_4(
    command: list[str], central: KafkaCluster, spark: SparkSession, tmp_path: Path
) -> None:
    flows = [{"source": "east", "target": "central", "topics": "orders"}]
    conf = write_conf(tmp_path, {"east": "127.0.0.1:9", "central": central.bootstrap_servers}, flows)
    done = run_cli(*command, "--conf", str(conf), "--json")
    assert done.returncode == 4
    assert "cluster east does not answer: 127.0.0.1:9 connection refused" in done.stderr
    assert "clusters.east" in done.stderr
    assert json.loads(done.stdout)["error"] == "ClusterUnreachable"


def test_doctor_names_the_layer_that_fails(east: KafkaCluster, spark: SparkSession, tmp_path: Path) -> None:
    flows = [{"source": "east", "target": "central", "topics": "orders"}]
    conf = write_conf(tmp_path, {"east": east.bootstrap_servers, "central": "127.0.0.1:9"}, flows)
    findings = told("doctor", "--conf", str(conf), code=4)["findings"]
    bad = [finding for finding in findings if not finding["ok"]]
    assert [(finding["layer"], finding["subject"]) for finding in bad] == [("cluster", "central")]
    assert bad[0]["fix"]


@pytest.mark.law("C", "D", "F")
def test_a_record_that_the_target_refuses_stops_before_it_and_loses_nothing(pair: Pair) -> None:
    topic = pair.topic
    pair.create(100, partitions=1, max_message_bytes="2000000")
    create_topic(pair.central, pair.remote, 1, max_message_bytes="50000")
    send(pair.east, topic, [(b"".join(uuid.uuid4().bytes for _ in range(20_000)), b"large")])
    pair.produce(100, seed=2)
    mirror = pair.mirror(sync={"configs": False}, chunk_records=60)
    with pytest.raises(RecordTooLarge, match=rf"{topic}-0@100 .*max\.message\.bytes") as refused:
        mirror.run(once=True)
    assert refused.value.exit_code == 4
    assert mirror.lake.relay("east").count() == 201
    mirror.admin("central").set_configs(pair.remote, {"max.message.bytes": "2000000"})
    mirror.run(once=True)
    pair.check()


@pytest.mark.law("E")
def test_a_topic_that_can_have_no_name_on_the_target_stops_its_flow_with_the_way_on(pair: Pair) -> None:
    longest = f"{pair.topic}-".ljust(249, "x")
    pair.create(10, partitions=1)
    create_topic(pair.east, longest, 1)
    send(pair.east, longest, [(b"v", b"k", 0)])
    topics = [pair.topic, longest]
    pair.mirror(topics=topics)
    for command in (["plan"], ["run", "--once"], ["republish", "--flow", "east->central", "--once"]):
        done = pair.cli(*command, "--json")
        assert (done.returncode, json.loads(done.stdout)["error"]) == (3, "TopicNameError"), done.stderr
        assert "exclude_topics" in done.stderr
    pair.mirror(topics=topics, exclude_topics=[longest])
    assert pair.cli("run", "--once").returncode == 0
    pair.check()


def test_json_documents_have_the_names_that_were_promised(pair: Pair) -> None:
    topic = pair.topic
    pair.create(20, partitions=1)
    pair.mirror()

    assert pair.told("plan", "--check", code=1)["changes"]
    pair.told("apply")
    assert pair.told("plan", "--check") == {"changes": [], "notes": []}
    assert pair.told("run", "--once")["landed"][0]["records"] == 20
    [row] = pair.told("status")["flows"][0]["partitions"]
    assert row == {
        "topic": topic,
        "partition": 0,
        "source_end": 20,
        "landed": 20,
        "republished": 20,
        "offset_lag": 0,
        "time_lag_ms": 0,
        "verdict": "OK",
        "state": "caught_up",
        "reason": "nothing waits",
        "since": None,
        "proven_until": None,
        "expires_in_ms": None,
        "expires_why": None,
        "blocked_offsets": 0,
        "blocked_ms": None,
        "in_per_s": None,
        "out_per_s": None,
        "eta_ms": 0,
    }
    offsets = ("offsets", "--flow", "east->central", "--partition", "0", "--topic")
    assert pair.told(*offsets, topic, "--offset", "7") == {
        "status": "exact",
        "upstream_offset": 7,
        "downstream_offset": 7,
        "topic": pair.remote,
        "partition": 0,
    }
    assert pair.told(*offsets, pair.remote, "--offset", "7", "--reverse")["upstream_offset"] == 7
    assert pair.told(*offsets, topic, "--offset", "99")["status"] == "not_yet_republished"
    document = pair.told("verify")
    assert (document["equal"], document["differences"]) == (True, [])
    pair.told("doctor")
