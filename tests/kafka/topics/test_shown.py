"""What was changed on a cluster is what the next question finds there."""

from __future__ import annotations

from typing import Any

from mirrorlake.kafka.admin import ClusterAdmin
from mirrorlake.model.plan import Change
from mirrorlake.sandbox import KafkaCluster
from tests.flow.kit import topic_name


def test_what_was_waited_for_is_what_the_next_question_finds(east: KafkaCluster) -> None:
    admin = ClusterAdmin("east", {"bootstrap.servers": east.bootstrap_servers})
    wanted = {"retention.ms": "3600000"}

    def make(name: str, action: str, after: Any) -> None:
        change = Change(where="east", kind="topic", name=name, action=action, after=after)
        admin.apply(change)
        admin.wait_for([change])

    for name in (topic_name("shown") for _ in range(10)):
        make(name, "create", {"partitions": 2, "configs": {}})
        assert admin.describe([name])[name].partitions == 2
        make(name, "add_partitions", 3)
        assert admin.describe([name])[name].partitions == 3
        make(name, "set_configs", wanted)
        assert admin.configs([name]) == {name: wanted}
