"""Replication policies as MirrorMaker 2 has them, and the cycles that none of them keeps apart."""

from __future__ import annotations

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.model.loops.cycles import round_trips
from mirrorlake.model.policy import (
    DefaultPolicy,
    IdentityPolicy,
    ReplicationPolicy,
    TemplatePolicy,
    TopicNameError,
    is_cycle,
    is_legal_topic,
)
from tests.unit.model.flows import Flow, flow

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
    if one.endswith("heartbeats") != two.endswith("heartbeats"):
        return
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
        ("foo.bar", "foo", "bar", "bar"),
        ("west.east.orders", "west", "east.orders", "orders"),
        ("east.", None, None, "east."),
        ("east..", None, None, "east.."),
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
    with pytest.raises(TopicNameError, match=r"25\d characters.*exclude_topics") as refused:
        policy.remote_topic("east", "central", "x" * 250)
    assert refused.value.exit_code == 3, "a flow that meets it waits for a person, and is not tried again for ever"


ROUND = [
    pytest.param([flow("a>b", ".*", "identity"), flow("b>a", ".*", "identity")], id="identity both ways, all topics"),
    pytest.param([flow("a>b", "x.*", "identity"), flow("b>a", "xy", "identity")], id="an expression may meet a name"),
    pytest.param([flow("a>b", ".*", "identity"), flow("b>a", ".*", "default")], id="the names grow at every round"),
    pytest.param([flow("a>b", "a?orders", "identity"), flow("b>a", "orders", "identity")], id="optional character"),
]
APART = [
    pytest.param([flow("a>b", ".*", "default"), flow("b>a", ".*", "default")], id="default both ways"),
    pytest.param(
        [flow("a>b", ".*", "default"), flow("b>c", ".*", "default"), flow("c>a", ".*", "default")],
        id="default round a triangle",
    ),
    pytest.param([flow("a>b", "orders", "identity"), flow("b>a", "payments", "identity")], id="disjoint names"),
    pytest.param([flow("a>b", "orders.*", "identity"), flow("b>a", "pay.*", "identity")], id="disjoint beginnings"),
    pytest.param([flow("a>b", "orders", "all.{topic}"), flow("b>a", "orders", "identity")], id="renamed out of reach"),
    pytest.param(
        [flow("a>b", "orders.*", "identity"), flow("b>a", ".*", "default")], id="comes home under another name"
    ),
    pytest.param(
        [flow("a>b", "x", "identity"), flow("b>a", "x", "identity", exclude="x")], id="excluded on the way back"
    ),
    pytest.param([flow("a>b", "x", "identity"), flow("b>a", "xy", "identity")], id="one name begins like the other"),
    pytest.param([flow("a>b", "x.y", "identity"), flow("b>a", "x.yz", "identity")], id="one expression is longer"),
    pytest.param(
        [
            flow("a>b", "x.*, b.*", "identity"),
            flow("b>c", ".*", "default"),
            flow("c>b", ".*", "default"),
            flow("b>a", r"c\.b\..*", "default"),
        ],
        id="the only way home is closed by the default policy",
    ),
    pytest.param(
        [flow("a>b", ".*", "identity"), flow("a>c", ".*", "identity"), flow("b>c", ".*", "default")], id="no way back"
    ),
    pytest.param([flow("a>b", "x" * 249, "identity"), flow("b>a", "x" * 249, "p.{topic}")], id="no legal name"),
]


@pytest.mark.parametrize("flows", ROUND)
def test_a_cycle_that_cannot_be_kept_apart_is_found(flows: list[Flow]) -> None:
    found = round_trips(flows)
    assert found, "records would go round for ever"
    for hops in found.values():
        assert [hop.target for hop in hops] == [*[hop.source for hop in hops[1:]], hops[0].source], (
            "the path is a round trip"
        )


@pytest.mark.parametrize("flows", APART)
def test_flows_that_never_meet_are_allowed(flows: list[Flow]) -> None:
    assert not round_trips(flows)


def test_a_full_mesh_is_answered_in_bounded_time() -> None:
    mesh = [flow(f"{a}>{b}", ".*", "default") for a in "abcdefghij" for b in "abcdefghij" if a != b]
    assert not round_trips(mesh)
    assert round_trips([*mesh, flow("a>b", ".*", "identity")])
    assert round_trips([*mesh, flow("a>b", "x.*", "identity")]), "too many ways round to tell: refused"
    assert not round_trips([*mesh[:12], flow("a>b", "x.*", "identity")])


@given(
    st.lists(
        st.builds(
            flow,
            st.sampled_from(["a>b", "b>a", "b>c", "c>a", "a>c"]),
            st.sampled_from(["x", "y", r"x|p\.x", "all", r"p\.p\.x", r"a\.x"]),
            st.sampled_from(["default", "identity", "p.{topic}", "all", "x"]),
        ),
        min_size=1,
        max_size=5,
        unique_by=lambda each: each.name,
    )
)
def test_literal_names_are_followed_exactly(flows: list[Flow]) -> None:
    """Walk every record by hand: what passes the same flow twice can go on for ever."""
    start = {(each.source, name) for each in flows for name in ("x", "y", "p.x", "all", "p.p.x", "a.x")}
    went_round = False
    for place in start:
        reached, ways = {place}, [(place, frozenset[str]())]
        while ways and not went_round:
            (cluster, topic), used = ways.pop()
            for each in flows:
                if each.source == cluster and each.carries(topic):
                    if each.name in used and not all(
                        f.replication_policy.tells_origin for f in flows if f.name in used
                    ):
                        went_round = True
                        break
                    if each.name not in used:
                        after = (each.target, each.replication_policy.remote_topic(each.source, each.target, topic))
                        ways.append((after, used | {each.name}))
                        reached.add(after)
    if not round_trips(flows):
        assert not went_round, "a cycle must never be overlooked"
