"""History: states and changes agree, and the plan back leads back."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.model.acls import Acl
from mirrorlake.model.history import (
    GroupPlace,
    HistoryState,
    Observed,
    changes_between,
    group_moves,
    plan_back,
    state_of,
)

T0 = datetime(2026, 1, 1, tzinfo=timezone.utc)
ACL = Acl(
    resource="TOPIC", name="t", pattern="LITERAL", principal="User:a", host="*", operation="READ", permission="ALLOW"
)
OTHER = replace(ACL, principal="User:b")

settings = st.dictionaries(st.sampled_from(["retention.ms", "segment.ms"]), st.sampled_from(["1", "2"]))
topics = st.builds(
    Observed,
    at=st.just(T0),
    cluster=st.just("west"),
    role=st.just("target"),
    topic=st.sampled_from(["a", "b"]),
    topic_id=st.sampled_from(["x", "y"]),
    partitions=st.integers(1, 3),
    configs=settings,
    present=st.booleans(),
)
permissions = st.builds(
    Observed, at=st.just(T0), cluster=st.just("west"), acl=st.sampled_from([ACL, OTHER]), present=st.booleans()
)
pasts = st.lists(st.one_of(topics, permissions), max_size=15).map(
    lambda seen: [replace(one, at=T0 + timedelta(minutes=number)) for number, one in enumerate(seen)]
)


def until(seen: list[Observed], at: datetime) -> HistoryState:
    return state_of(one for one in seen if one.at <= at)


@given(pasts, st.integers(-1, 16), st.integers(-1, 16))
def test_the_changes_between_two_times_lead_from_one_state_to_the_other(seen: list[Observed], a: int, b: int) -> None:
    start, end = (T0 + timedelta(minutes=number, seconds=1) for number in sorted((a, b)))
    held = set(until(seen, start).acls.get("west", set()))
    shapes = {t: dict(s.configs) for (_, t), s in until(seen, start).topics.items() if s.present}
    for change in changes_between(seen, start, end):
        assert start < change.at <= end
        if change.kind == "acl":
            (held.add if change.action == "create" else held.discard)(Acl(**(change.after or change.before)))
        elif change.action in ("create", "recreate"):
            shapes[change.name] = dict(change.after["configs"])
        elif change.action == "delete":
            del shapes[change.name]
        elif change.action == "set_configs":
            for name, value in change.after.items():
                assert shapes[change.name].get(name) == change.before[name]
                shapes[change.name].pop(name, None)
                if value is not None:
                    shapes[change.name][name] = value
    after = until(seen, end)
    assert held == after.acls.get("west", set())
    assert shapes == {t: dict(s.configs) for (_, t), s in after.topics.items() if s.present}


@pytest.mark.law("G")
@given(pasts, st.integers(-1, 16))
def test_law_g_the_plan_back_leads_back_and_is_then_empty(seen: list[Observed], number: int) -> None:
    then, now = until(seen, T0 + timedelta(minutes=number, seconds=1)), state_of(seen)
    plan = plan_back(then, now, owner=lambda _, acl: "f" if acl == ACL else None)
    acls, configs = set(now.acls.get("west", set())), {key: dict(s.configs) for key, s in now.topics.items()}
    for change in plan.changes:
        if change.kind == "acl":
            (acls.add if change.action == "create" else acls.discard)(Acl(**(change.after or change.before)))
            assert change.action == "create" or change.name == str(ACL), "a stranger's ACL would be deleted"
        else:
            for name, value in change.after.items():
                configs["west", change.name].pop(name, None)
                if value is not None:
                    configs["west", change.name][name] = value
    reached = HistoryState(
        topics={key: replace(s, configs=configs[key]) for key, s in now.topics.items()}, acls={"west": acls}
    )
    assert not plan_back(then, reached, owner=lambda _, acl: "f" if acl == ACL else None)
    for key, was in then.topics.items():
        if was.present and now.topics[key].present:
            assert configs[key] == dict(was.configs)


def test_what_a_plan_cannot_bring_back_is_named() -> None:
    small = Observed(at=T0, cluster="west", role="target", topic="t", topic_id="x", partitions=1)
    place = GroupPlace("west", "app", "t", 0)
    then = HistoryState(topics={("west", "t"): small}, acls={"west": set()}, groups={place: 5})
    now = HistoryState(
        topics={("west", "t"): replace(small, partitions=2), ("west", "new"): replace(small, topic="new")},
        acls={"west": {ACL}},
        groups={place: 9},
    )
    plan = plan_back(then, now, owner=lambda *_: None)
    assert not plan
    assert sorted(note.kind for note in plan.notes) == ["acl", "group", "topic", "topic"]


def test_a_groups_move_is_told_once() -> None:
    one, two = GroupPlace("west", "app", "t", 0), GroupPlace("west", "app", "t", 1)
    [moved] = group_moves({one: 5, two: 7}, {one: 9, two: 7}, at=T0)
    assert (moved.action, moved.before, moved.after) == ("move", 5, 9)
