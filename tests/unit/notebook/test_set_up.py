"""The Set up tab without a browser: flows one after another, the user's own file, apply, and run."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from mirrorlake.config import load
from mirrorlake.config.schema import MirrorConfig
from mirrorlake.errors import StoreError
from mirrorlake.mirror import Mirror
from mirrorlake.mirror.results import LandResult, Ran, RepublishResult
from mirrorlake.model.plan import Change, Plan
from mirrorlake.notebook.console.window import Console
from mirrorlake.progress import Display, Phase
from mirrorlake.status.status import Status
from tests.unit.markup import unwrapped
from tests.unit.notebook.kit import EVIL, NOW, add_clusters, fill, fill_flow
from tests.unit.values import partition_status, status

OWN = """\
# Ours.
lake: {root: ../lake}  # on the large disk
clusters:
  east: {bootstrap_servers: "${env:EAST:-e:9092}"}
  west: {bootstrap_servers: 'w:9092'}
flows:
  # Money first.
  - source: east
    target: west
    topics: orders  # never more
"""


class World:
    """Stands for clusters and a lake: it plans, applies and runs settings, and remembers what was done."""

    def __init__(self) -> None:
        self.applied: list[tuple[str | None, list[str]]] = []
        self.ran: list[tuple[str | None, bool]] = []
        self.running: dict[str, str] = {}
        self.paused: list[tuple[str, str]] = []
        self.started = threading.Event()
        self.plan = Plan((Change(where="west", kind="topic", name="east.orders", action="create", after=1),))
        self.failure: Exception | None = None

    def open(self, config: MirrorConfig, *, display: Display | None = None) -> Any:
        flows = tuple(SimpleNamespace(name=flow.name) for flow in config.flows)

        def apply(flow: str | None, *, plan: Plan) -> Plan:
            assert plan is self.plan, "the very plan that was shown"
            if display is not None:
                phase = Phase(name="change topics", unit="topics", began=0, first=0, done=120, total=503)
                display.show([phase], 0.0)
            self.applied.append((flow, [one.name for one in config.flows]))
            return plan

        def run(flow: str | None, *, once: bool, stop: threading.Event) -> Ran:
            self.ran.append((flow, once))
            self.started.set()
            if self.failure is not None:
                raise self.failure
            assert once or stop.wait(60), "nobody stopped it"
            return Ran([LandResult("east", 7)], [RepublishResult("east->west", 5)])

        return SimpleNamespace(
            config=config,
            flows=flows,
            plan=lambda _flow: self.plan,
            apply=apply,
            run=run,
            running=lambda flow: {name: who for name, who in self.running.items() if flow in (None, name)},
            pause=lambda *, flow, **_: self.paused.append((flow, "pause")),
            resume=lambda *, flow: self.paused.append((flow, "resume")),
            progress=lambda: Ran([LandResult("east", 7)], [RepublishResult("east->west", 5)]),
            status=lambda: Status(flows=(status("east->west", partition_status()),), observed_at=NOW),
        )


@pytest.fixture
def world() -> World:
    return World()


@pytest.fixture
def console(world: World, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Console]:
    monkeypatch.chdir(tmp_path)
    with Console(now=lambda: NOW) as made:
        monkeypatch.setattr(made.session, "open", world.open)
        yield made


def apply(console: Console) -> None:
    review = console.wizard.review
    review.review.click()
    assert console.session.errors.errors == []
    assert review.reviewed is not None
    review.confirm.value = review.reviewed.word
    review.apply.click()
    assert console.session.errors.errors == []


def apply_first(console: Console) -> None:
    fill(console, "orders")
    apply(console)


def listed(console: Console) -> dict[str, str]:
    return {one.key: one.html for one in console.wizard.flow.list.entries}


def test_flows_are_edited_copied_and_removed_one_after_another_and_nothing_typed_is_lost(
    console: Console, world: World
) -> None:
    add_clusters(console, "east", "west", "north")
    flow, said = console.wizard.flow, console.session.errors
    fill_flow(console, "east", "west", "orders")
    flow.new.click()
    fill_flow(console, "east", "north", "clicks")
    flow.list.buttons["east->west", "Edit"].click()
    assert said.errors == []
    assert "new, not applied yet" in listed(console)["east->north"], "kept although another one was opened"
    flow.topics.value = "orders, refunds"
    flow.list.buttons["east->north", "Copy"].click()
    assert flow.name.value == "east->north-2"
    flow.topics.value = "audit"
    apply(console)
    assert world.applied == [(None, ["east->west", "east->north", "east->north-2"])]
    config = console.wizard.kept.config()
    assert [str(one.topics) for one in config.flows] == ["orders, refunds", "clicks", "audit"]

    flow.topics.value = "half ("
    flow.list.buttons["east->west", "Edit"].click()
    assert "cannot be taken" in said.errors[0]
    assert flow.topics.value == "half (", "it stays where it was typed"
    said.clear()
    flow.discard.click()

    flow.list.buttons["east->north", "Remove"].click()
    assert "Nothing is deleted" in flow.said.value
    assert "mirrorlake.east.north.ledger" in unwrapped(flow.said.value)
    assert flow.list.buttons.keys() >= {("east->north", "Put back")}
    flow.list.buttons["east->north", "Put back"].click()
    assert flow.said.value == ""
    flow.list.buttons["east->north", "Remove"].click()
    apply(console)
    assert world.applied[-1] == (None, ["east->west", "east->north-2"])
    assert "east->north" not in listed(console)
    view = console.wizard.clusters
    view.list.buttons["north", "Remove"].click()
    assert "is an end of east->north-2" in said.errors[0]


@pytest.fixture
def own(tmp_path: Path) -> Path:
    file = tmp_path / "settings" / "ours.yml"
    file.parent.mkdir()
    file.write_text(OWN)
    return file


def test_an_edit_goes_into_the_users_own_file_and_not_over_what_somebody_else_wrote_there(
    own: Path, world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    with Console(Mirror(load(own)), now=lambda: NOW) as console:
        monkeypatch.setattr(console.session, "open", world.open)
        wizard, said = console.wizard, console.session.errors
        assert wizard.review.path.value == str(own)
        assert str(own.parents[1] / "lake") in unwrapped(wizard.review.where.value)
        assert wizard.run.save.layout.display == "none", "it is the file"
        wizard.flow.list.buttons["east->west", "Edit"].click()
        wizard.flow.topics.value = "orders, refunds"
        wizard.review.review.click()
        wizard.review.save.click()
        assert said.errors == []
        assert own.read_text() == OWN.replace("orders  # never", "orders, refunds # never")

        changed = own.read_text().replace("Money first", "Money, always")
        own.write_text(changed)
        wizard.flow.sync_acls.value = True
        wizard.review.review.click()
        wizard.review.save.click()
        assert "has changed since it was read" in said.errors[0]
        assert own.read_text() == changed
        assert "+  # Money, always." in wizard.review.difference.value
        said.clear()
        wizard.review.again.click()
        assert wizard.flow.sync_acls.value, "the form stays"
        wizard.review.review.click()
        wizard.review.save.click()
        assert said.errors == []
        assert own.read_text().startswith(changed)
        assert load(own).flows[0].sync.acls


@pytest.mark.law("G")
def test_law_g_only_the_plan_that_was_looked_at_is_applied_and_only_by_name(console: Console, world: World) -> None:
    world.plan = Plan((Change(where="west", kind="topic", name=EVIL, action="create", after=1, reason=EVIL),))
    fill(console)
    view, said = console.wizard.review, console.session.errors
    assert view.apply.disabled
    assert view.save.disabled
    view.review.click()
    assert said.errors == []
    assert "topics: orders, clicks.*" in view.yaml.value
    assert "&lt;script" in view.plan.value
    assert "<script" not in view.plan.value
    assert view.apply.disabled, "nothing typed"
    view.confirm.value = "east-west"
    view.apply.click()
    asyncio.run(console.session.runner.run(view.on_apply, view.apply, then=view.update_controls))
    assert world.applied == []
    assert "nothing was changed" in said.errors[0]
    view.confirm.value = "east->west"
    assert not view.apply.disabled
    view.forget()
    assert view.apply.disabled, "the draft changed since"
    asyncio.run(console.session.runner.run(view.on_apply, view.apply, then=view.update_controls))
    assert world.applied == []
    view.review.click()
    assert not view.apply.disabled
    view.apply.click()
    assert world.applied == [("east->west", ["east->west"])], "and it was the very plan that was shown"
    assert view.apply.disabled
    view.apply.click()
    assert len(world.applied) == 1


@pytest.mark.law("F")
def test_law_f_a_second_run_is_refused_here_and_elsewhere_and_stop_ends_the_first(
    console: Console, world: World
) -> None:
    apply_first(console)
    run, said = console.wizard.run, console.session.errors

    async def live() -> None:
        run.run.click()
        await until(world.started.is_set)
        assert not run.stop.disabled
        assert run.run.disabled
        await console.session.runner.run(partial(run._go, once=True), run.once)
        assert "runs in this console already" in said.errors[0]
        said.clear()
        await until(lambda: "✓ OK" in run.progress.widget.value)
        run.stop.click()
        await until(lambda: run.current is None)
        assert "7 records landed" in run.said.value

    asyncio.run(live())
    assert said.errors == []
    assert world.ran == [(None, False)]
    world.running["east->west"] = "process 4711 on mirror-1"
    run.once.click()
    assert "process 4711 on mirror-1" in said.errors[0]
    assert "exit 3" in said.errors[0]
    assert len(world.ran) == 1
    world.running.clear()
    run.once.click()
    assert world.ran[-1] == (None, True)
    world.failure = StoreError("the lake is full")
    run.once.click()
    assert "the lake is full" in said.errors[0]
    assert not run.run.disabled, "it may be tried again"
    run.pause.click()
    run.resume.click()
    assert world.paused == [("east->west", "pause"), ("east->west", "resume")]


def test_a_console_that_is_closed_stops_what_it_started(console: Console, world: World) -> None:
    apply_first(console)

    async def live() -> bool:
        console.wizard.run.run.click()
        await until(world.started.is_set)
        run = console.wizard.run.current
        assert run is not None
        assert not run.stop.is_set()
        console.close()
        return run.stop.is_set()

    assert asyncio.run(live()), "at once, and not when the loop comes to it"


async def until(condition: Callable[[], Any]) -> None:
    """Let the loop go on until something holds; the test's own limit ends it otherwise."""
    while not condition():
        await asyncio.sleep(0.01)


def test_the_other_rows_of_a_list_keep_their_buttons(console: Console) -> None:
    add_clusters(console, "east", "west")
    clusters = console.wizard.clusters
    before = dict(clusters.list.buttons)
    clusters.never_leave.value = "pii.*"
    clusters.add.click()
    assert "pii" in clusters.list.entries[1].html
    assert clusters.list.buttons == before, "one that is pressed meanwhile still acts"
    clusters.list.buttons["east", "Remove"].click()
    assert {key for key, _ in clusters.list.buttons} == {"west"}
