"""The lines of an always-on run: each stage of its start with its seconds, then a line a minute."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import datetime
from typing import Any

from mirrorlake.errors import MirrorlakeError
from mirrorlake.mirror.results import LandResult, Ran, RepublishResult, TableResult
from mirrorlake.progress import Board, Display, MessageDisplay, RunMessage
from mirrorlake.render import format_count, format_duration, plural
from mirrorlake.status import Status, Verdict

_LANDING, _SENDING, _TABLE = "land ", "republish ", "table "


class RunLines:
    """Report the progress of a run through a board; the thread that waits for the streams draws the lines."""

    def __init__(self, board: Board, *, now: Callable[[], datetime]) -> None:
        self._board = board
        self._now = now
        self._began = time.monotonic()
        # The count of a stream, and its count before its last restart.
        self._done: dict[str, int] = {}
        self._before: dict[str, int] = {}
        self._last = (self._began, Ran([], []))

    def say(self, stage: str, text: str, *, seconds: float | None = None, **facts: Any) -> None:
        """Show a line, from any thread."""
        said = RunMessage(at=self._now(), stage=stage, text=text, seconds=seconds, facts=facts)

        def draw(display: Display) -> None:
            if isinstance(display, MessageDisplay):
                display.say(said)

        self._board.call_soon(draw)

    @contextmanager
    def stage(self, name: str, text: str) -> Iterator[None]:
        """Report the duration of a block; an error reports itself."""
        began = time.monotonic()
        yield
        self.say(name, text, seconds=time.monotonic() - began)

    def tick(self) -> None:
        """Let the drawing thread show the lines of other threads."""
        self._board.tick()

    def tell(self, phase: str, done: int, total: int | None, unit: str = "records") -> None:  # noqa: ARG002  a `ProgressCallback`
        """Count a stream's report; its first report shows that the stream is ready."""
        known = self._done.get(phase)
        if known is None:
            name = phase.removeprefix(_LANDING).removeprefix(_SENDING)
            what = f"landing from {name}" if phase.startswith(_LANDING) else f"flow {name}"
            what = name if phase.startswith(_TABLE) else what
            self.say("ready", what, seconds=time.monotonic() - self._began, stream=phase)
        elif done < known:
            # The stream restarted and counts from 0.
            self._before[phase] = self._before.get(phase, 0) + known
        self._done[phase] = done

    def begin(self, phase: str) -> None:
        """Note that a stream starts and counts from 0; its earlier count is added."""
        if known := self._done.get(phase):
            self._before[phase] = self._before.get(phase, 0) + known
            self._done[phase] = 0

    def ran(self) -> Ran:
        """Return the run's counts so far, by stream; withheld records count as republished.

        Landing counts every few seconds, a flow at each transaction: for a moment more may have gone out than came in.
        """
        counts = {phase: done + self._before.get(phase, 0) for phase, done in dict(self._done).items()}
        landed = [LandResult(name.removeprefix(_LANDING), n) for name, n in counts.items() if name.startswith(_LANDING)]
        sent = [
            RepublishResult(name.removeprefix(_SENDING), n) for name, n in counts.items() if name.startswith(_SENDING)
        ]
        tables = [TableResult(name.removeprefix(_TABLE), n) for name, n in counts.items() if name.startswith(_TABLE)]
        return Ran(landed, sent, tables)

    def minute(self, status: Callable[[], Status]) -> None:
        """Show the records in and out since the last such line, the lag, and the worst verdict."""
        ran, at = self.ran(), time.monotonic()
        before, then = self._last
        self._last = at, ran
        passed_s = max(at - before, 0.001)
        came, went = (sum(one.records for one in several) for several in ran.since(then))
        facts: dict[str, Any] = {
            "landed": came,
            "republished": went,
            "landed_per_s": round(came / passed_s, 1),
            "republished_per_s": round(went / passed_s, 1),
        }
        said = (
            f"{plural(came, 'record')} in, {format_count(went)} out ({_rate(came, passed_s)}, {_rate(went, passed_s)})"
        )
        try:
            found = status()
        except MirrorlakeError as error:
            self.say("running", f"{said} · lag not known: {error.cause}", **facts, why=error.cause)
            return
        unknown = [flow.unknown for flow in found.values() if flow.unknown]
        if unknown and len(unknown) == len(found):
            why = "; ".join(dict.fromkeys(unknown))
            self.say(
                *("running", f"{said} · lag not known: {why} · {Verdict[found.verdict].label}"),
                **facts,
                why=why,
                verdict=found.verdict,
            )
            return
        at_least = "" if found.is_whole else "at least "
        lag = f"lag {at_least}{plural(found.offset_lag, 'offset')}, {format_duration(found.time_lag_ms)}"
        judged: dict[str, Any] = {
            "offset_lag": found.offset_lag,
            "time_lag_ms": found.time_lag_ms,
            "verdict": found.verdict,
        }
        self.say("running", f"{said} · {lag} · {Verdict[found.verdict].label}", **facts, **judged)


def _rate(records: int, seconds: float) -> str:
    return f"{format_count(round(records / seconds, 1) if records < 10 * seconds else round(records / seconds))}/s"
