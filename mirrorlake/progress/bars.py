"""Progress as bars of tqdm: a widget in a notebook, text on standard error in a terminal."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Sequence
from typing import Any

from mirrorlake.progress.board import Display, Phase
from mirrorlake.progress.lines import LogLines
from mirrorlake.progress.run_message import RunMessage


class Bars:
    """Draw a bar a phase with `tqdm.auto`, which is imported for the first bar; `stay` leaves the bars when the work is done."""

    def __init__(self, *, stay: bool) -> None:
        self._stay = stay
        self._bars: dict[str, Any] = {}

    def show(self, phases: Sequence[Phase], at: float, /) -> None:
        from tqdm.auto import tqdm

        for phase in phases:
            if phase.name not in self._bars:
                options = {"unit_scale": True, "smoothing": 0, "dynamic_ncols": True, "leave": self._stay}
                self._bars[phase.name] = tqdm(desc=phase.name, total=phase.total, unit=f" {phase.unit}", **options)
            bar = self._bars[phase.name]
            if phase.total != bar.total:
                bar.reset(total=phase.total)
                bar.total = phase.total
            bar.n, bar.initial = phase.done, phase.first
            # Reports begin before the bar, and may end before other phases do.
            bar.start_t = time.time() - phase.elapsed_s(at)
            bar.refresh()

    def say(self, said: RunMessage, /) -> None:
        from tqdm.auto import tqdm

        clock = f"{said.at.astimezone():%H:%M:%S}  " if said.at is not None else ""
        tqdm.write(f"{clock}{said}", file=sys.stdout if self._stay else sys.stderr)

    def close(self, phases: Sequence[Phase], at: float, /) -> None:
        self.show(phases, at)
        for bar in reversed(self._bars.values()):
            bar.close()


def choose_display() -> Display:
    """Return the display for this process: a notebook's cell, a terminal, or its log.

    Bars in a notebook need the thread that runs the cell: output of another thread would end up below any cell.
    """
    if _is_in_notebook():
        return Bars(stay=True) if threading.current_thread() is threading.main_thread() else LogLines()
    return Bars(stay=False) if sys.stderr is not None and sys.stderr.isatty() else LogLines()


def _is_in_notebook() -> bool:
    # A notebook has imported IPython already; importing it would cost a script half a second.
    ipython = sys.modules.get("IPython")
    shell = ipython.get_ipython() if ipython is not None else None
    return getattr(shell, "kernel", None) is not None
