"""The console without a browser: what its buttons call, what it shows of what others wrote, and what a refresh leaves alone."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import ipywidgets as widgets
import pytest

import mirrorlake as ml
from mirrorlake.config import keep_for_session, secrets
from mirrorlake.errors import ClusterError, StoreError
from mirrorlake.mirror import Mirror
from mirrorlake.model.group_overview import ABSENT, GroupMember, GroupOnCluster, GroupOverview, GroupOverviewRow
from mirrorlake.model.groups import GroupPlan
from mirrorlake.model.plan import Change, Plan
from mirrorlake.notebook import console as console_module
from mirrorlake.notebook.console import TABS, Console
from mirrorlake.status.status import Status
from tests.builders import mirror_config
from tests.unit.notebook.kit import EVIL, NOW, Clock, click, control, state
from tests.unit.values import group_position, partition_status, status

FLOW = "east->west"
SECRET = "hunter2verysecret"  # noqa: S105


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def mirror(clock: Clock, tmp_path: Path) -> Mirror:
    return Mirror(mirror_config(lake={"root": str(tmp_path)}), now=clock, display=lambda: None)


@pytest.fixture
def console(mirror: Mirror, clock: Clock) -> Iterator[Console]:
    with Console(mirror, now=clock) as made:
        yield made


def answer(monkeypatch: pytest.MonkeyPatch, **methods: Any) -> None:
    """Let the mirror answer by these functions, which get its arguments."""
    for name, method in methods.items():
        monkeypatch.setattr(Mirror, name, lambda _self, *args, _method=method, **named: _method(*args, **named))


def some_status(_flow: str | None = None) -> Status:
    return Status(flows=(status(FLOW, partition_status()),), observed_at=NOW)


def test_status_tables_and_events_refresh_and_nothing_typed_is_lost(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(monkeypatch, status=some_status)
    control(console, "pause-reason").value = "half a sen"
    for tab in TABS:
        console.tabs.selected_index = TABS.index(tab)
        console.work.wait()
        console.refresh()
    assert "caught_up" in console.shown["Status"].html.value
    assert "docs/typed-tables.md" in console.shown["Tables"].html.value
    assert "events" in console.shown["Events"].html.value
    assert console.shown["Topics"].html.value == "", "a cluster is asked when a person asks"
    assert control(console, "pause-reason").value == "half a sen"
    assert console.work.problems == []


def test_the_last_answer_stays_after_a_failure_with_its_time_and_the_reason(
    console: Console, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown = console.shown["Status"]
    answer(monkeypatch, status=some_status)
    shown.refresh()
    clock.time += timedelta(minutes=1)

    def fail(_flow: str | None) -> Status:
        raise ClusterError(f"west does not answer {EVIL}", remedy="wait")

    answer(monkeypatch, status=fail)
    shown.refresh()
    assert "caught_up" in shown.html.value
    assert "00:00:00 UTC" in shown.age.value
    assert "west does not answer" in shown.age.value
    assert "<script" not in shown.age.value


def test_an_answer_to_an_earlier_choice_is_dropped(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, go_on = threading.Event(), threading.Event()

    def groups(flow: str) -> GroupOverview:
        asked.set()
        assert go_on.wait(60)
        return GroupOverview(flow=flow, source="east", target="west", groups=())

    answer(monkeypatch, group_standing=groups)
    control(console, "groups-read").click()
    assert asked.wait(60)
    console.shown["Groups"].clear()
    go_on.set()
    console.work.wait()
    assert console.shown["Groups"].html.value == ""


def test_a_flow_is_paused_and_resumed_and_events_tell_it(
    console: Console, mirror: Mirror, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer(monkeypatch, status=some_status)
    control(console, "pause-reason").value = EVIL
    click(console, "pause")
    [pause] = mirror.events("1h").events
    assert pause.is_open
    assert "landing goes on" in control(console, "pause-said").value
    clock.time += timedelta(seconds=30)
    click(console, "resume")
    assert not mirror.events("1h").events[0].is_open
    events = console.shown["Events"]
    events.refresh()
    assert "30.0 s" in events.html.value
    assert "&lt;script" in events.html.value
    assert "<script" not in events.html.value
    [figure] = events.figure.outputs
    assert "application/vnd.plotly.v1+json" in figure["data"]


def overview(flow: str) -> GroupOverview:
    members = (GroupMember(client_id=EVIL, host="/10.0.0.7", partitions=2),)
    rows = [
        GroupOverviewRow(
            group=name,
            source=GroupOnCluster(state="empty", members=members, lag=15),
            target=GroupOnCluster(state=ABSENT),
            parts=(),
        )
        for name in ("billing", EVIL)
    ]
    return GroupOverview(flow=flow, source="east", target="west", groups=tuple(rows))


@pytest.mark.law("G")
def test_law_g_chosen_groups_are_moved_as_their_plan_was_shown(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned: list[Any] = []
    applied: list[GroupPlan] = []

    def plan_groups(flow: str, *, groups: list[str] | None) -> GroupPlan:
        planned.append(groups)
        names = groups or ["all"]
        return GroupPlan(flow, tuple(group_position(group, "move", reason=EVIL) for group in names))

    def apply_groups(flow: str, *, plan: GroupPlan) -> GroupPlan:
        applied.append(plan)
        return plan.holding("search", "it has new members on the target")

    answer(monkeypatch, group_standing=overview, plan_groups=plan_groups, apply_groups=apply_groups)
    click(console, "groups-read")
    assert "billing" in console.shown["Groups"].html.value
    names, box = control(console, "groups-names"), control(console, "groups-plan-shown")
    names.value = "billing, search"
    click(console, "groups-plan")
    assert planned == [["billing", "search"]]
    assert "Nothing was changed so far" in box.value
    click(console, "groups-apply")
    assert "the name was not typed" in console.work.problems[0]
    names.value = "billing"
    assert "changed since" in box.value
    control(console, "groups-confirm").value = FLOW
    click(console, "groups-apply")
    assert "no plan is shown" in console.work.problems[0]
    assert applied == [], "nothing was carried out so far"
    names.value = "billing, search"
    click(console, "groups-plan")
    control(console, "groups-confirm").value = FLOW
    click(console, "groups-apply")
    click(console, "groups-apply")
    assert [[position.group for position in plan] for plan in applied] == [["billing", "search"]], "once"
    assert "1 position moved" in box.value
    assert "new members" in box.value
    assert "<script" not in box.value + console.shown["Groups"].html.value


@pytest.mark.law("G")
def test_law_g_settings_are_applied_as_their_plan_was_shown_and_not_if_the_choice_changed_meanwhile(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = Plan((Change(where="west", kind="topic", name=EVIL, action="create", after=1),))
    applied: list[Any] = []
    answer(monkeypatch, plan=lambda _: plan, apply=lambda flow, *, plan: applied.append((flow, plan)) or plan)
    click(console, "settings-plan")
    control(console, "settings-confirm").value = "all flows"
    click(console, "settings-apply")
    assert applied == [(None, plan)]
    assert "1 change to all flows" in control(console, "settings-plan-shown").value

    def change(_flow: str | None) -> Plan:
        control(console, "settings-flow").value = FLOW
        return plan

    answer(monkeypatch, plan=change)
    click(console, "settings-plan")
    assert "changed since" in control(console, "settings-plan-shown").value
    assert len(applied) == 1


def test_every_failure_is_shown_without_a_secret_and_the_button_comes_back(
    console: Console, monkeypatch: pytest.MonkeyPatch
) -> None:
    keep_for_session("${env:EAST_SASL_PASSWORD}", SECRET)

    def fail(**_: Any) -> None:
        raise StoreError(f"{EVIL} said {SECRET}", remedy=f"use {SECRET!r}")

    answer(monkeypatch, pause=fail)
    click(console, "pause")
    assert secrets.MASK in console.work.problems[0]
    assert not control(console, "pause").disabled
    assert "<script" not in state(console)
    assert SECRET not in state(console)
    assert console.work.widget.layout.display is None
    click(console, "errors-clear")
    assert console.work.widget.layout.display == "none"
    secrets._TYPED.clear()


def test_the_console_shows_itself_refreshes_until_it_is_stopped_and_goes_away(
    mirror: Mirror, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = threading.Semaphore(0)
    monkeypatch.setattr(console_module, "REFRESH_INTERVAL_S", 0.01)
    monkeypatch.setattr(Console, "refresh", lambda _: asked.release())
    before = set(widgets.widget._instances)
    console = ml.console(mirror)
    bundle = console._repr_mimebundle_()
    assert "application/vnd.jupyter.widget-view+json" in bundle
    assert all(asked.acquire(timeout=60) for _ in range(3))
    console.close()
    console.work.wait()
    console.close()
    left = [widgets.widget._instances[key] for key in set(widgets.widget._instances) - before]
    assert [one for one in left if isinstance(one, widgets.DOMWidget)] == []


def test_a_session_of_this_thread_is_the_mirrors(mirror: Mirror, monkeypatch: pytest.MonkeyPatch) -> None:
    active = SimpleNamespace(SparkSession=SimpleNamespace(getActiveSession=object))
    monkeypatch.setitem(__import__("sys").modules, "pyspark.sql", active)
    asked: list[int] = []
    monkeypatch.setattr(Mirror, "spark", property(lambda _: asked.append(1)))
    Console(mirror, now=Clock()).close()
    assert asked == [1]
