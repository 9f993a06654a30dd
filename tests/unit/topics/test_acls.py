"""ACLs: the translation never widens, loses nothing that it can keep, and owns only what it made."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from mirrorlake.config.schema.selection import TopicMatcher
from mirrorlake.model.acls import Acl, AclFlow, Translated, translate
from mirrorlake.model.patterns import DEFAULT_EXCLUDE_TOPICS, parse_patterns
from mirrorlake.model.policy import DefaultPolicy, IdentityPolicy, ReplicationPolicy, TemplatePolicy, name_fault
from mirrorlake.topics.acl_ownership import INTENDED, AclOwnership, acl_changes, ownership_of, simulate

TOPICS = ["a", "ab", "abc", "ac", "b", "ba", "b.a", "secret", "ab-secret", "ab.replica"]
IMPLIED = {"DESCRIBE": {"READ", "WRITE", "DELETE", "ALTER"}, "DESCRIBE_CONFIGS": {"ALTER_CONFIGS"}}


def allow(
    name: str, operation: str = "READ", *, principal: str = "User:a", pattern: str = "LITERAL", **more: str
) -> Acl:
    parts = {"resource": "TOPIC", "host": "*", "permission": "ALLOW", **more}
    return Acl(name=name, operation=operation, principal=principal, pattern=pattern, **parts)


def flow_of(
    topics: str = ".*",
    *,
    exclude: str | None = None,
    policy: ReplicationPolicy | None = None,
    existing: Iterable[str] = TOPICS,
    **more: Any,
) -> AclFlow:
    policy = policy or DefaultPolicy()
    excluded = DEFAULT_EXCLUDE_TOPICS if exclude is None else parse_patterns(exclude, required=False)
    matcher = TopicMatcher(parse_patterns(topics), excluded)

    def remote(topic: str) -> str | None:
        name = policy.remote_topic("east", "central", topic)
        return None if name_fault(name) else name

    return AclFlow(
        **{
            "topics": matcher.include,
            "exclude_topics": excluded,
            "carries": matcher.matches,
            "remote": remote,
            "remote_prefix": lambda prefix: policy.remote_prefix("east", "central", prefix),
            "existing": matcher.select(existing),
            **more,
        }
    )


def permitted(acls: Iterable[Acl], principal: str, operation: str, topic: str) -> bool:
    """Decide as Kafka's StandardAuthorizer does: a denial wins, some permissions imply others."""

    def concerns(acl: Acl) -> bool:
        named = acl.name in (topic, "*") if acl.pattern == "LITERAL" else topic.startswith(acl.name)
        return named and acl.principal in (principal, "User:*")

    held = [acl for acl in acls if acl.resource == "TOPIC" and concerns(acl)]
    if any(acl.permission == "DENY" and acl.operation in (operation, "ALL") for acl in held):
        return False
    enough = {operation, "ALL", *IMPLIED.get(operation, ())}
    return any(acl.permission == "ALLOW" and acl.operation in enough for acl in held)


OPERATIONS = ["READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "ALL"]
acls = st.builds(
    Acl,
    resource=st.just("TOPIC"),
    name=st.sampled_from([*TOPICS, "*", "s", "z"]),
    pattern=st.sampled_from(["LITERAL", "PREFIXED"]),
    principal=st.sampled_from(["User:a", "User:b", "User:*"]),
    host=st.just("*"),
    operation=st.sampled_from(OPERATIONS),
    permission=st.sampled_from(["ALLOW", "ALLOW", "DENY"]),
)
flows = st.builds(
    flow_of,
    st.sampled_from([".*", "a.*", "ab, b.*", "a|b", "[ab]c?", "ab.*, secret", "a[b-c].*"]),
    exclude=st.sampled_from([None, None, "secret", ".*secret", "ab.*", ""]),
    policy=st.sampled_from(
        [DefaultPolicy(), IdentityPolicy("east"), TemplatePolicy("all.{topic}"), TemplatePolicy("{topic}.copy")]
    ),
    existing=st.sampled_from([TOPICS, TOPICS[:4], []]),
)


@given(st.lists(acls, max_size=6), flows, st.sampled_from(["User:a", "User:b", "User:c"]), st.sampled_from(OPERATIONS))
@example(
    # The denial has no counterpart, since the target has a foreign all.abroad; the topic is still to come.
    [allow("a"), allow("a", pattern="PREFIXED", permission="DENY")],
    flow_of(policy=TemplatePolicy("all.{topic}"), existing=[]),
    "User:a",
    "READ",
)
def test_nobody_may_do_more_on_the_target_than_on_the_source(
    source: list[Acl], flow: AclFlow, principal: str, operation: str
) -> None:
    ours = {flow.remote(name) for name in flow.existing}
    foreign = (
        "abroad",
        "bazaar",
        "all.abroad",
        "a",
        "abx",
        "__consumer_offsets",
        "mirrorlake.x.ledger",
        "east.private",
    )
    flow = replace(flow, foreign=tuple(name for name in foreign if name not in ours))
    there = translate(source, flow).wanted
    for topic in TOPICS:
        remote = flow.remote(topic)
        if remote is None or remote in flow.foreign or topic.endswith(".replica"):
            continue
        if not flow.carries(topic):
            assert not permitted(there, principal, operation, remote), f"{topic} is not carried"
        elif permitted(there, principal, operation, remote):
            assert permitted(source, principal, operation, topic), f"widened: {topic}"
    for name in flow.foreign:
        assert not permitted(there, principal, operation, name), f"{name} is not of this flow"


@given(st.lists(acls, max_size=6), flows, st.sampled_from(["User:a", "User:b", "User:c"]))
def test_reading_is_carried_over_exactly_where_nothing_is_left_out(
    source: list[Acl], flow: AclFlow, principal: str
) -> None:
    translated = translate(source, flow)
    left_out = {one.acl for one in translated.left_out}
    for topic in flow.existing:
        remote = flow.remote(topic)
        assert remote is not None
        kept = permitted([acl for acl in source if acl not in left_out], principal, "READ", topic)
        assert permitted(translated.wanted, principal, "READ", remote) == kept, topic
    for acl in translated.wanted:
        assert acl.permission == "DENY" or acl.operation in ("READ", "DESCRIBE", "DESCRIBE_CONFIGS")


def shown(translated: Translated) -> list[str]:
    return sorted(f"{a.permission} {a.operation} {a.pattern.lower()} {a.name}" for a in translated.wanted)


@pytest.mark.parametrize(
    ("acl", "flow", "wanted"),
    [
        (allow("ord", pattern="PREFIXED"), flow_of(), ["ALLOW READ prefixed east.ord"]),
        (allow("*"), flow_of(), ["ALLOW READ prefixed east."]),
        (allow("a", pattern="PREFIXED"), flow_of("ab.*", existing=["ab", "abc"]), []),
        (allow("a", pattern="PREFIXED", permission="DENY"), flow_of("ab.*"), ["DENY READ prefixed east.a"]),
        (allow("ab", pattern="PREFIXED"), flow_of("a.*"), ["ALLOW READ prefixed east.ab"]),
        (allow("ab", pattern="PREFIXED"), flow_of(exclude=".*secret"), []),
        (allow("a", pattern="PREFIXED"), flow_of("a.*", policy=IdentityPolicy("east"), foreign=("also-local",)), []),
        (allow("a", pattern="PREFIXED"), flow_of("a.*", policy=IdentityPolicy("east")), ["ALLOW READ prefixed a"]),
        (allow("a", pattern="PREFIXED"), flow_of(policy=TemplatePolicy("all.{topic}")), ["ALLOW READ prefixed all.a"]),
        (allow("b.", pattern="PREFIXED"), flow_of(policy=TemplatePolicy("{topic}.copy")), []),
        (allow("a"), flow_of(policy=TemplatePolicy("merged"), shared=lambda _: True), []),
        (allow("a", "ALL"), flow_of(), ["ALLOW DESCRIBE literal east.a", "ALLOW READ literal east.a"]),
        (allow("a", "WRITE"), flow_of(), ["ALLOW DESCRIBE literal east.a"]),
        (allow("a", "CREATE"), flow_of(), []),
        (allow("nowhere"), flow_of("a.*"), []),
        (allow("a", "UNKNOWN"), flow_of(), []),
        (allow("a", resource="UNKNOWN"), flow_of(), []),
    ],
)
def test_an_acl_is_translated_by_the_flows_policy(acl: Acl, flow: AclFlow, wanted: list[str]) -> None:
    translated = translate([acl], flow)
    assert shown(translated) == wanted
    if not wanted and acl.operation != "CREATE" and acl.name != "nowhere":
        assert translated.left_out[0].acl == acl, "what has no counterpart is said"


def test_writes_denied_to_everybody_on_a_source_are_not_denied_to_flows_that_lead_elsewhere() -> None:
    denial = allow("orders", "WRITE", principal="User:*", permission="DENY")
    found = translate([denial, allow("orders")], flow_of("orders"))
    assert shown(found) == ["ALLOW READ literal east.orders"]
    assert [one.acl for one in found.left_out] == [denial]
    one_of_many = replace(denial, principal="User:a")
    assert shown(translate([one_of_many], flow_of("orders"))) == ["DENY WRITE literal east.orders"]


# -- whose an ACL is --------------------------------------------------------------------------------------------------

X, Y = allow("east.a"), allow("east.b")


def kinds(owned: AclOwnership, *, wanted: Iterable[Acl], actual: Iterable[Acl], flow: str = "f") -> list[str]:
    plan = acl_changes(flow, where="west", wanted={acl: acl for acl in wanted}, actual=set(actual), owned=owned)
    return [change.action for change in plan.changes] + ["note"] * len(plan.notes)


@pytest.mark.law("G")
@pytest.mark.law("F")
def test_law_f_a_crash_between_two_changes_leaves_nobody_with_more_than_the_source_gives() -> None:
    may, must_not = allow("a", pattern="PREFIXED"), allow("ab", permission="DENY", principal="User:z")

    def order(wanted: set[Acl], owned: AclOwnership, actual: set[Acl]) -> list[tuple[str, str]]:
        plan = acl_changes("f", where="west", wanted={acl: acl for acl in wanted}, actual=actual, owned=owned)
        found = [(change.action, Acl(**(change.after or change.before)).permission) for change in plan.changes]
        simulate(plan, actual=actual, owned=owned)
        return found

    owned, actual = ownership_of([]), set[Acl]()
    assert order({may, must_not}, owned, actual) == [("create", "DENY"), ("create", "ALLOW")]
    assert order(set(), owned, actual) == [("delete", "ALLOW"), ("delete", "DENY")]


@pytest.mark.law("G")
def test_a_revocation_is_followed_for_what_mirrorlake_made() -> None:
    owned = ownership_of([(INTENDED, X, "f"), ("create", X, "f")])
    assert kinds(owned, wanted=[], actual=[X, Y]) == ["delete"]
    assert kinds(owned, wanted=[X], actual=[]) == ["create"], "drift"
    assert kinds(owned, wanted=[], actual=[]) == ["release"], "whoever makes it now is its owner"


@pytest.mark.law("F")
def test_a_crash_between_creating_and_recording_loses_and_deletes_nothing() -> None:
    owned = ownership_of([(INTENDED, X, "f")])
    assert kinds(owned, wanted=[X], actual=[]) == ["create"]
    assert kinds(owned, wanted=[X], actual=[X]) == ["adopt"]
    assert kinds(owned, wanted=[], actual=[X]) == ["note"], "perhaps somebody else's: shown, not deleted"
    assert kinds(owned, wanted=[], actual=[]) == ["release"]


steps = st.lists(
    st.tuples(
        st.sampled_from(["want", "unwant", "stranger", "remove", "crash"]),
        st.sampled_from("fg"),
        st.sampled_from([X, Y]),
    ),
    max_size=12,
)


@pytest.mark.law("G")
@given(steps)
def test_law_g_a_second_plan_is_empty_and_strangers_acls_live(events: list[tuple[str, str, Acl]]) -> None:
    actual: set[Acl] = set()
    strangers: set[Acl] = set()
    wanted: dict[str, set[Acl]] = {"f": set(), "g": set()}
    owned = AclOwnership()
    for event, flow, acl in events:
        if event == "want":
            wanted[flow].add(acl)
        elif event == "unwant":
            wanted[flow].discard(acl)
        elif event == "stranger" and acl not in actual:
            actual.add(acl)
            # Only where nobody of us was about to make it can it be known for a stranger's.
            if not owned.holders.get(acl) and not owned.intended.get(acl):
                strangers.add(acl)
        elif event == "remove":
            actual.discard(acl)
            strangers.discard(acl)
        elif event == "crash" and acl not in actual and acl in wanted[flow]:
            owned.note(INTENDED, acl, flow)
            actual.add(acl)
            continue
        for one in wanted:
            want = {acl: acl for acl in wanted[one]}
            simulate(acl_changes(one, where="w", wanted=want, actual=actual, owned=owned), actual=actual, owned=owned)
            assert not acl_changes(one, where="w", wanted=want, actual=actual, owned=owned), "law G"
        assert strangers <= actual, "an ACL that somebody else made was deleted"
        for acl in (X, Y):
            made = acl in actual and acl not in strangers and not owned.intended.get(acl)
            assert not made or any(acl in wants for wants in wanted.values()) or not owned.holders.get(acl)
