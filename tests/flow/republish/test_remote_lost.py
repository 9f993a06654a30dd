"""Remote topics that are deleted, or created again, under a mirror: nothing is sent there until a person chooses (law F)."""

from __future__ import annotations

import json

import pytest

from mirrorlake.errors import RemoteTopicLost, UsageError
from mirrorlake.mirror import Mirror
from mirrorlake.model.offset_map import DeletedTopic, Exact
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
)
from tests.servers.lakes import Pair

FLOW = "east->central"


def recreate(address: str, topic: str, partitions: int = 2) -> None:
    delete_topic(address, topic)
    create_topic(address, topic, partitions)


def states(mirror: Mirror) -> dict[str, str]:
    return {row.topic: row.state for row in mirror.status()[FLOW]}


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
    assert not mirror.admin("central").describe([remote]), "law F: a lost topic was made again in silence"
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
