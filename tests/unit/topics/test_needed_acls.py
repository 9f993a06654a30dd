"""Which ACLs the settings of a flow need: all of them, and no more."""

from __future__ import annotations

import shlex

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.config import loads
from mirrorlake.errors import UsageError
from mirrorlake.mirror import Mirror
from mirrorlake.model.needed_acls import NeededAcls, acl_command, acl_names_of
from mirrorlake.model.patterns import parse_patterns

WRITES = {"WRITE", "CREATE", "DELETE", "ALTER", "ALTER_CONFIGS", "ALL"}


def needed(flow: str, *, also: tuple[str, ...] = (), lake: bool = False) -> NeededAcls:
    east = "kind: lake" if lake else "bootstrap_servers: 'east:9092', never_leave: 'pii.*'"
    mirror = Mirror(
        loads(
            f"lake: {{root: ./lake}}\nclusters: {{east: {{{east}}}, central: {{bootstrap_servers: 'central:9092'}}}}\n"
            f"flows: [{{source: east, target: central, {flow}}}]"
        )
    )
    return mirror.acls("User:ml", also=also)


def listed(found: NeededAcls, cluster: str, resource: str) -> dict[str, str]:
    return {
        f"{one.name}{'*' if one.pattern == 'PREFIXED' else ''}": " ".join(one.operations)
        for one in found.acls
        if (one.cluster, one.resource) == (cluster, resource)
    }


def test_a_plain_flow_needs_little() -> None:
    found = needed("topics: 'orders, clicks.*', groups: 'app-.*'")
    assert listed(found, "east", "TOPIC") == {
        "orders": "READ DESCRIBE DESCRIBE_CONFIGS",
        "clicks*": "READ DESCRIBE DESCRIBE_CONFIGS",
        "__consumer_offsets": "DESCRIBE",
    }
    assert listed(found, "east", "GROUP") == {"mirrorlake*": "DESCRIBE", "app-*": "DESCRIBE"}
    assert listed(found, "central", "GROUP") == {"mirrorlake*": "DESCRIBE", "app-*": "READ DESCRIBE"}
    remote = "READ WRITE CREATE ALTER DESCRIBE DESCRIBE_CONFIGS ALTER_CONFIGS"
    assert listed(found, "central", "TOPIC") == {
        "east.orders": remote,
        "east.clicks*": remote,
        "mirrorlake.east.central.*": "READ WRITE CREATE DELETE ALTER DESCRIBE",
    }
    assert listed(found, "central", "TRANSACTIONAL_ID") == {"mirrorlake.east.central.*": "WRITE DESCRIBE"}
    assert not listed(found, "east", "CLUSTER") | listed(found, "central", "CLUSTER")


@pytest.mark.law("H")
@pytest.mark.parametrize("flow", ["topics: '.*'", "topics: orders, sync: {acls: true}, mm2: {heartbeats: true}"])
def test_law_h_nothing_is_written_to_a_source_unless_it_is_asked_for(flow: str) -> None:
    for also in ((), ("fence-acl",), ("fence-topic",), ("failback",)):
        granted = {one.operation for one in needed(flow, also=also).on("east")}
        assert bool(granted & WRITES) == bool(also)


@pytest.mark.parametrize(
    ("flow", "names"),
    [
        ("topics: '.*'", {"east.*"}),
        ("topics: '.*', policy: identity", {"*"}),
        ("topics: 'orders, clicks.*', policy: {template: 'all.{topic}'}", {"all.orders", "all.clicks*"}),
        ("topics: orders, policy: {template: merged}", {"merged"}),
        ("topics: 'clicks.*', policy: {template: '{topic}.copy'}", {"*"}),
        ("topics: 'payments.card'", {"east.payments.card"}),
        ("topics: 'ord[ae]rs'", {"east.ord*"}),
    ],
)
def test_remote_topics_are_named_by_the_policy(flow: str, names: set[str]) -> None:
    found = listed(needed(flow), "central", "TOPIC").keys()
    assert {name for name in found if not name.startswith("mirrorlake.")} == names


def test_what_the_settings_turn_off_is_not_needed() -> None:
    found = needed("topics: orders, sync: {groups: false, configs: false, partitions: false}")
    assert listed(found, "central", "TOPIC")["east.orders"] == "READ WRITE CREATE DESCRIBE DESCRIBE_CONFIGS"
    assert listed(found, "central", "GROUP") == {"mirrorlake*": "DESCRIBE"}


def test_checkpoints_are_told_of_groups_that_nobody_sets() -> None:
    found = needed("topics: orders, groups: app, sync: {groups: false}, mm2: {checkpoints: true}")
    assert listed(found, "east", "GROUP")["app"] == "DESCRIBE"
    assert listed(found, "central", "GROUP")["app"] == "DESCRIBE"


def test_a_failover_places_groups_that_were_not_kept_in_step() -> None:
    found = needed("topics: orders, groups: app, sync: {groups: false}", also=("failover",))
    assert listed(found, "east", "GROUP")["app"] == "DESCRIBE"
    assert listed(found, "central", "GROUP")["app"] == "READ DESCRIBE"
    assert not {one.operation for one in found.on("east")} & WRITES, "law H"
    with_groups = listed(needed("topics: orders"), "central", "GROUP")
    assert listed(needed("topics: orders", also=("failover",)), "central", "GROUP") == with_groups


def test_a_lake_cluster_has_no_broker_to_ask() -> None:
    assert {one.cluster for one in needed("topics: orders", lake=True).acls} == {"central"}


def test_what_an_acl_cannot_say_is_a_note() -> None:
    notes = needed("topics: '.*[0-9]'").notes
    assert any(".*[0-9]" in note and "every name" in note for note in notes)
    assert any("pii.*" in note and "never_leave" in note for note in notes)
    assert not needed("topics: 'orders, clicks.*'").notes


@pytest.mark.parametrize("principal", ["mirror", "User:", ":mirror", ""])
def test_a_principal_is_a_principal(principal: str) -> None:
    mirror = Mirror(
        loads(
            "lake: {root: ./lake}\nclusters: {a: {bootstrap_servers: 'a:1'}, b: {bootstrap_servers: 'b:1'}}\n"
            "flows: [{source: a, target: b, topics: t}]"
        )
    )
    with pytest.raises(UsageError, match="not a principal"):
        mirror.acls(principal)
    with pytest.raises(UsageError, match="fence-acl, fence-topic, failover, failback"):
        mirror.acls("User:ml", also=["everything"])


@given(st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1), st.text(min_size=1))
def test_no_name_leaves_its_word(principal: str, name: str) -> None:
    line = acl_command("TOPIC", name, "LITERAL", ["READ"], servers="a:1", principal=f"User:{principal}")
    assert shlex.split(line)[-1] == name
    assert f"User:{principal}" in shlex.split(line)


@given(st.lists(st.sampled_from(["a", "ab", "a.*", "ab.*", "b.c", "[xy]z", ".*", "b.*c"]), min_size=1))
def test_every_topic_that_is_meant_is_covered(expressions: list[str]) -> None:
    places = acl_names_of(parse_patterns(expressions))
    meant = {"a": "a", "ab": "ab", "a.*": "a9", "ab.*": "abc", "b.c": "b.c", "b.*c": "bxc", "[xy]z": "yz", ".*": "q"}
    for expression in expressions:
        name = meant[expression]
        assert any(
            place.name in ("*", name) or (place.pattern == "PREFIXED" and name.startswith(place.name))
            for place in places
        )
    assert len(places) == len({(one.pattern, one.name) for one in places})
