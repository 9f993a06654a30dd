"""`status --watch`: a page in a terminal, blocks of lines elsewhere, a document a line with --json."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Callable
from datetime import datetime, timedelta

import pytest
from rich.console import Console

from mirrorlake.cli import watch as watching
from mirrorlake.cli.output import Output
from mirrorlake.cli.watch import StatusPage, sparkline, watch
from mirrorlake.events import Event, Events
from mirrorlake.lag import Status
from tests.builders import NOON
from tests.unit.values import status


def looked() -> Status:
    return Status(flows=(status(),), observed_at=NOON)


AWAY = Event(at=NOON, until=NOON + timedelta(seconds=31), kind="cluster away", subject="west")


class Watched:
    """A mirror whose status and events are given; it stops the watch after some reads."""

    def __init__(self, *, reads: int, events: tuple[Event, ...] = (AWAY,)) -> None:
        self.stop = threading.Event()
        self.left = reads
        self.shown = events
        self.typed: Callable[[], object] = lambda: None

    def status(self, _: str | None) -> Status:
        self.left -= 1
        if not self.left:
            self.stop.set()
        return looked()

    def events(self, _: timedelta, *, flow: str | None) -> Events:
        assert flow is None
        self.typed()
        return Events(start=NOON, end=NOON + timedelta(minutes=1), events=self.shown)


def watched(*, reads: int, as_json: bool = False) -> None:
    mirror = Watched(reads=reads)
    page = StatusPage(mirror)  # type: ignore[arg-type]
    watch(Output(as_json=as_json), page, every_s=0.01, stop=mirror.stop)


def test_without_a_terminal_each_look_is_a_block_of_lines(capsys: pytest.CaptureFixture[str]) -> None:
    watched(reads=2)
    said = capsys.readouterr().out
    assert said.count("mirrorlake status · ") == 2
    assert said.count("31.0 s") == 2
    assert "\x1b" not in said, "nothing that only a terminal understands"
    assert "east->central" in said


def test_with_json_each_look_is_a_document_on_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    watched(reads=3, as_json=True)
    assert [json.loads(line)["flows"] for line in capsys.readouterr().out.splitlines()] == [
        looked().as_dict()["flows"]
    ] * 3


def test_in_a_terminal_it_is_one_page_no_higher_than_the_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    terminal = Console(force_terminal=True, width=100, height=20)
    monkeypatch.setattr(watching, "Console", lambda **_: terminal)
    watched(reads=2)
    said = capsys.readouterr().out
    assert "\x1b[?1049h" in said
    assert "\x1b[?1049l" in said, "the lines from before are back"
    assert "q ends" in said
    page = StatusPage(Watched(reads=9))  # type: ignore[arg-type]
    text = page.text(page.read(), at=NOON, width=100, height=8)
    assert len(text.splitlines()) <= 8


def test_events_that_still_last_come_first_and_the_title_says_how_many_there_are() -> None:
    def at(minutes: float) -> datetime:
        return NOON + timedelta(minutes=minutes)

    ended = [Event(at=at(n), until=at(n + 0.5), kind="cluster away", subject=f"c{n}") for n in range(1, 12)]
    away = Event(at=NOON, kind="cluster away", subject="west")
    watched = Watched(reads=9, events=(away, *ended))
    page = StatusPage(watched)  # type: ignore[arg-type]
    shown = page.text(page.read(), at=NOON, width=100).splitlines()
    title = next(number for number, line in enumerate(shown) if line.startswith("events"))
    assert shown[title].startswith("events: newest 8 of 12 since ")
    assert [line.split()[-2] for line in shown[title + 2 :]] == ["west", *(f"c{n}" for n in range(5, 12))]


@pytest.mark.parametrize("typed", [b"q", b"xq", b"qqx"])
def test_q_ends_the_page_also_where_reading_takes_longer_than_the_interval(
    typed: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    terminal, screen = os.openpty()
    mirror = Watched(reads=5)
    with open(screen, encoding="utf-8", closefd=False) as keys:
        monkeypatch.setattr("sys.stdin", keys)
        monkeypatch.setattr(watching, "Console", lambda **_: Console(force_terminal=True, width=100, height=20))
        mirror.typed = lambda: os.write(terminal, typed)
        watch(Output(as_json=False), StatusPage(mirror), every_s=0.0, stop=mirror.stop)  # type: ignore[arg-type]
    os.close(terminal)
    os.close(screen)
    assert mirror.left == 4, "the first round ended it"


def test_a_sparkline_has_a_sign_for_what_is_not_known() -> None:
    assert sparkline([None, 5, 10]) == "·▄█"
    assert sparkline([]) == ""
