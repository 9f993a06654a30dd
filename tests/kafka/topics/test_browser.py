"""The topic browser against a real broker: sizes, settings, brokers and readers in a few calls; nothing is written."""

from __future__ import annotations

import pytest

from mirrorlake.context import utc_now
from mirrorlake.kafka.admin import ClusterAdmin
from mirrorlake.kafka.groups import Groups
from mirrorlake.sandbox import KafkaCluster
from mirrorlake.topics.browser import TopicBrowser
from tests.builders import mirror_config
from tests.flow.kit import commit, create_topic, delete_records, new_topic, produce, topic_name, topics_of


@pytest.mark.law("H")
def test_a_cluster_tells_of_its_topics_and_is_left_as_it_was(east: KafkaCluster) -> None:
    name, empty = topic_name("browsed"), new_topic(east)
    create_topic(east, name, 2, retention_ms="3600000", cleanup_policy="delete")
    produce(east, name, 10)
    delete_records(east, name, 0, 2)
    commit(east, f"{name}-group", name, {0: 3})
    options = {"bootstrap.servers": east.bootstrap_servers}
    before = topics_of(east)
    browser = TopicBrowser(
        "east",
        ClusterAdmin("east", options).topic_metadata,
        flows=mirror_config({"topics": "browsed.*"}).flows,
        names_of=lambda _: (),
        now=utc_now,
    )
    found = {line.topic: line for line in browser.topics(internal=True)}
    line = found[name]
    assert (line.partitions, line.records, line.kept, line.replicas) == (2, 8, "1 h", 1)
    assert line.mirrored == f"west: east.{name}"
    assert (found[empty].records, found[empty].kept, found[empty].is_mirrored) == (0, "7 d", False)
    assert found["__consumer_offsets"].internal
    assert "__consumer_offsets" not in {line.topic for line in browser.topics()}

    page = browser.page(name, lambda: Groups("east", options))
    assert [(p.earliest, p.end, len(p.isr)) for p in page.partitions] == [(2, 5, 1), (0, 5, 1)]
    assert page.partitions[0].leader is not None
    assert page.settings == {"cleanup.policy": "delete", "retention.ms": "3600000"}
    assert page.readers is not None
    assert [(one.group, one.state, one.partitions, one.offset_lag) for one in page.readers] == [
        (f"{name}-group", "empty", 1, 2)
    ]
    assert topics_of(east) == before
