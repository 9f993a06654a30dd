"""Two sources onto one name, seen only with real topics: shown in the plan, refused before anything is sent."""

from __future__ import annotations

import pytest

from mirrorlake.errors import TopicConflict
from mirrorlake.sandbox import KafkaCluster
from tests.kit.records import count, create_topic, produce, topic_name
from tests.servers.lakes import MakeMirror


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
    assert topic not in mirror.admin("central").topic_names()

    merged = make_mirror(clusters, [{**flow, "policy": {"template": "{topic}"}} for flow in flows])
    merged.run(once=True)
    assert count(central, topic) == 20
