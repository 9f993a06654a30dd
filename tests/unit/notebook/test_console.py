"""The console without a browser: traits and handlers of real widgets, secrets, injection, stale data, gates."""

from __future__ import annotations

import asyncio
import json
import re
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import ipywidgets as widgets
import pytest

import mirrorlake as ml
from mirrorlake.config import secrets
from mirrorlake.errors import StoreError, UsageError
from mirrorlake.mirror import Mirror
from mirrorlake.notebook.console.error_panel import ErrorPanel
from mirrorlake.notebook.console.poller import Poller
from mirrorlake.notebook.console.task_runner import TaskRunner
from mirrorlake.notebook.console.window import Console
from tests.builders import mirror_config
from tests.unit.markup import unwrapped
from tests.unit.notebook.kit import EVIL, Clock, everything, fill, page_html, texts

SECRET = "hunter2verysecret"  # noqa: S105


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def console(clock: Clock) -> Iterator[Console]:
    with Console(now=clock) as made:
        yield made
    secrets._TYPED.clear()


def state(widget: Any) -> str:
    """Return all state that a notebook would save."""
    return json.dumps([one.get_state() for one in everything(widget)], default=str)


def test_events_are_rows_the_newest_first_and_marks_on_the_lag_chart(clock: Clock, tmp_path: Path) -> None:
    mirror = Mirror(mirror_config(lake={"root": str(tmp_path)}), now=clock, display=lambda: None)
    mirror.pause(flow="east->west", reason=EVIL)
    clock.time += timedelta(seconds=30)
    mirror.resume(flow="east->west")
    mirror.pause(cluster="east")
    with Console(mirror, now=clock) as made:
        assert made.events.events is None
        asyncio.run(made.events.poller.once())
        shown = texts(made.events.rows.rows)
        assert [(row["what"], row["until"], row["took"]) for row in shown] == [
            ("cluster east", "still", None),
            ("flow east->west", "2026-01-01 00:00:30", "30.0 s"),
        ]
        assert shown[1]["why"] == EVIL, "as text"
        assert made.session.errors.errors == []
        assert made.events.events is made.status.lag._events()


def test_the_preview_follows_every_key(console: Console) -> None:
    fill(console, topics="orders")
    view = console.wizard.clusters
    view.list.buttons["east", "Edit"].click()
    view.never_leave.value = "pii.*"
    view.add.click()
    flow = console.wizard.flow
    flow.topics_there["east"] = ("clicks", "orders", "pii-names", "west.orders", "__consumer_offsets", EVIL)
    flow.render()
    assert "east.orders" in unwrapped(flow.preview.value)
    assert "clicks" not in unwrapped(flow.preview.value)
    flow.topics.value = "orders, cli"
    flow.topics.value = "orders, clicks*"
    assert "dangling star" in flow.preview.value, "said where it is typed"
    assert console.session.errors.errors == [], "half-typed patterns are not an alarm"
    flow.topics.value = ".*"
    for word in ("east.clicks", "never_leave keeps it", "it came from the target", "exclude_topics|internal"):
        assert re.search(word, unwrapped(flow.preview.value)), word
    flow.policy.value = "identity"
    assert "east.clicks" not in unwrapped(flow.preview.value)
    assert "<script" not in page_html(console.widget)


def test_a_password_is_in_no_widget_no_yaml_and_no_message(
    console: Console, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("EAST_SASL_PASSWORD", raising=False)
    fill(console)
    view = console.wizard.clusters
    view.list.buttons["east", "Edit"].click()
    view.security.value, view.username.value = "SASL_SSL", "me"
    view.password.value = SECRET
    assert view.password.value == "", "emptied as soon as it was heard"
    view.add.click()
    assert console.session.errors.errors == []
    assert "sasl.password: ${env:EAST_SASL_PASSWORD}" in console.wizard.draft().text
    assert secrets.resolve("${env:EAST_SASL_PASSWORD}") == SECRET, "kept for this session"
    for mistake in (SECRET, f"${{env:X:-{SECRET}}}"):
        view.reference.value = mistake
        assert view.reference.value == "", "typed into the wrong field"
        assert "takes a reference only" in console.session.errors.errors[0]
    view.reference.value = "${secret:kafka/east}"
    view.password.value = SECRET
    assert secrets.resolve("${secret:kafka/east}") == SECRET

    async def leak() -> None:
        raise StoreError(f"the cluster said: {SECRET}", remedy=f"use {SECRET!r}")

    console.session.runner.start(console.session.runner.run(leak, view.test))
    assert secrets.MASK in console.session.errors.errors[0]
    out = capfd.readouterr()
    everywhere = state(console.widget) + repr(console) + repr(console.wizard.draft()) + out.out + out.err
    everywhere += json.dumps([one.get_state() for one in list(widgets.widget._instances.values())], default=str)
    everywhere += console.wizard.draft().text + " ".join(console.session.errors.errors)
    assert SECRET not in everywhere


@pytest.mark.parametrize("password", [SECRET, f"${{env:MIRRORLAKE_NO_SUCH:-{SECRET}}}"])
def test_a_secret_that_stands_in_the_settings_stays_in_memory(clock: Clock, password: str) -> None:
    client = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "me"}
    client["sasl.password"] = password
    mirror = Mirror(mirror_config(east={"client": client}))
    with Console(mirror, now=clock) as console:
        console.wizard.clusters.list.buttons["east", "Edit"].click()
        assert SECRET not in state(console.widget) + repr(console.wizard.draft())
        assert secrets.resolve("${env:EAST_SASL_PASSWORD}") == SECRET
    secrets._TYPED.clear()


def test_any_edit_takes_a_review_back(console: Console) -> None:
    fill(console)
    for edit in (
        lambda: setattr(console.wizard.flow.topics, "value", "other"),
        lambda: setattr(console.wizard.flow.sync_acls, "value", True),
        lambda: setattr(console.wizard.review.root, "value", "./elsewhere"),
        console.wizard.clusters.add.click,
    ):
        console.wizard.review.reviewed = cast("Any", object())
        edit()
        assert console.wizard.review.reviewed is None


def test_a_failure_is_shown_and_the_button_comes_back(clock: Clock) -> None:
    panel = ErrorPanel(clock)
    runner, button = TaskRunner(panel), widgets.Button(description="Go")
    seen: list[tuple[bool, str]] = []

    async def fails() -> None:
        seen.append((button.disabled, button.description))
        raise UsageError(EVIL, remedy="do better")

    runner.on_click(button, fails)
    assert panel.layout.display == "none"
    button.click()
    assert seen == [(True, "Go …")]
    assert (button.disabled, button.description) == (False, "Go")
    assert panel.errors == [f"{EVIL}. Next: do better"]
    assert panel.layout.display is None
    assert "<script" not in page_html(panel)
    button.disabled = True
    button.click()
    assert len(seen) == 1, "a click that crossed the answer"
    panel.clear()
    assert panel.layout.display == "none"


def test_work_runs_beside_the_loop_and_a_lost_task_is_not_silent(clock: Clock) -> None:
    panel = ErrorPanel(clock)
    runner = TaskRunner(panel)

    async def main() -> bool:
        release = threading.Event()

        async def tick() -> None:
            release.set()

        async def dies() -> None:
            raise ValueError("lost")

        runner.start(dies())
        task = asyncio.create_task(tick())
        # Returns only once the loop has ticked: it would hang for ever on the kernel's thread.
        answered = await runner.ask(lambda: release.wait(60))
        await task
        return answered

    assert asyncio.run(main())
    assert panel.errors == ["ValueError: lost"]


def test_stale_data_is_marked_with_its_age_and_its_reason(clock: Clock, console: Console) -> None:
    answers: list[Callable[[], Any]] = [lambda: 1, lambda: 1 / 0, lambda: 2]
    poller = Poller(lambda: answers.pop(0)(), session=console.session, every_s=5, changed=lambda: None)
    asyncio.run(poller.once())
    assert (poller.pulse.reading["age_ms"], poller.pulse.reading["limit_ms"]) == (0, 15_000)
    clock.time += timedelta(seconds=16)
    asyncio.run(poller.once())
    held = poller.reading
    assert (held.value, held.problem) == (1, "ZeroDivisionError: division by zero"), "the last value stays, marked"
    asyncio.run(poller.once())
    assert (poller.reading.value, poller.reading.problem) == (2, None)


def test_the_console_shows_itself_and_goes_away(clock: Clock) -> None:
    before = set(widgets.widget._instances)
    console = ml.console(now=clock)
    bundle = console._repr_mimebundle_()
    assert bundle["text/plain"] == "Console(None)"
    assert "application/vnd.jupyter.widget-view+json" in bundle
    console.close()
    console.close()
    left = [widgets.widget._instances[key] for key in set(widgets.widget._instances) - before]
    assert [one for one in left if isinstance(one, widgets.DOMWidget)] == []
