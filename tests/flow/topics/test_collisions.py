"""Two sources onto one name, seen only with real topics: shown in the plan, refused before anything is sent."""

from __future__ import annotations

import pytest

from mirrorlake.errors import TopicConflict
from mirrorlake.sandbox import KafkaCluster
from tests.flow.kit import consume, create_topic, produce
from tests.flow.mirror.test_laws import topic_name
from tests.servers.lakes import MakeMirror


def test_flows_that_meet_in_one_name_are_stopped_before_the_first_record(
    east: KafkaCluster, west: KafkaCluster, central: KafkaCluster, make_mirror: MakeMirror
) -> None:
    name = topic_name()
    topic = f"{name}-1.orders"
    for cluster in (east, west):
        create_topic(cluster.bootstrap_servers, topic, 1)
        produce(cluster.bootstrap_servers, topic, 10, partitions=1)
    flows = [
        {"source": alias, "target": "central", "topics": rf"{name}-.+\.orders", "policy": "identity"}
        for alias in ("east", "west")
    ]
    mirror = make_mirror({"east": east, "west": west, "central": central}, flows)
    assert {(change.name, change.flow) for change in mirror.plan().conflicts} == {
        (topic, "east->central"),
        (topic, "west->central"),
    }
    with pytest.raises(TopicConflict, match="neither says that they merge"):
        mirror.apply()
    for alias in ("east", "west"):
        mirror.land(alias, once=True)
    with pytest.raises(TopicConflict, match="without saying that they merge"):
        mirror.republish("east->central", once=True)
    assert topic not in mirror.admin("central").topic_names()

    merged = make_mirror(
        {"east": east, "west": west, "central": central}, [{**flow, "provenance": True} for flow in flows]
    )
    merged.run(once=True)
    assert sum(map(len, consume(central.bootstrap_servers, topic).values())) == 20
