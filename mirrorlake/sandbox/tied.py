"""Run a command that the kernel kills when its parent dies: `python tied.py PARENT_PID COMMAND...` (Linux).

It is a separate script because the child itself must request this between fork and exec, where a process with threads must not
run Python code. The request survives exec.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Tie this process to its parent and become the command."""
    parent, command = int(sys.argv[1]), sys.argv[2:]
    # SIGKILL, since a paused broker acts on no other signal; Kafka's log survives it.
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        sys.exit("the parent was gone before the command could start")
    os.execv(command[0], command)  # noqa: S606 - no shell is wanted


if __name__ == "__main__":
    main()
