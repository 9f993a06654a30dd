"""Start broker processes, tied to this one or detached, and recognise them later by more than their pid."""

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
    """Start a command in its own session, so that Ctrl-C in a terminal reaches us and not it; its output goes to `log`.

    The kernel kills a tied process when this one ends in whatever way (Linux; elsewhere the caller ends it at exit).
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
    """The one thread of process `pid` that starts processes: a broker dies with the thread that forked it."""
    return ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"mirrorlake-sandbox-{pid}")


def identity(pid: int) -> str | None:
    """Return a text that tells this process from a later one with the same pid, or None when it is not running."""
    return _look_up(pid)[1]


def is_alive(pid: int, expected: str) -> bool:
    """Return whether the process with this pid and this identity runs, and is not just a zombie."""
    ended, found = _look_up(pid)
    if found != expected:
        return False
    if ended:
        _bury(pid)
    return not ended


def send_signal(pid: int, expected: str, number: signal.Signals) -> bool:
    """Signal the process that has this pid and this identity; return False, and signal nobody, when it is gone."""
    if not _LINUX:
        if not is_alive(pid, expected):
            return False
        os.kill(pid, number)
        return True
    try:
        # The handle stands for one process: between the look and the signal the pid cannot pass to another.
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
    """Wait until a child of ours that was sent SIGSTOP stands still; on a busy machine its threads run on for a while."""
    if hasattr(os, "waitid"):  # not on macOS
        with suppress(ChildProcessError):
            os.waitid(os.P_PID, pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)


def _look_up(pid: int) -> tuple[bool, str | None]:
    """Return whether the process has ended but was not reaped yet, and its identity."""
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
        # The command's name, in parentheses, may itself hold spaces and parentheses.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return True, None
    state, started = fields[0], fields[19]
    return state in "ZX", f"{boot}:{started}"


def _bury(pid: int) -> None:
    with suppress(OSError):  # of a stranger's child
        os.waitpid(pid, os.WNOHANG)
