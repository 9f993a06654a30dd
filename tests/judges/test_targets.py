"""Remote topics that are deleted, made again, or cut under a mirror get nothing until a person chooses (law F)."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

import pytest

from mirrorlake import DeletedTopic, Exact, Mirror
from mirrorlake.errors import RemoteTopicLost, UsageError
from mirrorlake.sandbox import KafkaCluster
from tests.kit.processes import staying_on, wait_until
from tests.kit.records import (
    assert_equal_topics,
    commit,
    committed,
    consume,
    count,
    create_topic,
    delete_topic,
    end_of,
    new_topic,
    produce,
    topic_name,
    topics_of,
)
from tests.servers.lakes import MakeMirror, Pair

FLOW = "east->central"


def recreate(address: str, topic: str, partitions: int = 2) -> None:
    delete_topic(address, topic)
    create_topic(address, topic, partitions)


def cut(cluster: KafkaCluster, topic: str, *, keep: float) -> None:
    """Kill the broker, take the end of partition 0 away, and start the broker again."""
    cluster.kill()
    folder = cluster.directory / "data" / f"{topic}-0"
    [segment] = folder.glob("*.log")
    with segment.open("r+b") as log:
        log.truncate(int(segment.stat().st_size * keep))
    for index in [*folder.glob("*.index"), *folder.glob("*.timeindex"), *folder.glob("*.snapshot")]:
        index.unlink()
    cluster.start()


def states(mirror: Mirror, flow: str = FLOW) -> dict[str, str]:
    return {row.topic: row.state for row in mirror.status()[flow]}


@pytest.mark.law("A", "F")
def test_law_f_a_lost_remote_topic_waits_for_a_choice_and_the_others_go_on(pair: Pair) -> None:
    here, there, group = pair.east, pair.central, topic_name("readers")
    lost, kept = (new_topic(here, 40, prefix=prefix) for prefix in ("lost", "kept"))
    remote = f"east.{lost}"
    mirror = pair.mirror(topics=[lost, kept], groups=group)
    mirror.run(once=True)
    commit(here, group, lost, {0: 15})
    [moved] = mirror.plan_groups(FLOW)
    assert moved.resume.downstream_offset == 15

    recreate(there, remote)
    produce(there, remote, 2, prefix="somebody else's ")
    produce(here, lost, 10, seed=2)
    produce(here, kept, 10, seed=2)
    assert not mirror.plan_groups(FLOW).moves, "law A: a group is moved by the map of a topic that is gone"
    with pytest.raises(RemoteTopicLost, match=r"created again.*--send-again.*--accept-empty") as refused:
        mirror.run(once=True)
    assert (refused.value.exit_code, refused.value.topic) == (3, remote)
    assert pair.cli("republish", "--flow", FLOW, "--once").returncode == 3
    assert count(there, remote) == 2, "law F: records were sent to another topic than the ledger knows"
    assert count(there, f"east.{kept}") == 50, "one topic's trouble is its own"
    assert states(mirror) == {lost: "topic_lost", kept: "caught_up"}
    [held] = [change for change in mirror.plan().changes if change.name == remote]
    assert (held.action, "--send-again" in held.reason) == ("held", True)
    assert pair.cli("plan", "--check").returncode == 1
    assert not mirror.apply(FLOW).conflicts
    assert any(remote in one.detail and not one.ok for one in mirror.doctor())
    offsets = mirror[FLOW].offsets
    found = offsets.translate(lost, 0, 15)
    assert isinstance(found, DeletedTopic), f"law A: the record is gone, and {found} is said"
    asked = mirror.spark.createDataFrame([(lost, 0, 15), (kept, 0, 15)], "topic string, partition int, offset bigint")
    told = {row.topic: row.status for row in offsets.translate_table(asked).collect()}
    assert told == {lost: "in_a_deleted_topic", kept: "exact"}
    assert not mirror.plan_groups(FLOW).moves
    with pytest.raises(UsageError, match="was not lost"):
        mirror[FLOW].send_again(kept)

    # All of it again, after what somebody else wrote meanwhile; the same command twice does it once.
    for _ in range(2):
        done = pair.cli("republish", "--flow", FLOW, "--topic", remote, "--send-again", "--once")
        assert done.returncode == 0, done.stderr
    target = consume(there, remote)
    assert_equal_topics(consume(here, lost), {p: records[1:] for p, records in target.items()})
    assert offsets.translate(lost, 0, 15) == Exact(16, moved.resume.target)
    assert [one.resume.downstream_offset for one in mirror.plan_groups(FLOW)] == [16]
    assert committed(there, group, remote, 2) == {0: 16}
    assert states(mirror) == {lost: "caught_up", kept: "caught_up"}
    assert not mirror.plan()

    # Gone altogether: it is not made again until somebody accepts that it starts empty.
    delete_topic(there, remote)
    with pytest.raises(RemoteTopicLost, match="was deleted on central"):
        mirror.run(once=True)
    assert remote not in {change.name for change in mirror.plan().changes if change.action == "create"}
    mirror.apply()
    assert remote not in topics_of(there), "law F: a lost topic was made again in silence"
    produce(here, lost, 10, seed=3)
    mirror[FLOW].accept_empty(lost)
    mirror.run(once=True)
    assert {p: [r.key for r in records] for p, records in consume(there, remote).items()} == {
        p: [r.key for r in records[-5:]] for p, records in consume(here, lost).items()
    }
    assert isinstance(offsets.translate(lost, 0, 15), DeletedTopic)
    assert offsets.translate(lost, 0, 25) == Exact(0, moved.resume.target)
    assert offsets.translate_back(remote, 0, 0).offset == 25
    assert not mirror.plan_groups(FLOW).moves, "law A: the group has not read what only the deleted topic held"
    assert mirror.verify()[0].differences == ()
    assert json.loads(pair.cli("status", "--json").stdout)["flows"][0]["held"] == []


@pytest.mark.law("F")
def test_law_f_a_remote_topic_lost_while_running_is_parked_and_a_choice_is_heard(pair: Pair) -> None:
    here, there = pair.east, pair.central
    lost, kept = (new_topic(here, 20, prefix=prefix) for prefix in ("lost", "kept"))
    remote = f"east.{lost}"
    mirror = pair.mirror(topics=[lost, kept])
    with staying_on(mirror):
        wait_until(lambda: states(mirror) == {lost: "caught_up", kept: "caught_up"}, "both are in step")
        recreate(there, remote)
        for topic in (lost, kept):
            produce(here, topic, 20, seed=2)
        wait_until(lambda: end_of(there, f"east.{kept}", 0) >= 20, "the other topic goes on")
        wait_until(lambda: states(mirror) == {lost: "topic_lost", kept: "caught_up"}, "the lost one is parked")
        assert count(there, remote) == 0, "law F: records were sent to another topic than the ledger knows"
        chosen = pair.cli("republish", "--flow", FLOW, "--topic", remote, "--send-again", "--choose", "--json")
        assert (chosen.returncode, json.loads(chosen.stdout)["waits"]) == (0, True), chosen.stderr
        wait_until(lambda: states(mirror)[lost] == "caught_up", "the choice was heard, and nobody took the flow over")
    assert_equal_topics(consume(here, lost), consume(there, remote))
    assert_equal_topics(consume(here, kept), consume(there, f"east.{kept}"))

    # What is restored after the ledger is lost, too, holds for the present life of the topic, and for no other.
    delete_topic(there, "mirrorlake.east.central.ledger")
    produce(here, lost, 10, seed=3)
    mirror.land("east", once=True)
    mirror.republish(FLOW, once=True, restore_ledger=True)
    assert_equal_topics(consume(here, lost), consume(there, remote))
    delete_topic(there, "mirrorlake.east.central.ledger")
    recreate(there, remote)
    with pytest.raises(RemoteTopicLost, match="created again"):
        mirror.republish(FLOW, once=True, restore_ledger=True)
    assert count(there, remote) == 0


@pytest.mark.law("A", "F")
def test_law_f_a_remote_topic_that_lost_its_end_gets_nothing_more_and_the_others_go_on(
    make_cluster: Callable[..., KafkaCluster], east: KafkaCluster, make_mirror: MakeMirror
) -> None:
    there = make_cluster("own").start()
    group = topic_name("readers")
    topics = lost, stale, kept = [new_topic(east, 40, partitions=1, prefix=one) for one in ("lost", "stale", "kept")]
    flow = {"source": "east", "target": "own", "topics": topics, "groups": group, "chunk_records": 10}
    mirror = make_mirror({"east": east, "own": there}, [flow])
    with staying_on(mirror):
        wait_until(lambda: states(mirror, "east->own") == dict.fromkeys(topics, "caught_up"), "all are in step")
        commit(east, group, lost, {0: 35})
        ends = {topic: end_of(there, f"east.{topic}", 0) for topic in topics}
        # More is lost than is written next, so the end alone would hide it afterwards.
        cut(there, f"east.{lost}", keep=0.5)
        end = end_of(there, f"east.{lost}", 0)
        assert end < ends[lost]
        left = [one.content for one in consume(there, f"east.{lost}")[0]]
        for topic in (lost, kept):
            produce(east, topic, 200, partitions=1, seed=2)
        wait_until(lambda: states(mirror, "east->own")[lost] == "topic_lost", "the topic that went back is parked")
        wait_until(lambda: count(there, f"east.{kept}") == 240, "the other topic goes on")
        [row] = [row for row in mirror.status()["east->own"] if row.topic == lost]
        # The marker of a transaction that a restart ended may stand after the cut.
        assert re.search(rf"partition 0 ends at ({end}|{end + 1}) and had records up to ", row.reason)
        assert [one.content for one in consume(there, f"east.{lost}")[0]] == left, "law F: written after the cut"

    assert not mirror.plan_groups("east->own").moves, "law A: a group is moved past what it has not read"
    assert any("was truncated" in one.detail and not one.ok for one in mirror.doctor())
    # It stays known, whatever the log's end says; and what goes back while nothing runs is found at the next start.
    cut(there, f"east.{stale}", keep=0.5)
    with pytest.raises(
        RemoteTopicLost, match=rf"east\.{lost} on own was truncated.*east\.{stale} on own was truncated"
    ) as said:
        mirror.run(once=True)
    assert (said.value.exit_code, "--send-again" in said.value.remedy) == (3, True)
    with pytest.raises(UsageError, match=f"delete east.{lost} on own"):
        mirror["east->own"].send_again(lost)
    missing = {one.topic.removeprefix("east.") for one in mirror.verify()[0].differences}
    assert missing >= {lost, stale}, "what the target lacks is named"

    for topic in (lost, stale):
        delete_topic(there, f"east.{topic}")
        mirror["east->own"].send_again(topic)
    mirror.run(once=True)
    for topic in topics:
        assert_equal_topics(consume(east, topic), consume(there, f"east.{topic}"))
    assert states(mirror, "east->own") == dict.fromkeys(topics, "caught_up")
    assert mirror.verify()[0].differences == ()
    resumes = mirror["east->own"].offsets.translate(lost, 0, 35).offset
    assert committed(there, group, f"east.{lost}", 1) == {0: resumes}
