"""Clusters and records that refuse: a clear sentence, the right exit code, nothing lost."""

from __future__ import annotations

import json
import uuid
from pathlib import Path

import pytest
from confluent_kafka import Producer
from pyspark.sql import SparkSession

from mirrorlake.cli import main
from mirrorlake.errors import RecordTooLarge
from mirrorlake.sandbox import KafkaCluster
from tests.flow.kit import assert_equal_topics, consume, create_topic, produce, write_conf
from tests.flow.mirror.test_laws import topic_name
from tests.servers.lakes import MakeMirror


def run(capfd: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    captured = capfd.readouterr()
    assert "Traceback" not in captured.out + captured.err
    return int(ended.value.code or 0), captured.out, captured.err


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait 2 s instead of 15 for a cluster: where nobody listens, nobody will."""
    for asker in ("admin", "groups"):
        monkeypatch.setattr(f"mirrorlake.kafka.{asker}.TIMEOUT_S", 2.0)


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("command", [["plan"], ["run", "--once"], ["land", "--source", "east", "--once"]])
def test_an_unreachable_source_exits_4(
    command: list[str], central: KafkaCluster, spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    flows = [{"source": "east", "target": "central", "topics": "orders"}]
    conf = write_conf(tmp_path, {"east": "127.0.0.1:9", "central": central.bootstrap_servers}, flows)
    code, out, err = run(capfd, *command, "--conf", str(conf), "--json")
    assert code == 4
    assert "cluster east does not answer" in err
    assert "clusters.east" in err
    assert json.loads(out)["error"] == "ClusterUnreachable"


@pytest.mark.usefixtures("impatient")
def test_doctor_names_the_layer_that_fails(
    east: KafkaCluster, spark: SparkSession, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    flows = [{"source": "east", "target": "central", "topics": "orders"}]
    conf = write_conf(tmp_path, {"east": east.bootstrap_servers, "central": "127.0.0.1:9"}, flows)
    code, out, _ = run(capfd, "doctor", "--conf", str(conf), "--json")
    assert code == 4
    bad = [finding for finding in json.loads(out)["findings"] if not finding["ok"]]
    assert [(finding["layer"], finding["subject"]) for finding in bad] == [("cluster", "central")]
    assert bad[0]["fix"]


@pytest.mark.law("C", "D", "F")
def test_a_record_that_the_target_refuses_stops_before_it_and_loses_nothing(
    east: KafkaCluster, central: KafkaCluster, make_mirror: MakeMirror
) -> None:
    topic = topic_name()
    create_topic(east.bootstrap_servers, topic, 1, max_message_bytes="2000000")
    create_topic(central.bootstrap_servers, f"east.{topic}", 1, max_message_bytes="50000")
    produce(east.bootstrap_servers, topic, 100, partitions=1)
    producer = Producer({"bootstrap.servers": east.bootstrap_servers, "message.max.bytes": 2_000_000})
    noise = b"".join(uuid.uuid4().bytes for _ in range(20_000))
    producer.produce(topic, noise, b"large")
    producer.flush(30)
    produce(east.bootstrap_servers, topic, 100, partitions=1, seed=2)
    flow = {"source": "east", "target": "central", "topics": topic, "sync": {"configs": False}, "chunk_records": 60}
    mirror = make_mirror({"east": east, "central": central}, [flow])
    with pytest.raises(RecordTooLarge, match=rf"{topic}-0@100 .*max\.message\.bytes") as refused:
        mirror.run(once=True)
    assert refused.value.exit_code == 4
    assert mirror.lake.relay("east").count() == 201
    mirror.admin("central").set_configs(f"east.{topic}", {"max.message.bytes": "2000000"})
    mirror.run(once=True)
    assert_equal_topics(consume(east.bootstrap_servers, topic), consume(central.bootstrap_servers, f"east.{topic}"))
    assert mirror.verify()[0].equal


def test_json_documents_have_the_names_that_were_promised(
    east: KafkaCluster,
    central: KafkaCluster,
    make_mirror: MakeMirror,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    topic = topic_name()
    create_topic(east.bootstrap_servers, topic, 1)
    produce(east.bootstrap_servers, topic, 20, partitions=1)
    make_mirror({"east": east, "central": central}, [{"source": "east", "target": "central", "topics": topic}])
    conf = ("--conf", str(tmp_path / "mirror.yml"), "--json")
    assert run(capfd, "plan", *conf, "--check")[0] == 1
    code, out, _ = run(capfd, "apply", *conf)
    assert code == 0
    code, out, _ = run(capfd, "plan", *conf, "--check")
    assert (code, json.loads(out)) == (0, {"changes": [], "notes": []})
    code, out, _ = run(capfd, "run", "--once", *conf)
    assert code == 0
    assert json.loads(out)["landed"][0]["records"] == 20
    code, out, _ = run(capfd, "status", *conf)
    [row] = json.loads(out)["flows"][0]["partitions"]
    assert row == {
        "topic": topic,
        "partition": 0,
        "source_end": 20,
        "landed": 20,
        "republished": 20,
        "offset_lag": 0,
        "time_lag_ms": 0,
        "verdict": "in_step",
    }
    where = ("--flow", "east->central", "--topic", topic, "--partition", "0")
    code, out, _ = run(capfd, "offsets", *where, "--offset", "7", *conf)
    assert json.loads(out) == {
        "status": "exact",
        "upstream_offset": 7,
        "downstream_offset": 7,
        "topic": f"east.{topic}",
        "partition": 0,
    }
    back = ("--flow", "east->central", "--topic", f"east.{topic}", "--partition", "0")
    code, out, _ = run(capfd, "offsets", *back, "--offset", "7", "--reverse", *conf)
    assert json.loads(out)["upstream_offset"] == 7
    code, out, _ = run(capfd, "offsets", *where, "--offset", "99", *conf)
    assert json.loads(out)["status"] == "not_yet_republished"
    code, out, _ = run(capfd, "verify", *conf)
    document = json.loads(out)
    assert (code, document["equal"], document["differences"]) == (0, True, [])
    code, out, _ = run(capfd, "doctor", *conf)
    assert code == 0, out
