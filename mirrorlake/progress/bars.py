"""Progress as bars: tqdm's widget in a notebook, rich in a terminal. Both are loaded when the first bar is drawn."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from typing import Any, TextIO

from mirrorlake.progress.board import Display
from mirrorlake.progress.lines import LogLines
from mirrorlake.progress.pace import ShownPace

# tqdm's own rate follows its own updates; ours stands in its place, so that every display says the same.
_KNOWN = "{desc}: {percentage:3.0f}%|{bar}| "
_UNKNOWN = "{desc}: "


class NotebookBars:
    """Draw a bar a phase with `tqdm.auto`: a widget where ipywidgets is there, text below the cell elsewhere.

    The bars stay, so that a notebook that was run shows how long each phase took.
    """

    def __init__(self) -> None:
        self._bars: dict[str, Any] = {}

    def show(self, phases: Sequence[ShownPace], _at: float = 0.0, /) -> None:
        """Draw."""
        from tqdm.auto import tqdm

        for one in phases:
            if one.phase not in self._bars:
                self._bars[one.phase] = tqdm(desc=one.phase, total=one.total, unit=one.unit, bar_format=_UNKNOWN)
            bar = self._bars[one.phase]
            if one.total != bar.total:
                bar.reset(total=one.total)
                bar.total = one.total
            bar.n = one.done
            bar.bar_format = (_KNOWN if one.total else _UNKNOWN) + str(one).replace("{", "{{").replace("}", "}}")
            bar.refresh()

    def close(self, phases: Sequence[ShownPace], /) -> None:
        """Draw for the last time."""
        self.show(phases)
        for bar in self._bars.values():
            bar.close()


class TerminalBars:
    """Draw a bar a phase on standard error with rich; they vanish when the work is done.

    Args:
        file: the terminal; standard error by default.
    """

    def __init__(self, file: TextIO | None = None) -> None:
        self._file = file
        self._live: Any = None
        self._tasks: dict[str, Any] = {}

    def show(self, phases: Sequence[ShownPace], _at: float = 0.0, /) -> None:
        """Draw."""
        if self._live is None:
            self._live = self._start()
        for one in phases:
            if one.phase not in self._tasks:
                self._tasks[one.phase] = self._live.add_task(one.phase, total=one.total, said="")
            self._live.update(self._tasks[one.phase], completed=one.done, total=one.total, said=str(one))
        self._live.refresh()

    def close(self, phases: Sequence[ShownPace], /) -> None:
        """Draw for the last time and give the lines back."""
        if self._live is not None:
            self.show(phases)
            self._live.stop()

    def _start(self) -> Any:
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn

        live = Progress(
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TextColumn("{task.fields[said]}", markup=False),
            console=Console(file=self._file) if self._file else Console(stderr=True),
            # No thread of its own, and whoever reads standard output gets nothing of it.
            auto_refresh=False,
            redirect_stdout=False,
            redirect_stderr=False,
            transient=True,
        )
        live.start()
        # rich hides it, and a process that is ended the hard way would leave it so.
        live.console.show_cursor(True)
        return live


def display_here() -> Display:
    """Pick the display for the place where this process runs: a notebook's cell, a terminal, or its log.

    Bars in a notebook are for the thread that runs the cell: what another thread draws would land below any cell.
    """
    if _is_in_notebook():
        return NotebookBars() if threading.current_thread() is threading.main_thread() else LogLines()
    return TerminalBars() if sys.stderr is not None and sys.stderr.isatty() else LogLines()


def _is_in_notebook() -> bool:
    # Who runs in a notebook has IPython loaded; to import it here would cost a script half a second.
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None
