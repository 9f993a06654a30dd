"""What was changed on a cluster is what the next question finds there."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from mirrorlake.kafka.acls import ClusterAcls
from mirrorlake.kafka.admin import ClusterAdmin
from mirrorlake.model.plan import Change
from mirrorlake.sandbox import KafkaCluster
from tests.flow.kit import topic_name
from tests.kafka.topics.test_acls import acl
from tests.servers.guarded import admin_as


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


def test_acls_that_were_waited_for_are_what_the_next_question_finds(
    guarded_clusters: Mapping[str, KafkaCluster],
) -> None:
    admin = admin_as(guarded_clusters["east"], "root")

    def carry_out(action: str, made: Any, **ends: Any) -> None:
        change = Change(where="east", kind="acl", name=str(made), action=action, **ends)
        admin.apply(change)
        admin.wait_for([change])

    for grant in (acl(topic_name("shown")) for _ in range(10)):
        carry_out("create", grant, after=grant.as_dict())
        assert grant in (admin.acls.list() or ())
        carry_out("delete", grant, before=grant.as_dict())
        assert grant not in (admin.acls.list() or ())


def test_an_acl_is_waited_for_until_the_broker_shows_it(
    guarded_clusters: Mapping[str, KafkaCluster], monkeypatch: pytest.MonkeyPatch
) -> None:
    admin, grant = admin_as(guarded_clusters["east"], "root"), acl(topic_name("shown"))
    answers = [[], [], [grant]]
    monkeypatch.setattr(ClusterAcls, "list", lambda _: answers.pop(0))
    admin.wait_for([Change(where="east", kind="acl", name=str(grant), action="create", after=grant.as_dict())])
    assert not answers
