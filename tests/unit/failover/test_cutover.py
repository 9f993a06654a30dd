"""When groups have their place for a cutover, and what is taken back with one."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from mirrorlake.failover import cutover
from mirrorlake.failover.cutover import BACK, GROUPS, Cutover
from mirrorlake.failover.operation_context import CUTOVER, OperationContext
from mirrorlake.model.control import PAUSE, Intention, Subject, state_of
from mirrorlake.model.flow import TopicPartition
from mirrorlake.model.groups import GroupPlan, Resume, decide
from mirrorlake.procedure import BEGIN, DONE, Operation, StepDone
from tests.builders import NOON, ORDERS


def cutover_of(*steps: str) -> Operation:
    done = tuple(StepDone(name=one, at=NOON) for one in steps)
    return Operation(id="c1", command=CUTOVER, flow="f", steps=done)


def test_a_group_that_has_read_on_at_the_target_need_not_run_for_a_cutover() -> None:
    remote = TopicPartition("east.orders", 0)
    resume = Resume(source=ORDERS, upstream_offset=25, target=remote, downstream_offset=25, exact=True)

    def line(at: int | None, *, was_placed: bool) -> str:
        plan = GroupPlan("f", (decide("billing", resume, metadata="", target_offset=at, is_active=False),))
        work: Any = SimpleNamespace(
            flow=SimpleNamespace(name="f", target="central"),
            journal=None,
            groups=lambda *_: SimpleNamespace(apply=lambda: plan),
            context=SimpleNamespace(groups=lambda _: SimpleNamespace(active=set)),
        )
        planned: Any = None
        return Cutover(work, plan=planned)._check_groups(cutover_of(BEGIN, *[GROUPS] * was_placed)).state

    assert line(25, was_placed=False) == "ok"
    assert line(40, was_placed=True) == "ok", "it was placed at 25, and has read on"
    assert line(40, was_placed=False) == "open", "nobody knows what it has read there"


@pytest.mark.law("F")
@pytest.mark.parametrize(("why", "left"), [("cutover c1: committed", False), ("maintenance", True)])
def test_law_f_a_commit_that_was_killed_after_its_pause_is_taken_back_whole(
    why: str, left: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    flow, steps = Subject(kind="flow", name="f"), list[str]()
    intentions = [Intention(at=NOON, who="ann", action=PAUSE, subject=flow, reason=why)]

    def append(action: str, subject: Subject, *, reason: str) -> None:
        intentions.append(Intention(at=NOON, who="ann", action=action, subject=subject, reason=reason))

    def write(operation: Operation, step: str, **_: Any) -> Operation:
        assert (flow in state_of(intentions).pauses) is left, f"law F: the flow is still paused before {step}"
        steps.append(step)
        return operation

    control = SimpleNamespace(state=lambda: state_of(intentions), append=append)
    context: Any = SimpleNamespace(
        groups=lambda _: SimpleNamespace(active=set), control=lambda: control, lake=None, now=lambda: NOON
    )
    east_to_central: Any = SimpleNamespace(name="f", source="east", target="central", adds_hops=False)
    journal: Any = SimpleNamespace(last=lambda _: cutover_of(BEGIN), write=write)
    work = OperationContext(context=context, flow=east_to_central, journal=journal)
    monkeypatch.setattr(cutover, "plan_groups_back", lambda *_: GroupPlan("f", ()))
    planned: Any = None
    assert Cutover(work, plan=planned).back().state == "back"
    assert steps == ["back", "done"]
    assert (flow in state_of(intentions).pauses) is left


@pytest.mark.law("F")
@pytest.mark.parametrize(("steps", "goes_on"), [((BEGIN,), True), ((BEGIN, BACK), False), ((BEGIN, BACK, DONE), False)])
def test_law_f_a_cutover_that_was_killed_once_it_was_taken_back_is_not_gone_on_with(
    steps: tuple[str, ...], goes_on: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    before, fresh = cutover_of(*steps), replace(cutover_of(BEGIN), id="c2")
    work: Any = SimpleNamespace(
        flow=SimpleNamespace(name="f", source="east", target="central"),
        journal=SimpleNamespace(operations=lambda: [before], last=lambda _: before, begin=lambda _: fresh),
        identity=lambda one: {"flow": "f", "source": "east", "target": "central", "id": one.id},
        topics=lambda _: (),
    )
    monkeypatch.setattr(Cutover, "_steps", lambda _: ())
    planned: Any = None
    assert Cutover(work, plan=planned).run().id == ("c1" if goes_on else "c2")
