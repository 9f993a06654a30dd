"""What may not go out: topics that never leave, by any door, and two sources onto one name."""

from __future__ import annotations

import pytest

from mirrorlake.errors import TopicConflict, TopicDenied
from mirrorlake.sandbox import KafkaCluster
from tests.kit.records import count, create_topic, produce, topic_name, topics_of
from tests.servers.lakes import MakeMirror, Pair


def test_what_never_leaves_leaves_by_no_door(pair: Pair) -> None:
    name, east, central = topic_name(), pair.east, pair.central
    orders, pii = f"{name}.orders", f"{name}.pii"
    for topic in (orders, pii):
        create_topic(east, topic, 1)
        produce(east, topic, 100, partitions=1)
    every = pair.flow(topics=rf"{name}\..*")
    flows = [
        every,
        {**every, "name": "spark", "policy": {"template": "spark.{topic}"}, "execution": "streaming"},
        {**every, "name": "by-name", "policy": {"template": "named.{topic}"}, "topics": [orders, pii]},
        {**every, "name": "merged", "policy": {"template": "all.{topic}"}, "mm2": {"offset_syncs": True}},
    ]
    pair.mirror(*flows).land("east", once=True)

    rule = {"never_leave": [rf"(?i){name}\.PII"]}
    mirror = pair.mirror(*flows, east=rule)
    assert len(pair.landed(pii)) == 100, "it was landed before the rule was there, and stays"
    for topic in (orders, pii):
        produce(east, topic, 100, partitions=1, seed=2)
    assert not any(pii in change.name for change in mirror.plan().changes)
    mirror.apply()
    mirror.run(once=True)
    assert len(pair.landed(pii)) == 100, "and no more of it is landed"
    assert len(pair.landed(orders)) == 200

    assert not [topic for topic in topics_of(central) if pii in topic], "no remote topic was made"
    assert count(central, f"all.{orders}") == 200, "of a merged topic, only what may leave"
    for remote in (f"east.{orders}", f"spark.{orders}", f"named.{orders}"):
        assert count(central, remote) == 200
    for verification in mirror.verify():
        assert verification.equal, verification.differences[:3]
    assert {row.topic for rows in mirror.status().values() for row in rows} == {orders}

    for door in (
        lambda: mirror.browse("east", pii, relay=True),
        lambda: mirror.browse("east", pii),
        lambda: mirror.replay(source="east", topic=pii, into=f"central:{name}.again"),
    ):
        with pytest.raises(TopicDenied):
            door()


def test_flows_that_meet_in_one_name_are_stopped_before_the_first_record(
    east: KafkaCluster, west: KafkaCluster, central: KafkaCluster, make_mirror: MakeMirror
) -> None:
    name = topic_name()
    topic, clusters = f"{name}-1.orders", {"east": east, "west": west, "central": central}
    for cluster in (east, west):
        create_topic(cluster, topic, 1)
        produce(cluster, topic, 10, partitions=1)
    flows = [
        {"source": alias, "target": "central", "topics": rf"{name}-.+\.orders", "policy": "identity"}
        for alias in ("east", "west")
    ]
    mirror = make_mirror(clusters, flows)
    assert {(change.name, change.flow) for change in mirror.plan().conflicts} == {
        (topic, "east->central"),
        (topic, "west->central"),
    }
    with pytest.raises(TopicConflict, match="no template merges the two"):
        mirror.apply()
    for alias in ("east", "west"):
        mirror.land(alias, once=True)
    with pytest.raises(TopicConflict, match="without a template that merges them"):
        mirror.republish("east->central", once=True)
    assert topic not in topics_of(central)

    merged = make_mirror(clusters, [{**flow, "policy": {"template": "{topic}"}} for flow in flows])
    merged.run(once=True)
    assert count(central, topic) == 20
