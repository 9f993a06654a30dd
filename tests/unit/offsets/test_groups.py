"""Groups: what becomes of one that moved after its plan was made, and where one was last seen whose cluster is lost."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from mirrorlake.errors import ClusterUnreachable, GroupActive, NotAuthorized
from mirrorlake.kafka import Committed
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.model.groups import GroupPlan, Resume, decide
from mirrorlake.offsets import apply_groups, groups, with_redrives
from mirrorlake.offsets.group_positions import GroupCommits, read_commits
from mirrorlake.offsets.resume import _ResumeQuery
from mirrorlake.render import document
from tests.builders import NOON, ORDERS, mirror_config
from tests.kit.lake import LakeBuilder
from tests.kit.memory_cluster import MemoryCluster

THERE = TopicPartition("orders", 0)


class Target:
    """Groups of a cluster: `runs` has got members, `moved` has committed since the plan was made."""

    def commit(self, group: str, _: Mapping[TopicPartition, Committed], *, seen: Any) -> bool:
        assert seen.keys() == {THERE}
        if group == "runs":
            raise GroupActive(f"{group} has members")
        return group != "moved"


@pytest.mark.law("A")
def test_law_a_who_is_not_moved_is_on_hold_for_a_cause_that_names_the_cluster() -> None:
    resume = Resume(source=ORDERS, upstream_offset=7, target=THERE, downstream_offset=5, exact=True)

    def position(group: str, at: int | None = None, *, active: bool = False) -> Any:
        return decide(group, resume, metadata="", target_offset=at, is_active=active, where="east")

    plan = GroupPlan("f", (*map(position, ("runs", "moved", "free")), position("busy", active=True), position("on", 9)))
    done = apply_groups(plan, target=Target(), where="east")  # type: ignore[arg-type]  # what is asked of it
    assert {one.group: (one.action, one.has_members) for one in done} == {
        "runs": ("hold", True),
        "moved": ("hold", False),
        "free": ("move", False),
        "busy": ("hold", True),
        "on": ("hold", False),
    }
    assert done.with_members == ["busy", "runs"], "a failover and a failback stop for these"
    assert all(" on east" in one.reason for one in done.held)
    assert "has_members" not in document(done)["positions"][0], "what `--json` prints stays as it was"


@pytest.mark.law("A", "G")
def test_law_a_what_is_recorded_is_of_now_and_a_refused_group_hides_no_move(monkeypatch: pytest.MonkeyPatch) -> None:
    def plan(at: int) -> GroupPlan:
        resume = Resume(source=ORDERS, upstream_offset=at, target=THERE, downstream_offset=at, exact=True)
        return GroupPlan("f", (decide("billing", resume, metadata="", target_offset=None, is_active=False),))

    def refuse(given: GroupPlan, *, refused: list[Exception], **_: Any) -> GroupPlan:
        refused.append(NotAuthorized("no", consequence="", remedy=""))
        return given

    recorded, told = list[GroupPlan](), list[GroupPlan]()
    monkeypatch.setattr(groups, "read_commits", lambda *_, **__: GroupCommits({}))
    monkeypatch.setattr(groups.GroupSync, "_plan", lambda *_: plan(50))
    monkeypatch.setattr(groups, "apply_groups", refuse)
    flow = mirror_config({"mm2": {"checkpoints": True}}).flows[0]
    context: Any = SimpleNamespace(now=lambda: NOON, groups=lambda _: None, mm2_writer=lambda _: None, lake=None)
    sync = groups.GroupSync(context, flow)
    records = SimpleNamespace(record_intent=lambda _: None, write=lambda one, *_, **__: recorded.append(one))
    monkeypatch.setattr(sync, "_records", records)
    with pytest.raises(NotAuthorized):
        sync.apply(plan(100), tell=told.append)
    assert [one.positions[0].action for one in told] == ["hold"], "it went back since the plan was shown"
    assert [one.resume.downstream_offset for one in recorded[0].translated()] == [50], (
        "MirrorMaker's clients would skip"
    )


@pytest.mark.law("A")
def test_law_a_a_group_stays_where_nobody_knows_what_it_reads_of_another_region(built: LakeBuilder) -> None:
    merged = {"topics": "orders", "target": "central", "policy": {"template": "all.{topic}"}}
    config = mirror_config({**merged, "source": "east"}, {**merged, "source": "west"})
    flow, away = config.flows[0], [NotAuthorized]
    for alias in ("east", "west"):
        built.observe("orders", cluster=alias)
    east: Any = SimpleNamespace(states=lambda: {"billing": "Empty"}, refusals=lambda _: {})
    east.committed = lambda *_, **__: {"billing": {TopicPartition("orders", 0): Committed(7)}}
    east.describe = lambda _: {"orders": SimpleNamespace(topic_id="orders", partitions=1)}

    def groups_of(alias: str) -> Any:
        if alias == "west":
            raise away[0]("no", consequence="", remedy="")
        return east

    context: Any = SimpleNamespace(config=config, lake=built.lake, groups=groups_of, admin=lambda _: east)

    def is_held() -> bool:
        found = read_commits(context, flow)
        assert {*found.unsure} | {group for group, _ in found.by_flow[flow.name]} == {"billing"}
        return bool(found.unsure)

    assert is_held(), "it may read there"
    away[0] = ClusterUnreachable
    assert is_held(), "it never answered a look"
    built.add("samples", observed_at=NOON, subject="cluster", name="west", scope="mine", complete=True, positions=0)
    assert not is_held(), "no group was there"
    away[0] = NotAuthorized
    assert is_held(), "what a look may not see is not recorded"


@pytest.mark.law("A")
def test_law_a_a_redrive_counts_of_which_the_table_or_a_ledger_tells(built: LakeBuilder) -> None:
    flow, ledgers = mirror_config().flows[0], dict[str, Any]()
    context: Any = SimpleNamespace(lake=built.lake, admin=lambda _: MemoryCluster(**ledgers))
    assert with_redrives(context, [flow]) == [flow]
    ledgers[flow.redrive().ledger_topic] = (0, 1)
    assert with_redrives(context, [flow]) == [flow, flow.redrive()]
    ledgers.clear()
    built.withhold(3, flow=flow.redrive_name)
    assert with_redrives(context, [flow]) == [flow, flow.redrive()], "its ledger was deleted"


def test_a_truncation_of_one_partition_begins_no_other_again() -> None:
    flow, orders = mirror_config().flows[0], {"orders": SimpleNamespace(partitions=2)}
    related = SimpleNamespace(shared_remotes=lambda: {flow.remote_topic("orders")}, topics={flow.name: orders})
    cut, whole = SourcePartition("orders", 2, 0), SourcePartition("orders", 1, 1)
    read: Any = {("billing", cut): Committed(130), ("billing", whole): Committed(50)}
    query: Any = SimpleNamespace(related=related)
    found = {position for _, position in _ResumeQuery._completed(query, flow, read)}
    assert found == {(cut, 130), (whole, 50), (SourcePartition("orders", 2, 1), 0)}


def see_topic(built: LakeBuilder, generation: int, cuts: list[dict[str, int]] | None = None) -> None:
    at = NOON + timedelta(minutes=generation)
    built.observe("orders", topic_id=f"x{generation}", generation=generation, observed_at=at, cuts=cuts)


def see_group(built: LakeBuilder, generation: int, position: int, *, minute: int) -> None:
    at = NOON + timedelta(minutes=minute)
    built.position("group", position, group_id="billing", generation=generation, observed_at=at)


def recorded(built: LakeBuilder) -> dict[Any, Committed]:
    config = mirror_config({"source": "east", "target": "central", "topics": "orders"})
    flow, context = config.flow("east->central"), SimpleNamespace(config=config, lake=built.lake)
    return dict(read_commits(context, flow, recorded=True).by_flow[flow.name])  # type: ignore[arg-type]


@pytest.mark.law("A")
def test_a_group_has_one_position_whatever_lives_its_topic_had(built: LakeBuilder) -> None:
    see_topic(built, 1)
    see_group(built, 1, 80, minute=1)
    see_topic(built, 2)
    assert recorded(built) == {("billing", SourcePartition("orders", 1, 0)): Committed(80)}, "not come to the new one"
    see_group(built, 2, 5, minute=3)
    assert recorded(built) == {("billing", SourcePartition("orders", 2, 0)): Committed(5)}, (
        "two positions on what feeds one target partition would hold the group back"
    )


@pytest.mark.law("A")
def test_a_position_is_of_the_life_that_the_source_held_there(built: LakeBuilder) -> None:
    see_topic(built, 1, [{"partition": 0, "generation": 2, "first_offset": 120}])
    # A sample counts by the newest life of the partition, the sync of groups by that at the position.
    see_group(built, 1, 50, minute=3)
    see_group(built, 2, 50, minute=4)
    assert recorded(built) == {("billing", SourcePartition("orders", 1, 0)): Committed(50)}
    see_group(built, 2, 130, minute=5)
    assert recorded(built) == {("billing", SourcePartition("orders", 2, 0)): Committed(130)}
