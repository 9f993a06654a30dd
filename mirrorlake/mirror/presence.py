"""Which flows a process of this machine runs at this moment, for whoever would begin them a second time.

A lock of the operating system ends with its process, however that ends. It keeps nobody out: where two run all the same, table
and ledger decide (law F, `lake/one_writer.py`): the newer one goes on, and the older one stops with exit 3.
"""

from __future__ import annotations

import fcntl
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from datetime import datetime
from pathlib import Path

from mirrorlake.render import moment


@contextmanager
def announced(lake: Path | None, flows: Iterable[str], *, now: Callable[[], datetime]) -> Iterator[None]:
    """Let other processes see that this one runs the flows; on a lake that is no folder of this machine, nobody sees it."""
    said = f"process {os.getpid()} on {socket.gethostname()}, since {moment(now())}"
    with ExitStack() as held:
        for name in flows:
            if lake is None:
                break
            # A folder that may not be written, or that knows no locks, is no reason not to run.
            with suppress(OSError):
                held.enter_context(_shared(_file(lake, name), said))
        yield


def running(lake: Path | None, flows: Iterable[str]) -> Mapping[str, str]:
    """Return who runs which of these flows, this process included."""
    found: dict[str, str] = {}
    for name in flows:
        if lake is None:
            break
        file = _file(lake, name)
        with suppress(FileNotFoundError), file.open("r", encoding="utf-8") as handle:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                found[name] = handle.read().strip()
    return found


@contextmanager
def _shared(file: Path, said: str) -> Iterator[None]:
    file.parent.mkdir(parents=True, exist_ok=True)
    with file.open("a+", encoding="utf-8") as handle:
        # Shared: a mirror that takes over does not wait for the one before it, only for a look that ends at once.
        fcntl.flock(handle, fcntl.LOCK_SH)
        handle.truncate(0)
        handle.write(said)
        handle.flush()
        yield


def _file(lake: Path, flow: str) -> Path:
    return lake / "running" / f"{flow.replace('->', '.')}.lock"
