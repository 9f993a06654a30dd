"""The console as a page, without a browser: what it refuses, how its links are read, and how it rests."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator
from html import unescape
from operator import attrgetter
from types import SimpleNamespace

import ipywidgets as widgets
import pytest

from mirrorlake.mirror import Mirror
from mirrorlake.model.plan import Change, Plan
from mirrorlake.notebook.console import pulse as pulse_module
from mirrorlake.notebook.console.navigation import Navigation
from mirrorlake.notebook.console.window import TABS, Console
from mirrorlake.render import link
from tests.builders import mirror_config
from tests.unit.markup import Markup, unwrapped
from tests.unit.notebook.kit import everything

# Each of these buttons changes a cluster, the lake, a file or a run, or reads where a person says.
CHANGES = {
    "wizard.clusters.test",
    "wizard.clusters.add",
    "wizard.review.save",
    "wizard.review.apply",
    "wizard.run.run",
    "wizard.run.once",
    "wizard.run.stop",
    "wizard.run.pause",
    "wizard.run.resume",
    "wizard.run.save",
    "groups.apply",
    "recovery.drill",
    "recovery.cutover",
}


@pytest.fixture
def console() -> Iterator[Console]:
    with Console(Mirror(mirror_config()), read_only="read-only: start it with --write") as made:
        yield made


@pytest.fixture
def time_s(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    # Not the module's own function, which the event loop uses.
    monkeypatch.setattr(pulse_module, "time", SimpleNamespace(monotonic=lambda: now[0]))
    return now


@pytest.mark.parametrize("name", sorted(CHANGES))
def test_a_read_only_console_refuses_every_change_also_of_a_page_that_enables_the_button(
    console: Console, name: str
) -> None:
    button = attrgetter(name)(console)
    button.set_state({"disabled": False})
    assert button.disabled
    assert "--write" in button.tooltip
    button._handle_button_msg(button, {"event": "click"}, [])
    assert "nothing was changed" in console.session.errors.errors[0]


def test_a_console_that_may_write_refuses_none_of_them() -> None:
    with Console(Mirror(mirror_config())) as console:
        assert {name for name in CHANGES if "--write" in attrgetter(name)(console).tooltip} == set()


@pytest.mark.parametrize("read_only", ["", "start it with --write"])
def test_every_grey_button_says_why_on_hovering_and_beside_it(read_only: str) -> None:
    with Console(Mirror(mirror_config()), read_only=read_only) as console:
        grey = [
            one
            for one in everything(console.widget)
            if isinstance(one, widgets.Button) and one.disabled and one.layout.display != "none"
        ]
        assert console.topics.use in grey
        assert (console.wizard.run.pause in grey) == bool(read_only)
        below = [one for one in everything(console.widget) if isinstance(one, widgets.DOMWidget)]
        lines = [unwrapped(one.value) for one in below if "ml-why-grey" in one._dom_classes]
        for button in grey:
            assert button.tooltip != button.description
            said = [line for line in lines if button.description in line and button.tooltip in unescape(line)]
            assert said, button.description


@pytest.mark.parametrize(
    "path",
    [
        "nowhere",
        "flow/none",
        "table/none",
        "topic/east",
        "topic/none/orders",
        "passport/east/t/x/1",
        "passport/east/t/0/²",
    ],
)
def test_a_link_that_leads_nowhere_says_so(console: Console, path: str) -> None:
    navigation = Navigation(console)

    async def follow() -> None:
        navigation.widget.answer({"open": path})
        while not console.session.errors.errors:
            await asyncio.sleep(0.01)

    asyncio.run(asyncio.wait_for(follow(), 20))
    assert navigation.widget.path


@pytest.mark.parametrize("with_page", [False, True])
def test_a_name_in_a_table_leads_where_its_link_says(console: Console, with_page: bool) -> None:
    navigation = Navigation(console) if with_page else None
    console.status.rows.answer({"open": "flow/east-%3Ewest"})
    console.topics.rows.answer({"open": "recovery"})
    assert TABS[console.tabs.selected_index or 0] == "Recovery"
    assert console.status.flow.value == "east->west"
    assert navigation is None or navigation.widget.path == "recovery"


def test_a_topic_in_html_is_a_link_of_the_console_and_opened_by_it() -> None:
    evil = '"><span data-opens="topic/east/other">x'
    changes = [
        Change(where="west", kind="topic", name=name, action=action)
        for name, action in (("orders", "set_configs"), (evil, "add_partitions"), ("new", "create"))
    ]
    plan = Plan(tuple(changes))
    with Console(Mirror(mirror_config())) as console:
        shown = console.wizard.review.plan
        shown.value = plan.to_html(rows=None)
        links = re.findall(r'<span class="ml-opens" role="link" tabindex="0" data-opens="([^"]*)">', shown.value)
        assert links == ["topic/west/orders", link("topic", "west", evil)], "a topic to come has no page yet"
        assert shown.value.count("<span data-opens") == 0
        opened: list[str] = []
        console.session.opened = opened.append
        opener = console.widget.children[-1]
        opener.answer({"open": links[0]})
        assert opened == links[:1]
    assert not Markup(plan.to_html(rows=None)).foreign


def test_nobody_is_asked_while_the_page_is_hidden(console: Console, time_s: list[float]) -> None:
    pulse = console.session.pulse
    assert pulse.is_watched, "a front end without our code"
    pulse.answer({"ask": 1, "hidden": False, "untouched_ms": 0})
    assert pulse.is_watched
    time_s[0] += 20
    pulse.answer({"ask": 2, "hidden": True, "untouched_ms": 20_000})
    assert not pulse.is_watched

    async def come_back() -> None:
        resting = asyncio.create_task(pulse.rest(0))
        await asyncio.sleep(0.05)
        assert not resting.done()
        pulse.answer({"ask": 3, "hidden": False, "untouched_ms": 40_000})
        await asyncio.wait_for(resting, 5)

    asyncio.run(come_back())
