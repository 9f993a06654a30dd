"""`status --watch`: a page of the terminal with flows, lag over time and the last events; blocks of lines without a terminal."""

from __future__ import annotations

import os
import select
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import datetime, timedelta, timezone

from rich.console import Console
from rich.live import Live
from rich.text import Text

from mirrorlake.cli.output import Output
from mirrorlake.lag import FlowStatus, Status, status_badge
from mirrorlake.mirror import Mirror
from mirrorlake.render import format_duration, format_time, table

_BARS = "▁▂▃▄▅▆▇█"
_UNKNOWN = "·"
_MAX_POINTS = 30
_EVENTS_OF = timedelta(hours=24)
_MAX_EVENTS = 8
# A key is noticed within this.
_KEY_INTERVAL_S = 0.2
_MAX_KEYS = 1024


def sparkline(values: Sequence[float | None]) -> str:
    """Return values as bars from zero to the largest one; an unknown value is a dot.

    >>> sparkline([0, 1, None, 4, 8]), sparkline([0, 0])
    ('▁▁·▄█', '▁▁')
    """
    top = max((value for value in values if value is not None), default=0) or 1
    last = len(_BARS) - 1
    return "".join(_UNKNOWN if value is None else _BARS[int(value / top * last)] for value in values)


class StatusPage:
    """Read the status and the events of a mirror, and lay them out as text.

    Args:
        mirror: the mirror.
        flow: this flow only; all without it.
    """

    def __init__(self, mirror: Mirror, flow: str | None = None) -> None:
        self._mirror = mirror
        self._flow = flow
        self._last: Status | None = None
        self._lags: dict[str, deque[float | None]] = {}

    def read(self) -> Status:
        """Return the status of now, with the rates since the last one."""
        status = self._mirror.status(self._flow)
        shown = status if self._last is None else status.after(self._last)
        self._last = status
        for name, flow in status.items():
            lags = self._lags.setdefault(name, deque(maxlen=_MAX_POINTS))
            lags.append(flow.time_lag_ms if flow.is_whole else None)
        return shown

    def text(self, status: Status, *, at: datetime, width: int | None, height: int | None = None) -> str:
        """Return the page: one line a flow, then the last events; no more lines than `height`."""
        columns = ("flow", "verdict", "offset lag", "time lag", "in/s", "out/s", "time lag over time", "why")
        rows = [self._cells(flow) for flow in status.values()]
        flows = table("", columns, rows, least=("in/s", "offset lag")).text(rows=None, width=width)
        head = f"mirrorlake status · {format_time(at, zone=timezone.utc)}"
        shown = "\n".join([head, "", flows])
        left = _MAX_EVENTS if height is None else max(0, min(_MAX_EVENTS, height - len(shown.splitlines()) - 4))
        if not left:
            return shown
        events = self._mirror.events(_EVENTS_OF, flow=self._flow)
        return f"{shown}\n\n{events.sheet(newest=left).text(rows=None, width=width)}"

    def _cells(self, flow: FlowStatus) -> tuple[object, ...]:
        return (
            flow.flow,
            status_badge(flow.verdict, flow.state),
            flow.offset_lag if flow.is_whole else None,
            format_duration(flow.time_lag_ms),
            flow.in_per_s,
            flow.out_per_s,
            sparkline(self._lags[flow.flow]),
            flow.reason or None,
        )


def watch(output: Output, page: StatusPage, *, every_s: float, stop: threading.Event) -> None:
    """Show the page every `every_s` seconds until `stop` is set, or a person presses q."""
    console = Console(highlight=False, emoji=False)
    is_page = console.is_terminal and not output.as_json
    page_of_terminal = Live(console=console, screen=True, auto_refresh=False) if is_page else nullcontext()
    with _keys(is_page) as pressed, page_of_terminal as live:
        while not stop.is_set():
            begun = time.monotonic()
            status, at = page.read(), datetime.now(timezone.utc)
            # One document per line, since the page has no end.
            output.document(status)
            if isinstance(live, Live):
                text = page.text(status, at=at, width=console.width, height=console.height - 2)
                live.update(
                    Text(f"{text}\n\nevery {every_s:g} s · q ends", no_wrap=True, overflow="crop"), refresh=True
                )
            elif not output.as_json:
                output.say(f"{page.text(status, at=at, width=console.width)}\n")
            sys.stdout.flush()
            # A key is looked at also where reading took longer than the interval.
            while not stop.wait(_KEY_INTERVAL_S):
                if b"q" in pressed():
                    return
                if time.monotonic() >= begun + every_s:
                    break


@contextmanager
def _keys(is_page: bool) -> Iterator[Callable[[], bytes]]:
    """Give a function that returns the keys that were pressed since."""
    if not (is_page and sys.stdin.isatty()):
        yield lambda: b""
        return
    import termios
    import tty

    before = termios.tcgetattr(sys.stdin)
    # Ctrl-C still ends, and output is laid out as before.
    tty.setcbreak(sys.stdin)
    try:
        # By the descriptor: `select` does not see what a buffer of Python has read already.
        yield lambda: os.read(sys.stdin.fileno(), _MAX_KEYS) if select.select([sys.stdin], [], [], 0)[0] else b""
    finally:
        termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)
