"""Named points at which a test ends the process, or has another process act: any step may be killed anywhere (law F).

`MIRRORLAKE_DIE_AT=land.file_written:2` ends the process when it reaches that point for the second time (without `:2` the first),
as SIGKILL does: nothing is flushed or cleaned up. In a Python worker of Spark only the worker dies, and each worker counts for
itself. `MIRRORLAKE_ACT_AT=send.flushed:2=<command>` has the shell run a command there, and goes on after its end. Child
processes inherit both variables, but not that command. Without them a point costs 50 ns; none is passed once a record.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

from mirrorlake.errors import UsageError

DIE_AT, ACT_AT = "MIRRORLAKE_DIE_AT", "MIRRORLAKE_ACT_AT"

# A name says what was done when it is passed, or is about to be. `commit` is any to a table in a folder or store, but those of
# Spark; `ledger.copied` follows each append of a ledger's copy, also one that only fences; `step` is of failover, failback,
# cutover, drill and replay, and its row.
POINTS = tuple(
    """
    land.numbered land.claimed land.file_written land.files_flushed land.committed land.gaps_recorded land.accounted
    commit.prepared commit.made
    send.fenced send.claim_recorded send.claimed send.begun send.produced send.flushed send.recorded send.committed
    ledger.copying ledger.copied ledger.trimming ledger.trimmed
    remove.announcing remove.announced remove.committed remove.purged remove.confirming remove.confirmed
    step.done step.written
    table.files_written table.bad_recorded table.committed
    """.split()  # noqa: SIM905  a list would be three times as long
)


@dataclass
class _Act:
    point: str
    left: int
    act: Callable[[], object]


_is_on = any(map(os.environ.get, (DIE_AT, ACT_AT)))
_acts: list[_Act] = []
_lock = threading.Lock()


def crash_point(name: str) -> None:
    """Let a test act between two steps."""
    if _is_on:
        _reach(name)


@contextmanager
def acting(point: str, act: Callable[[], object], *, nth: int = 1) -> Iterator[None]:
    """Have this process call `act` when it reaches a point for the nth time within the block; what that raises goes on there."""
    global _is_on
    was_on, one = _is_on, _act("acting", f"{point}:{nth}", act)
    _acts.append(one)
    _is_on = True
    try:
        yield
    finally:
        _acts.remove(one)
        _is_on = was_on


def _reach(name: str) -> None:
    with _lock:
        reached = [one for one in (*acts_of_environment(), *_acts) if one.point == name]
        for one in reached:
            one.left -= 1
        due = [one for one in reached if one.left == 0]
    for one in due:
        one.act()


@cache
def acts_of_environment() -> tuple[_Act, ...]:
    """Read both variables; a name that is no point is a `UsageError`."""
    point, _, command = os.environ.get(ACT_AT, "").partition("=")
    given = (
        (DIE_AT, os.environ.get(DIE_AT, ""), lambda: os.kill(os.getpid(), signal.SIGKILL)),
        (ACT_AT, point, lambda: _run(command)),
    )
    return tuple(_act(variable, place, act) for variable, place, act in given if place)


def _act(variable: str, place: str, act: Callable[[], object]) -> _Act:
    name, _, nth = place.partition(":")
    if name not in POINTS or not (nth or "1").isdecimal():
        raise UsageError(
            f"{variable} has {place}, which is no point of this release",
            consequence="nothing was started",
            remedy=f"unset {variable}, or name one of {', '.join(POINTS)}; with :2 it is the second time",
        )
    return _Act(name, int(nth or 1), act)


def _run(command: str) -> None:
    env = {name: value for name, value in os.environ.items() if name not in (DIE_AT, ACT_AT)}
    # Standard output may be one JSON document.
    subprocess.run(command, shell=True, check=False, env=env, stdout=2)  # noqa: S602  a test's own command
