"""A target whose log goes back under a mirror: an unclean election, a lost disk (law F)."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest

from mirrorlake.errors import RemoteTopicLost, UsageError
from mirrorlake.mirror import Mirror
from mirrorlake.sandbox import KafkaCluster
from tests.kit.processes import staying_on, wait_until
from tests.kit.records import (
    assert_equal_topics,
    commit,
    committed,
    consume,
    count,
    delete_topic,
    end_of,
    new_topic,
    produce,
    topic_name,
)
from tests.servers.lakes import MakeMirror

FLOW = "east->own"


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


def states(mirror: Mirror) -> dict[str, str]:
    return {row.topic: row.state for row in mirror.status()[FLOW]}


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
        wait_until(lambda: states(mirror) == dict.fromkeys(topics, "caught_up"), "all are in step")
        commit(east, group, lost, {0: 35})
        ends = {topic: end_of(there, f"east.{topic}", 0) for topic in topics}
        # More is lost than is written next, so the end alone would hide it afterwards.
        cut(there, f"east.{lost}", keep=0.5)
        end = end_of(there, f"east.{lost}", 0)
        assert end < ends[lost]
        left = [one.content for one in consume(there, f"east.{lost}")[0]]
        for topic in (lost, kept):
            produce(east, topic, 200, partitions=1, seed=2)
        wait_until(lambda: states(mirror)[lost] == "topic_lost", "the topic that went back is parked")
        wait_until(lambda: count(there, f"east.{kept}") == 240, "the other topic goes on")
        [row] = [row for row in mirror.status()[FLOW] if row.topic == lost]
        # The marker of a transaction that a restart ended may stand after the cut.
        assert re.search(rf"partition 0 ends at ({end}|{end + 1}) and had records up to ", row.reason)
        assert [one.content for one in consume(there, f"east.{lost}")[0]] == left, "law F: written after the cut"

    assert not mirror.plan_groups(FLOW).moves, "law A: a group is moved past what it has not read"
    assert any("was truncated" in one.detail and not one.ok for one in mirror.doctor())
    # It stays known, whatever the log's end says; and what goes back while nothing runs is found at the next start.
    cut(there, f"east.{stale}", keep=0.5)
    with pytest.raises(
        RemoteTopicLost, match=rf"east\.{lost} on own was truncated.*east\.{stale} on own was truncated"
    ) as said:
        mirror.run(once=True)
    assert (said.value.exit_code, "--send-again" in said.value.remedy) == (3, True)
    with pytest.raises(UsageError, match=f"delete east.{lost} on own"):
        mirror[FLOW].send_again(lost)
    missing = {one.topic.removeprefix("east.") for one in mirror.verify()[0].differences}
    assert missing >= {lost, stale}, "what the target lacks is named"

    for topic in (lost, stale):
        delete_topic(there, f"east.{topic}")
        mirror[FLOW].send_again(topic)
    mirror.run(once=True)
    for topic in topics:
        assert_equal_topics(consume(east, topic), consume(there, f"east.{topic}"))
    assert states(mirror) == dict.fromkeys(topics, "caught_up")
    assert mirror.verify()[0].differences == ()
    resumes = mirror[FLOW].offsets.translate(lost, 0, 35).offset
    assert committed(there, group, f"east.{lost}", 1) == {0: resumes}
