"""Freshness in a real browser whose time is turned by hand: ages, a busy kernel, and one that is gone."""

from __future__ import annotations

import json
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from playwright.sync_api import Page

from mirrorlake.notebook.console.pulse import Pulse, Reading
from tests.servers.widget_page import start

NOON = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
LIMIT = timedelta(seconds=15)
PAGE = """
<div class="ml-console"><div id="pulse"></div><div id="rest"><button id="apply">Apply</button></div></div>
"""


class Shown:
    """A pulse in a page, whose kernel answers when it is told to."""

    def __init__(self, page: Page, reading: Reading, *, beats: bool = False) -> None:
        self._page = page
        page.clock.install(time=NOON - timedelta(seconds=1))
        # Else it goes on by itself, as fast as this machine's.
        page.clock.pause_at(NOON)
        page.set_content(PAGE)
        start(page, Pulse, {"beats": beats, "reading": reading.as_message(NOON, LIMIT)}, place="#pulse")

    def wait(self, seconds: float) -> None:
        self._page.clock.run_for(int(seconds * 1000))

    def answer(self, reading: Reading, *, now: datetime = NOON) -> None:
        message = {"answer": self.asked[-1], "reading": reading.as_message(now, LIMIT)}
        self._page.evaluate(f"window.fire('msg:custom', {json.dumps(message)})")

    def run(self, script: str) -> Any:
        return self._page.evaluate(script)

    @property
    def asked(self) -> list[int]:
        return [message["ask"] for message in self.run("window.sent") if "ask" in message]

    @property
    def text(self) -> str:
        place = self._page.locator("#pulse")
        return str(place.inner_text()) if place.is_visible() else ""


def test_an_age_grows_in_the_browser_and_begins_with_what_the_kernel_says(window: Page) -> None:
    # The kernel's clock is an hour before the browser's: only the age counts.
    read = Reading(1, NOON - timedelta(hours=1))
    shown = Shown(window, read)
    assert "ago" not in shown.text, "shown again: how old it is, only the kernel knows"
    shown.answer(read, now=read.at + timedelta(milliseconds=36))  # type: ignore[operator]
    assert shown.text.split() == ["✓", "live", "as", "of", "11:00:00", "UTC,", "now"]
    shown.wait(5)
    assert "live" in shown.text
    assert "5 s ago" in shown.text
    shown.wait(13)
    assert "stale" in shown.text
    shown.answer(Reading(1, NOON, problem="west does not answer\nat all"))
    assert shown.text.split() == ["✗", "stale", "as", "of", "12:00:00", "UTC,", "now.", "west", "does", "not", "answer"]


def test_a_question_that_takes_its_time_is_not_stale_and_one_that_takes_too_long_is(window: Page) -> None:
    shown = Shown(window, Reading(1, NOON))
    shown.answer(Reading(1, NOON, asking_since=NOON))
    shown.wait(21)
    assert "live" in shown.text
    assert "asking since 21 s" in shown.text
    shown.wait(45)
    assert "stale" in shown.text


@pytest.mark.parametrize("reading", [Reading(), Reading(asking_since=NOON)])
def test_before_the_first_answer_nothing_is_live(window: Page, reading: Reading) -> None:
    shown = Shown(window, reading)
    shown.answer(reading)
    shown.wait(13)
    assert shown.text.split()[1:] == (
        ["not", "asked", "yet"] if reading.asking_since is None else ["asking", "since", "13", "s"]
    )


@pytest.mark.parametrize(
    ("meanwhile", "moved", "clicks"),
    [
        ("", 0, 1),
        ("one.style.marginTop = '300px'", 0, 1),
        ("one.style.marginTop = '300px'", 4, 1),
        ("one.style.marginTop = '300px'; one.disabled = true", 0, 0),
        ("", 200, 0),
    ],
    ids=["stays", "moves", "moves under a hand that trembles", "is disabled", "given up"],
)
def test_what_was_pressed_is_what_is_clicked(window: Page, meanwhile: str, moved: int, clicks: int) -> None:
    shown = Shown(window, Reading(), beats=True)
    shown.run("window.clicks = 0; document.getElementById('apply').onclick = () => { window.clicks += 1; }; 0")
    box = window.locator("#apply").bounding_box()
    assert box is not None
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    window.mouse.move(x, y)
    window.mouse.down()
    shown.run(f"(() => {{ const one = document.getElementById('apply'); {meanwhile} }})()")
    window.mouse.move(x + moved, y)
    window.mouse.up()
    assert shown.run("window.clicks") == clicks


def test_the_kernel_answers_with_the_age_of_now() -> None:
    time = [NOON]
    made = Pulse("status-fresh", now=lambda: time[0], limit=LIMIT)
    sent: list[Any] = []
    made.send = sent.append
    made.show(Reading(1, NOON))
    assert made.reading["age_ms"] == 0
    time[0] += timedelta(seconds=7)
    made._handle_custom_msg({"ask": 3}, [])
    assert [(one["answer"], one["reading"]["age_ms"]) for one in sent] == [(3, 7000)]
