"""Start broker processes, tied to this one or detached, and recognise them again later by more than their pid."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

_LINUX = sys.platform == "linux"
_TIED = Path(__file__).with_name("tied.py")

_Start = Callable[[], "subprocess.Popen[bytes]"]


def start_process(command: Sequence[str], *, log: Path, tied: bool) -> subprocess.Popen[bytes]:
    """Start a command in its own session, so that Ctrl-C in a terminal reaches us and not it; its output goes to `log`.

    A *tied* process is killed by the kernel when this process ends in whatever way (Linux; elsewhere the caller has to
    see to it at exit). One that is not tied outlives us.
    """
    if not (tied and _LINUX):
        return _start(command, log)
    launcher = [sys.executable, "-I", "-S", str(_TIED), str(os.getpid())]
    return _in_lasting_thread(lambda: _start([*launcher, *command], log))


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


def _in_lasting_thread(start: _Start) -> subprocess.Popen[bytes]:
    # "Parent" means the thread that forked: a broker started from a pool's worker would die with that worker.
    answer: Future[subprocess.Popen[bytes]] = Future()
    _lasting_thread(os.getpid()).put((start, answer))
    return answer.result()


@lru_cache(maxsize=1)
def _lasting_thread(pid: int) -> queue.SimpleQueue[tuple[_Start, Future[subprocess.Popen[bytes]]]]:
    """Return the queue of process `pid`'s one thread that starts processes and never ends before it does."""
    requests: queue.SimpleQueue[tuple[_Start, Future[subprocess.Popen[bytes]]]] = queue.SimpleQueue()

    def serve() -> None:
        while True:
            start, answer = requests.get()
            try:
                answer.set_result(start())
            except BaseException as error:  # handed to the caller, who raises it
                answer.set_exception(error)

    threading.Thread(target=serve, name=f"mirrorlake-sandbox-{pid}", daemon=True).start()
    return requests


def identity(pid: int) -> str | None:
    """Return a text that tells this process from a later one with the same pid, or None when it is not running."""
    _, found = _look_up(pid)
    return found


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
