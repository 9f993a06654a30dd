"""Start broker processes, tied to this process or detached, and identify them by more than a pid."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

_LINUX = sys.platform == "linux"
_TIED = Path(__file__).with_name("tied.py")


def start_process(command: Sequence[str], *, log: Path, tied: bool) -> subprocess.Popen[bytes]:
    """Start a command in its own session, so that Ctrl-C in a terminal does not reach it; its output goes to `log`.

    The kernel kills a tied process when this process ends in any manner (Linux; other systems: the caller ends it at exit).
    """
    if not (tied and _LINUX):
        return _start(command, log)
    launcher = [sys.executable, "-I", "-S", str(_TIED), str(os.getpid())]
    return _starter(os.getpid()).submit(_start, [*launcher, *command], log).result()


def _start(command: Sequence[str], log: Path) -> subprocess.Popen[bytes]:
    with log.open("ab") as output:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            cwd=log.parent,
            start_new_session=True,
        )


@lru_cache(maxsize=1)
def _starter(pid: int) -> ThreadPoolExecutor:
    """Return the one thread of process `pid` that starts processes: a broker dies with the thread that forked it."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"mirrorlake-sandbox-{pid}")


def identity(pid: int) -> str | None:
    """Return a text that identifies this process even if its pid is reused, or None if it does not run."""
    return _look_up(pid)[1]


def is_alive(pid: int, expected: str) -> bool:
    """Return whether the process with this pid and identity runs, and is not a zombie."""
    ended, found = _look_up(pid)
    if found != expected:
        return False
    if ended:
        with suppress(OSError):  # of a stranger's child
            os.waitpid(pid, os.WNOHANG)
    return not ended


def send_signal(pid: int, expected: str, number: signal.Signals) -> bool:
    """Signal the process with this pid and identity; return False, without a signal, if it is gone."""
    if not _LINUX:
        if not is_alive(pid, expected):
            return False
        os.kill(pid, number)
        return True
    try:
        # The handle refers to one process: the pid cannot pass to another between check and signal.
        handle = os.pidfd_open(pid)
    except OSError:
        return False
    try:
        if not is_alive(pid, expected):
            return False
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


def wait_stopped(pid: int) -> None:
    """Wait until a child that got SIGSTOP is stopped; on a busy machine its threads run on for a while."""
    if hasattr(os, "waitid"):  # not on macOS
        with suppress(ChildProcessError):
            os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


def _look_up(pid: int) -> tuple[bool, str | None]:
    """Return whether the process has ended without being reaped, and its identity."""
    if not _LINUX:
        done = subprocess.run(
            ["ps", "-o", "state=,lstart=", "-p", str(pid)],  # noqa: S607 - where it lies differs between systems
            capture_output=True,
            text=True,
            check=False,
        )
        state, _, started = done.stdout.strip().partition(" ")
        return state.startswith("Z"), started.strip() or None
    try:
        # The command's name, in parentheses, may contain spaces and parentheses.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return True, None
    state, started = fields[0], fields[19]
    return state in "ZX", f"{boot}:{started}"
