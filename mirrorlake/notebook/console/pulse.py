"""Freshness that the browser ticks: how old a figure is, and whether the kernel that gave it is still there.

A kernel that is busy or gone cannot say so, so nothing here waits for it. It sends the age that an answer has when it is sent;
the browser adds what has passed since by its own clock, so two clocks that differ do no harm. What is shown again, after a
reload or in a second view, asks for the age first.

One `Pulse` of a console also asks the kernel for a sign of life every few seconds, one question at a time. Without an answer
for 5 s the kernel is busy. Where it was restarted or has ended, everything else of the console is made inert until it answers.
It also keeps clicks: a button that moves while it is held still acts, and an action waits for what was typed before its click
(`arrived`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import anywidget
import traitlets

from mirrorlake.render import format_duration, format_time


@dataclass(frozen=True, slots=True)
class Reading:
    """The newest answer to a question that is asked again and again.

    `value` is as it was `at`; `problem` says what kept a newer one away; a question is under way since `asking_since`.
    """

    value: Any = None
    at: datetime | None = None
    problem: str | None = None
    asking_since: datetime | None = None

    def is_stale(self, now: datetime, limit: timedelta) -> bool:
        """Tell whether the value is too old to act on, or a newer one failed; a question under way is given its time."""
        asking = None if self.asking_since is None else now - self.asking_since
        is_patient = asking is not None and asking <= PATIENCE
        return self.problem is not None or self.at is None or (now - self.at > limit and not is_patient)

    def as_message(self, now: datetime, limit: timedelta) -> dict[str, Any]:
        """Return what a browser needs to go on ticking: ages in milliseconds, as they are when this is sent."""
        return {
            "as_of": None if self.at is None else format_time(self.at, date=False),
            "age_ms": _ms(self.at, now),
            "asking_ms": _ms(self.asking_since, now),
            "problem": None if self.problem is None else self.problem.splitlines()[0],
            "limit_ms": limit / timedelta(milliseconds=1),
        }

    def words(self, now: datetime, limit: timedelta) -> str:
        """Say how fresh the value is, as the browser does.

        >>> from datetime import timezone
        >>> noon = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
        >>> Reading(1, noon).words(noon + timedelta(milliseconds=36), timedelta(seconds=15))
        'live, as of 12:00:00 UTC, now'
        >>> Reading(1, noon).words(noon + timedelta(seconds=20), timedelta(seconds=15))
        'stale, as of 12:00:00 UTC, 20 s ago'
        """
        asking = None if self.asking_since is None else now - self.asking_since
        if self.at is None:
            if self.problem is not None:
                return f"failed: {self.problem}"
            return "not asked yet" if asking is None else f"asking since {ago(asking)}"
        word = "stale" if self.is_stale(now, limit) else "live"
        told = f"{word}, as of {format_time(self.at, date=False)}, {_since(now - self.at)}"
        if asking is not None and _TOLD <= asking <= PATIENCE:
            told += f", asking since {ago(asking)}"
        return told if self.problem is None else f"{told}: {self.problem}"


# A question may take its time on a large mirror; beyond this, what is shown is stale all the same.
PATIENCE = timedelta(seconds=60)
_TOLD = timedelta(seconds=2)
# An open page answers in one round trip; a closed one never does.
_ARRIVES = timedelta(seconds=5)


def ago(age: timedelta) -> str:
    """Show an age in whole seconds."""
    return format_duration(timedelta(seconds=int(age.total_seconds()))).replace(".0 s", " s")


def _since(age: timedelta) -> str:
    return "now" if age < timedelta(seconds=1) else f"{ago(age)} ago"


def _ms(since: datetime | None, now: datetime) -> float | None:
    return None if since is None else max(0.0, (now - since) / timedelta(milliseconds=1))


class Pulse(anywidget.AnyWidget):
    """Show how fresh a reading is, ticked in the browser; with `beats`, whether the kernel answers.

    Args:
        name: its class is `ml-<name>`.
        now: the clock of the kernel.
        limit: an answer that is older is stale.
        beats: ask for signs of life, and make the rest of the console inert without any.
    """

    _esm = Path(__file__).with_name("pulse.js")
    _css = Path(__file__).with_name("pulse.css")

    reading = traitlets.Dict().tag(sync=True)
    beats = traitlets.Bool(default_value=False).tag(sync=True)

    def __init__(
        self, name: str, *, now: Callable[[], datetime], limit: timedelta = timedelta(seconds=15), beats: bool = False
    ) -> None:
        super().__init__(beats=beats)
        self._now = now
        self._limit = limit
        self._shown = Reading()
        self._is_seen = False
        self._settling: dict[int, asyncio.Future[None]] = {}
        self._settles = 0
        self.add_class(f"ml-{name}")
        self.add_class("ml-pulse")
        self.on_msg(self._answer)

    def show(self, reading: Reading) -> None:
        """Show a reading from now on."""
        self._shown = reading
        self.reading = reading.as_message(self._now(), self._limit)

    @property
    def words(self) -> str:
        """What it says at this moment."""
        return self._shown.words(self._now(), self._limit)

    async def arrived(self) -> None:
        """Wait until the kernel has all that was filled in before a click.

        ipywidgets 8.1.9 holds a field's change back while the kernel has not taken the one before it, but never a click:
        "long" that is typed into a slow kernel is still "l" when its button acts. A page keeps the order of its messages, so
        the answer to a question that is sent now comes after what was held back. Returns at once where no page ever asked for
        a sign of life, such as in a front end that runs no widget code of ours, and after 5 s where the page was closed.
        """
        if not self._is_seen:
            return
        self._settles += 1
        number, answer = self._settles, asyncio.get_running_loop().create_future()
        self._settling[number] = answer
        self.send({"settle": number})
        with suppress(asyncio.TimeoutError):
            await asyncio.wait_for(answer, _ARRIVES.total_seconds())
        self._settling.pop(number, None)

    def _answer(self, _: Any, content: Any, __: Any) -> None:
        """Give a sign of life, with the age as it is now."""
        if not isinstance(content, dict):
            return
        self._is_seen = True
        if (waits := self._settling.pop(content.get("settled", 0), None)) is not None and not waits.done():
            waits.set_result(None)
        if "ask" in content:
            self.send({"answer": content["ask"], "reading": self._shown.as_message(self._now(), self._limit)})
