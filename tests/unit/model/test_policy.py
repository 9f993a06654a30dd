"""Replication policies as MirrorMaker 2 has them."""

from __future__ import annotations

import re
import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.model.policy import (
    DefaultPolicy,
    IdentityPolicy,
    ReplicationPolicy,
    TemplatePolicy,
    TopicNameError,
    is_cycle,
    is_legal_topic,
    name_fault,
)

aliases = st.text(string.ascii_letters + string.digits + "_-", min_size=1, max_size=8)
topics = st.text(string.ascii_letters + string.digits + "._-", min_size=1, max_size=20).filter(is_legal_topic)
policies: st.SearchStrategy[ReplicationPolicy] = st.sampled_from(
    [
        DefaultPolicy(),
        DefaultPolicy("__"),
        IdentityPolicy(),
        TemplatePolicy("all.{topic}"),
        TemplatePolicy("{source}_{topic}_x"),
    ]
)


@given(aliases, aliases, topics.filter(lambda name: name.strip(".")))
def test_the_default_policy_reads_back_what_it_wrote(source: str, target: str, topic: str) -> None:
    policy = DefaultPolicy()
    remote = policy.remote_topic(source, target, topic)
    assert policy.upstream_topic(remote) == topic
    assert policy.topic_source(remote) == source
    assert policy.original_topic(remote) == policy.original_topic(topic)


@given(policies, aliases, aliases, topics, topics)
def test_two_topics_of_one_source_stay_two(
    policy: ReplicationPolicy, source: str, target: str, one: str, two: str
) -> None:
    same = policy.remote_topic(source, target, one) == policy.remote_topic(source, target, two)
    assert same == (one == two), "a policy with {topic} is injective for each source"


@given(st.lists(aliases, min_size=1, max_size=5, unique=True), topics.filter(lambda name: name.strip(".")))
def test_a_topic_is_a_cycle_for_every_cluster_it_has_been_on(path: list[str], topic: str) -> None:
    policy, name = DefaultPolicy(), topic
    for alias in path:
        name = policy.remote_topic(alias, "next", name)
    assert all(is_cycle(policy, name, alias) for alias in path), "never sent back to where it came from"
    assert not is_cycle(policy, name, "elsewhere-9")


@pytest.mark.parametrize(
    ("topic", "source", "upstream", "original"),
    [
        ("orders", None, None, "orders"),
        ("east.orders", "east", "orders", "orders"),
        ("west.east.orders", "west", "east.orders", "orders"),
        ("east.", None, None, "east."),
        (".orders", "", "orders", "orders"),
        ("a..b", "a", ".b", "b"),
        ("east.a.", "east", "a.", "a."),
        ("..", None, None, ".."),
    ],
)
def test_names_split_as_java_splits_them(topic: str, source: str | None, upstream: str | None, original: str) -> None:
    policy = DefaultPolicy()
    assert (policy.topic_source(topic), policy.upstream_topic(topic), policy.original_topic(topic)) == (
        source,
        upstream,
        original,
    ), "MirrorMaker 2's DefaultReplicationPolicy: literal separator, trailing empty parts dropped"


def test_the_identity_policy_keeps_names_but_for_heartbeats() -> None:
    policy = IdentityPolicy("east")
    assert policy.remote_topic("east", "central", "orders") == "orders"
    assert (policy.topic_source("orders"), policy.upstream_topic("orders")) == ("east", "orders")
    assert policy.remote_topic("east", "central", "heartbeats") == "east.heartbeats"
    assert policy.topic_source("west.heartbeats") == "west"
    assert policy.upstream_topic("west.heartbeats") == "heartbeats"
    assert policy.original_topic("central.west.heartbeats") == "heartbeats"
    assert not is_cycle(policy, "west.orders", "west"), "identity has no cycle protection"
    assert is_cycle(policy, "west.heartbeats", "west")
    for name in ("sensor-heartbeats", "myheartbeats", "heartbeats-v2"):
        assert policy.remote_topic("east", "central", name) == name, "a user's own: MirrorMaker 2 would rename two"
        assert (policy.topic_source(name), policy.original_topic(name)) == ("east", name)


def test_a_template_fills_its_placeholders_and_may_merge() -> None:
    assert TemplatePolicy("{target}.{source}-{topic}").remote_topic("east", "central", "a") == "central.east-a"
    assert TemplatePolicy("all").remote_topic("east", "central", "a") == "all"
    assert TemplatePolicy("all").merges_topics
    assert TemplatePolicy("all").upstream_topic("all") is None


@pytest.mark.parametrize("template", ["{topc}", "a b", "", "all/{topic}", "{topic", "x" * 250, ".", "{}"])
def test_a_template_that_makes_no_legal_name_is_refused(template: str) -> None:
    with pytest.raises(TopicNameError):
        TemplatePolicy(template)


@pytest.mark.parametrize("policy", [DefaultPolicy(), IdentityPolicy(), TemplatePolicy("a.{topic}")])
def test_a_name_that_kafka_would_refuse_is_refused(policy: ReplicationPolicy) -> None:
    fault = name_fault(policy.remote_topic("east", "central", "x" * 250))
    assert fault is not None
    assert re.search(r"25\d characters.*exclude_topics", str(fault))
    assert fault.exit_code == 3, "a topic that meets it waits for a person, and is not tried again for ever"
    assert name_fault("orders") is None
    for reserved in ("__consumer_offsets", "mirrorlake.east.central.ledger", ".."):
        assert name_fault(reserved)
