"""What the settings of a flow name and nothing is mirrored of: each command tells it, by which rule, and what to write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from mirrorlake.sandbox import KafkaCluster
from tests.kit.commands import run_cli, told, write_conf
from tests.kit.records import consume, create_topic, new_topic, produce, topic_name

# Its name is its own, and so is its ledger: the shared target has those of other tests.
FLOW = "named"


@pytest.mark.law("E")
def test_a_topic_that_the_settings_name_and_a_rule_takes_away_is_told_by_every_command(
    east: KafkaCluster, central: KafkaCluster, tmp_path: Path
) -> None:
    there, tag = new_topic(east, 4), topic_name()
    rules = {
        f"{tag}.replica": "exclude_topics",
        f"{tag}.pii": "never_leave",
        "__consumer_offsets": "internal",
        f"mm2-{tag}.internal": "internal",
        f"central.{tag}": "came from the target",
        f"{tag}-absent": "has no topic",
    }
    for name in (f"{tag}.replica", f"{tag}.pii", f"central.{tag}"):
        create_topic(east, name, 1)
    flow = {
        "name": FLOW,
        "source": "east",
        "target": "central",
        "topics": [there, *rules],
        "groups": f"billing, connect-{tag}",
    }
    clusters = {"east": east.bootstrap_servers, "central": central.bootstrap_servers}
    conf = str(write_conf(tmp_path, clusters, [flow], east={"never_leave": [rf"{tag}\.p.*"]}))

    def assert_told(notes: list[dict[str, Any]]) -> None:
        found = {note["name"]: note["reason"] for note in notes if (note["where"], note["kind"]) == (FLOW, "topic")}
        assert found.keys() == rules.keys()
        for name, rule in rules.items():
            assert rule in found[name]
            assert "`topics`" in found[name], "what to write"

    assert_told(told("topics", "--cluster", "east", "--conf", conf)["notes"])
    notes = told("plan", "--conf", conf)["notes"]
    assert_told(notes)
    excluded = {note["name"]: note["reason"] for note in notes if note["kind"] == "group"}
    assert excluded == {f"connect-{tag}": "exclude_groups excludes it"}, "and so is a group"
    done = run_cli("plan", "--conf", conf, "--wide")
    assert f"`topics` names {tag}.pii, which is not mirrored: never_leave" in done.stdout
    warned = told("doctor", "--only", "source.topics", "--conf", conf, code=1)["findings"]
    assert {one["detail"].partition(":")[0] for one in warned if one["severity"] == "warning"} == rules.keys()

    [landed] = told("run", "--once", "--conf", conf)["landed"]
    assert landed["records"] == 4
    assert_told(landed["notes"])
    assert f"{tag}.replica" in run_cli("run", "--once", "--conf", conf).stdout


def test_a_flow_whose_pattern_selects_nothing_is_told(
    east: KafkaCluster, central: KafkaCluster, tmp_path: Path
) -> None:
    tag = topic_name()
    clusters = {"east": east.bootstrap_servers, "central": central.bootstrap_servers}
    flow = {"name": FLOW, "source": "east", "target": "central", "topics": f"{tag}-.*"}
    conf = str(write_conf(tmp_path, clusters, [flow]))
    [note] = told("topics", "--cluster", "east", "--conf", conf)["notes"]
    assert note["name"] == f"{tag}-.*"
    assert "east has no topic" in note["reason"]
    assert told("plan", "--conf", conf)["notes"] == [note]
    [landed] = told("run", "--once", "--conf", conf)["landed"]
    assert landed["notes"] == [note]
    # With the topic that it waits for, nothing is told any more.
    create_topic(east, f"{tag}-1", 1)
    assert told("topics", "--cluster", "east", "--conf", conf)["notes"] == []
    assert told("plan", "--conf", conf)["notes"] == []


def test_a_user_topic_that_ends_in_heartbeats_keeps_its_name_under_identity(
    east: KafkaCluster, central: KafkaCluster, tmp_path: Path
) -> None:
    tag = topic_name()
    topic = f"{tag}-heartbeats"
    create_topic(east, topic, 1)
    produce(east, topic, 5, partitions=1)
    clusters = {"east": east.bootstrap_servers, "central": central.bootstrap_servers}
    flow = {"name": FLOW, "source": "east", "target": "central", "topics": topic, "policy": "identity"}
    conf = str(write_conf(tmp_path, clusters, [flow]))
    told("run", "--once", "--conf", conf)
    assert [record.content for record in consume(central, topic)[0]] == [
        record.content for record in consume(east, topic)[0]
    ]
