"""Progress: honest figures, three displays, and nothing drawn by a thread that has no business with it."""

from __future__ import annotations

import io
import logging
import os
import re
import subprocess
import sys
import threading
from collections.abc import Sequence
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mirrorlake.cli.output import Output
from mirrorlake.progress import bars
from mirrorlake.progress.bars import NotebookBars, TerminalBars, display_here
from mirrorlake.progress.board import Board
from mirrorlake.progress.lines import LOGGER, LogLines
from mirrorlake.progress.pace import WINDOW_S, Pace, ShownPace


class Clock:
    def __init__(self) -> None:
        self.at = 100.0

    def __call__(self) -> float:
        return self.at


class Memory:
    """A display that remembers what it drew, and by which thread."""

    def __init__(self) -> None:
        self.drawn: list[list[ShownPace]] = []
        self.threads: set[int] = set()
        self.closed: list[ShownPace] | None = None

    def show(self, phases: Sequence[ShownPace], _at: float, /) -> None:
        self.drawn.append(list(phases))
        self.threads.add(threading.get_ident())

    def close(self, phases: Sequence[ShownPace], /) -> None:
        self.closed = list(phases)


def shown(**given: object) -> ShownPace:
    known = {"phase": "land east", "unit": "records", "elapsed_s": 4.0, "per_s": 300.0, "left_s": 12.0}
    return ShownPace(**(known | {"done": 1200, "total": 5000} | given))  # type: ignore[arg-type]


@given(
    rate=st.floats(1, 1e6),
    gaps=st.lists(st.floats(0.1, 20), min_size=5, max_size=60),
)
def test_an_even_pace_is_told_as_it_is(rate: float, gaps: list[float]) -> None:
    pace, at, total = Pace("p", unit="records", at=0.0), 0.0, 10**12
    pace.note(0, total, at=0.0)
    for gap in gaps:
        at += gap
        pace.note(round(rate * at), total, at=at)
    told = pace.shown(at=at)
    if told.per_s is not None:
        assert told.per_s == pytest.approx(rate, rel=0.02, abs=3)
        assert told.left_s == pytest.approx((total - told.done) / told.per_s)


@given(reports=st.lists(st.tuples(st.floats(0, 100), st.integers(0, 1000), st.none() | st.integers(0, 1000))))
def test_no_report_makes_a_rate_below_zero_or_a_time_left_without_a_rate(
    reports: list[tuple[float, int, int | None]],
) -> None:
    pace, at = Pace("p", unit="records", at=0.0), 0.0
    for gap, done, total in reports:
        at += gap
        pace.note(done, total, at=at)
        told = pace.shown(at=at + 1)
        assert (told.per_s or 0) >= 0
        assert (told.left_s or 0) >= 0
        if told.total is None or (not told.finished and not told.per_s):
            assert told.left_s is None
        assert str(told)


def test_what_is_not_known_is_a_question_mark() -> None:
    pace = Pace("land east", unit="records", at=0.0)
    pace.note(0, None, at=0.0)
    assert str(pace.shown(at=9.0)) == "0 of ? records · ? records/s · ? left"
    pace.note(1000, None, at=10.0)
    assert str(pace.shown(at=10.0)) == "1 000 of ? records · 100 records/s · ? left"
    pace.note(2000, 4000, at=20.0)
    assert str(pace.shown(at=20.0)) == "2 000 of 4 000 records · 100 records/s · 20.0 s left"


def test_the_rate_falls_while_nothing_happens_and_forgets_what_was_long_ago() -> None:
    pace = Pace("p", unit="records", at=0.0)
    pace.note(0, 10_000, at=0.0)
    pace.note(1000, 10_000, at=10.0)
    assert pace.shown(at=10.0).per_s == 100
    assert pace.shown(at=100.0).per_s == 10
    for second in range(11, 11 + int(WINDOW_S) + 1):
        pace.note(1000 + (second - 10), 10_000, at=float(second))
    # One record a second for half a minute: the thousand before it no longer count.
    assert pace.shown(at=41.0).per_s == pytest.approx(1.0, rel=0.05)


def test_what_was_there_before_the_first_report_was_done_at_no_rate() -> None:
    pace = Pace("p", unit="records", at=5.0)
    pace.note(1_000_000, 1_000_100, at=5.0)
    pace.note(1_000_050, 1_000_100, at=10.0)
    assert pace.shown(at=10.0).per_s == 10
    pace.note(1_000_100, 1_000_100, at=15.0)
    assert str(pace.shown(at=99.0)) == "1 000 100 records · 10 records/s · in 10.0 s"


def test_reports_of_other_threads_wait_for_the_one_that_draws() -> None:
    memory, clock = Memory(), Clock()
    with Board(memory, clock=clock) as board:

        def work() -> None:
            board.tell("republish east->central", 7, 10)
            board.tick()

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert memory.drawn == []
        board.tick()
        assert [one.done for one in memory.drawn[0]] == [7]
    assert memory.threads == {threading.get_ident()}


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
    assert [(one.phase, one.done, one.finished) for one in memory.closed or []] == [("p", 100, True), ("q", 1, False)]


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


def test_how_a_phase_ended_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    with caplog.at_level(logging.INFO, LOGGER), Board(LogLines(), clock=clock) as board:
        for second in (0, 10, 20, 30):
            clock.at = 100.0 + second
            board.tell("land east", 10, 10)
            board.tell("republish a->b", second, 100)
    lines = [record.getMessage().split(" unit")[0] for record in caplog.records]
    assert lines.count("progress phase='land east' done=10 total=10") == 1
    assert [line for line in lines if "republish" in line] == [
        f"progress phase='republish a->b' done={second} total=100" for second in (0, 10, 20, 30)
    ]


def test_what_is_done_soon_leaves_no_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, LOGGER), Board(LogLines(), clock=Clock()) as board:
        board.tell("land east", 0, 10)
        board.tell("land east", 10, 10)
    assert caplog.records == []


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def test_a_terminal_gets_bars_that_vanish(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.setenv("TERM", "xterm")
    terminal = Terminal()
    display = TerminalBars(terminal)
    phase = "republish [bold]a->b[/]"
    display.show([shown(phase=phase)], 0.0)
    assert "republish [bold]a->b[/]" in plain(terminal.getvalue()), "names are text, never markup"
    assert "1 200 of 5 000 records · 300 records/s · 12.0 s left" in plain(terminal.getvalue())
    display.close([shown(done=5000)])
    assert terminal.getvalue().rstrip().endswith("\x1b[2K"), "the lines are given back"


def test_a_notebook_gets_a_bar_for_each_phase(monkeypatch: pytest.MonkeyPatch) -> None:
    import ipywidgets
    import tqdm.auto
    from tqdm.notebook import tqdm_notebook

    made: list[tqdm_notebook] = []

    def make(**options: object) -> tqdm_notebook:
        made.append(tqdm_notebook(**options, display=False))
        return made[-1]

    monkeypatch.setattr(tqdm.auto, "tqdm", make)
    display = NotebookBars()
    display.show([shown(done=0, total=None, per_s=None, left_s=None)], 0.0)
    display.show([shown(), shown(phase="<b>", done=1, total=None)], 1.0)
    left, bar, right = made[0].container.children
    assert isinstance(bar, ipywidgets.FloatProgress)
    assert (bar.value, bar.max) == (1200, 5000)
    text = (left.value + right.value).replace("\u2007", " ")
    assert "land east:  24%" in text
    assert right.value.replace("\u2007", " ").strip() == "1 200 of 5 000 records · 300 records/s · 12.0 s left"
    assert "<b>" not in made[1].container.children[0].value + made[1].container.children[2].value
    display.close([shown(done=5000, left_s=0.0)])
    assert bar.bar_style == "success"


def test_each_place_gets_its_display(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert isinstance(display_here(), LogLines)
    monkeypatch.setattr(sys, "stderr", Terminal())
    assert isinstance(display_here(), TerminalBars)
    assert isinstance(Output(as_json=False).display(), TerminalBars)
    assert isinstance(Output(as_json=True).display(), LogLines), "nothing but log lines beside a document"
    shell = SimpleNamespace(kernel=object())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    assert isinstance(display_here(), NotebookBars)
    found: list[object] = []
    thread = threading.Thread(target=lambda: found.append(bars.display_here()))
    thread.start()
    thread.join()
    assert isinstance(found[0], LogLines), "what another thread draws would land below any cell"
    shell.kernel = None
    assert isinstance(display_here(), TerminalBars), "IPython in a terminal is a terminal"


_COMMAND = """
import os
from mirrorlake.cli.output import Output, log_to_stderr
from mirrorlake.progress.board import Board
log_to_stderr(os.environ.get("MIRRORLAKE_LOG"))
times = iter(range(0, 1000, 5))
with Board(Output(as_json=True).display(), clock=lambda: next(times)) as board:
    for done in range(8):
        board.tell("land east", done, 100)
"""


@pytest.mark.parametrize(("level", "speaks"), [(None, True), ("WARNING", False), ("INFO", True)])
def test_a_command_with_json_has_log_lines_on_standard_error_and_nothing_else(level: str | None, speaks: bool) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "MIRRORLAKE_LOG"}
    environment |= {} if level is None else {"MIRRORLAKE_LOG": level}
    done = subprocess.run([sys.executable, "-c", _COMMAND], env=environment, capture_output=True, text=True, check=True)
    assert done.stdout == ""
    lines = done.stderr.splitlines()
    assert bool(lines) == speaks
    assert all(" INFO progress phase='land east' done=" in line for line in lines)
