"""What never leaves a cluster: the settings hold it back from every flow, whatever the flow selects or is called."""

from __future__ import annotations

import pickle
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.config import loads
from mirrorlake.config.schema import FlowConfig, MirrorConfig
from mirrorlake.errors import ConfigError, TopicDenied
from mirrorlake.model.flow import SourcePartition
from mirrorlake.topics import target_of


def settings(*flows: str, never_leave: str = "'secrets.*, pii'") -> MirrorConfig:
    return loads(
        "lake: {root: ./lake}\nclusters:\n"
        f"  east: {{bootstrap_servers: 'east:9092', never_leave: {never_leave}}}\n"
        "  west: {bootstrap_servers: 'west:9092'}\n"
        "  central: {bootstrap_servers: 'central:9092'}\n"
        "flows:\n" + "".join(f"  - {{{flow}}}\n" for flow in flows)
    )


DOORS = [
    "topics: '.*'",
    "topics: 'orders, pii, secrets.a'",
    "topics: '(?i)PII, orders'",
    "topics: '.*', exclude_topics: ''",
    "topics: '.*', policy: identity",
    "topics: '.*', policy: {template: '{topic}.all'}",
    "topics: '.*', policy: {name: default, separator: '_'}",
    "topics: '.*', delivery: at_least_once, start: latest",
]


@pytest.mark.parametrize("door", DOORS)
def test_no_way_of_writing_a_flow_opens_a_door(door: str) -> None:
    config = settings(f"source: east, target: central, {door}")
    flow = config.flows[0]
    subscribed = re.compile(config.subscribe_pattern("east"))
    for topic in ("pii", "secrets.a", "secrets"):
        assert not flow.carries(topic)
        assert flow.denies(topic)
        assert not subscribed.search(topic), "it is not even read"
        with pytest.raises(TopicDenied, match="never_leave"):
            target_of(flow, SourcePartition(topic, 1, 0))
    assert flow.carries("orders")
    assert subscribed.search("orders")
    assert target_of(flow, SourcePartition("orders", 1, 3)).partition == 3


@pytest.mark.parametrize("policy", ["default", "identity", "{template: 'x.{topic}'}"])
def test_what_came_from_a_cluster_that_denies_it_goes_no_further(policy: str) -> None:
    config = settings(
        "source: east, target: central, topics: orders",
        f"source: central, target: west, topics: '.*', policy: {policy}",
    )
    onward = config.flow("central->west")
    for topic in ("east.pii", "west.east.pii", "other.east.secrets.a"):
        assert onward.denies(topic)
        assert not onward.carries(topic)
    for topic in ("pii", "east.orders", "yeast.pii", "secrets.a"):
        assert not onward.denies(topic), "born on a cluster that does not deny it"


def test_remote_names_with_a_separator_of_ones_own_are_read_too() -> None:
    own = "policy: {name: default, separator: '_'}"
    config = settings(
        f"source: east, target: central, topics: orders, {own}", f"source: central, target: west, topics: '.*', {own}"
    )
    assert config.flow("central->west").denies("east_pii")
    assert config.flow("central->west").denies("east.pii"), "made by another mirror"


def test_expressions_with_edges_are_denied_behind_hops_too() -> None:
    config = settings("source: central, target: west, topics: '.*'", never_leave="['^pii$', '(?i)Secret']")
    assert [config.flows[0].denies(topic) for topic in ("east.pii", "east.sECRET", "east.piix")] == [True, True, False]


def test_a_flow_that_selects_only_what_is_denied_is_a_fault() -> None:
    with pytest.raises(ConfigError, match=r"flows\[0\]\.topics: 'pii', 'secrets\.x' may never leave east"):
        settings("source: east, target: central, topics: 'pii, secrets.x'")
    with pytest.raises(ConfigError, match="may never leave"):
        settings("source: east, target: central, topics: pii")


def test_a_denial_that_is_no_expression_is_a_fault() -> None:
    with pytest.raises(ConfigError, match=r"clusters.east.never_leave: .*dangling star"):
        settings("source: east, target: central, topics: a", never_leave="'pii*'")
    with pytest.raises(ConfigError, match=r"clusters.east.never_leave"):
        settings("source: east, target: central, topics: a", never_leave="'pii(?<=x{1,9999})('")


def test_a_flow_made_for_the_moment_is_held_to_the_denials() -> None:
    config = settings("source: east, target: central, topics: '.*'")
    copy = config.flows[0].model_copy(update={"name": "drill", "target": "west"})
    assert copy.denies("pii")
    made = FlowConfig.model_validate({"source": "east", "target": "west", "topics": "pii, orders"})
    assert [made.denies("orders"), made.carries("orders")] == [True, False], "never told, it denies everything"
    assert pickle.loads(pickle.dumps(made)).denies("orders")  # noqa: S301
    with pytest.raises(TopicDenied):
        target_of(made, SourcePartition("orders", 1, 0))
    bound = config.bind(made)
    assert [bound.denies("pii"), bound.carries("orders")] == [True, True]
    assert made.denies("orders"), "a frozen value is never told later what it is"
    assert pickle.loads(pickle.dumps(config.flows[0])).denies("pii")  # noqa: S301  our own bytes, as workers get them


names = st.text("ab.-_", min_size=1, max_size=8)


@given(names, st.lists(st.sampled_from(["west", "east", "central", "x"]), max_size=3))
def test_whatever_the_hops_a_denied_name_is_denied(name: str, hops: list[str]) -> None:
    config = settings(
        "source: central, target: west, topics: '.*'",
        never_leave=f"['{re.escape(name)}']".replace("\\", "\\\\").replace("'", '"'),
    )
    remote = ".".join([*hops, "east", name])
    assert config.flows[0].denies(remote)
    assert re.search(config.subscribe_pattern("central"), remote) is None
