"""Progress: honest figures, three displays, and nothing drawn by a thread that has no business with it."""

from __future__ import annotations

import io
import logging
import sys
import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.cli.output import Output
from mirrorlake.progress import bars
from mirrorlake.progress.bars import Bars, choose_display
from mirrorlake.progress.board import Board, Phase
from mirrorlake.progress.lines import LINE_INTERVAL_S, LOGGER, LogLines


class Clock:
    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        return self.at


class Memory:
    """A display that remembers what it drew."""

    def __init__(self) -> None:
        self.drawn: list[list[Phase]] = []
        self.closed: list[Phase] | None = None

    def show(self, phases: Sequence[Phase], _at: float, /) -> None:
        self.drawn.append(list(phases))

    def close(self, phases: Sequence[Phase], _at: float, /) -> None:
        self.closed = list(phases)


def phase(**given: Any) -> Phase:
    known = {"name": "land east", "unit": "records", "began": 0.0, "first": 0, "done": 1200, "total": 5000}
    return Phase(**(known | given))


def line(done: int, total: int | None, *, at: float, first: int = 0, ended: float | None = None) -> str:
    """Return the figures of one log line."""
    records: list[logging.LogRecord] = []
    handler = logging.Handler()
    handler.emit = records.append  # type: ignore[method-assign]
    logger = logging.getLogger(LOGGER)
    logger.addHandler(handler)
    level = logger.level
    logger.setLevel("INFO")
    try:
        lines = LogLines()
        lines.show([], at - LINE_INTERVAL_S - 1)
        lines.show([phase(done=done, total=total, first=first, ended=ended)], at)
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
    return records[0].getMessage().partition("phase='land east' ")[2]


@given(
    reports=st.lists(st.tuples(st.floats(0, 100), st.integers(0, 1000), st.none() | st.integers(0, 1000)), min_size=1)
)
def test_no_report_makes_a_rate_below_zero_or_a_time_left_without_a_rate(
    reports: list[tuple[float, int, int | None]],
) -> None:
    at, now = 0.0, None
    for gap, done, total in reports:
        at += gap
        now = (now or phase(first=done, done=done, total=total)).reported(done, total, at=at)
    assert now is not None
    told = line(now.done, now.total, at=at + 1, first=now.first, ended=now.ended)
    assert "=-" not in told
    if now.finished:
        assert "left_s=0" in told
    elif now.total is None or "per_s=?" in told:
        assert "left_s=?" in told


def test_what_was_there_before_the_first_report_was_done_at_no_rate() -> None:
    begun = phase(first=1_000_000, done=1_000_000, total=1_000_100)
    done = begun.reported(1_000_050, 1_000_100, at=5.0).reported(1_000_100, 1_000_100, at=10.0)
    assert (done.finished, done.elapsed_s(99.0)) == (True, 10.0), "the time after its end is not counted"
    told = line(done.done, done.total, at=99.0, first=done.first, ended=done.ended)
    assert "per_s=10.0 left_s=0" in told


def test_drawings_keep_their_distance_and_the_last_one_is_never_missing() -> None:
    memory, clock = Memory(), Clock()
    with Board(memory, clock=clock, every_s=0.25) as board:
        for done in range(100):
            board.tell("p", done, 100)
        assert len(memory.drawn) == 1
        clock.at += 0.25
        board.tell("p", 100, 100)
        board.tell("q", 1, None)
    assert len(memory.drawn) == 2
    assert [(one.name, one.done, one.finished) for one in memory.closed or []] == [("p", 100, True), ("q", 1, False)]


def test_work_goes_on_when_its_display_fails(caplog: pytest.LogCaptureFixture) -> None:
    class Broken(Memory):
        def show(self, *_: object) -> None:
            raise BrokenPipeError("nobody reads")

    clock = Clock()
    with Board(Broken(), clock=clock) as board:
        for _ in range(3):
            clock.at += 1
            board.tell("p", 1, 2)
    assert [record.getMessage() for record in caplog.records] == [
        "progress.not_shown why=BrokenPipeError: nobody reads"
    ]


def test_a_line_in_the_log_every_ten_seconds_and_one_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    with caplog.at_level(logging.INFO, LOGGER), Board(LogLines(), clock=clock) as board:
        board.tell("land east", 0, 10)
        board.tell("land east", 10, 10)
    assert caplog.records == [], "what is done soon leaves none"
    with caplog.at_level(logging.INFO, LOGGER), Board(LogLines(), clock=clock) as board:
        for second in range(26):
            clock.at = 100.0 + second
            board.tell("land east", second * 100, 5000)
        board.tell("land east", 5000, 5000)
    lines = [record.getMessage() for record in caplog.records]
    assert lines == [
        "progress phase='land east' done=1000 total=5000 unit=records per_s=100.0 left_s=40",
        "progress phase='land east' done=2000 total=5000 unit=records per_s=100.0 left_s=30",
        "progress phase='land east' done=5000 total=5000 unit=records per_s=200.0 left_s=0",
    ]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_bars_that_vanish(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    display = Bars(stay=False)
    name = "republish [bold]a->b[/]"
    display.show([phase(name=name)], 4.0)
    said = terminal.getvalue()
    assert f"{name}:  24%" in said, "names are text, never markup"
    assert "1.20k/5.00k" in said
    assert "[00:04<00:12, 300 records/s]" in said
    display.close([phase(name=name, done=5000)], 5.0)
    assert terminal.getvalue().rstrip("\r").endswith(" "), "the line is given back"


def test_each_place_gets_its_display(monkeypatch: pytest.MonkeyPatch) -> None:
    def stays(display: object) -> bool | None:
        return display._stay if isinstance(display, Bars) else None

    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert isinstance(choose_display(), LogLines)
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert stays(choose_display()) is False
    assert stays(Output(as_json=False).display()) is False
    assert isinstance(Output(as_json=True).display(), LogLines), "nothing but log lines beside a document"
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert stays(choose_display()) is True
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(bars.choose_display()))
    thread.start()
    thread.join()
    assert isinstance(found[0], LogLines), "what another thread draws would land below any cell"
    shell.kernel = None
    assert stays(choose_display()) is False, "IPython in a terminal is a terminal"


def test_work_that_is_done_at_once_draws_nothing_and_longer_work_is_drawn_to_its_end() -> None:
    memory, clock = Memory(), Clock()
    with Board(memory, clock=clock, after_s=1.0) as board:
        board.tell("change topics on central", 1, 2, "topics")
        clock.at += 0.9
        board.tell("change topics on central", 2, 2, "topics")
    assert (memory.drawn, memory.closed) == ([], None)
    with Board(memory, clock=clock, after_s=1.0) as board:
        board.tell("change topics on central", 120, 503, "topics")
        clock.at += 1.1
        board.tell("change topics on central", 121, 503, "topics")
    assert [one.done for [one] in memory.drawn] == [121]
    assert memory.closed is not None
