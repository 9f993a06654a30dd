"""What is taken back with a cutover that was killed, and which cutover is gone on with."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from mirrorlake.failover import cutover
from mirrorlake.failover.cutover import BACK, Cutover
from mirrorlake.failover.operation_context import CUTOVER, OperationContext
from mirrorlake.model.control import PAUSE, Intention, Subject, state_of
from mirrorlake.model.groups import GroupPlan
from mirrorlake.procedure import BEGIN, DONE, Operation, StepDone
from tests.builders import NOON


def cutover_of(*steps: str) -> Operation:
    done = tuple(StepDone(name=one, at=NOON) for one in steps)
    return Operation(id="c1", command=CUTOVER, flow="f", steps=done)


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
