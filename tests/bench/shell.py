"""What somebody waits for at a prompt: commands as processes of their own, a `run --once` from cold, and the demo.

CPU-seconds are those of the command's whole process tree.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from tests.bench.contest import Contest
from tests.bench.options import Options
from tests.bench.processes import ProcessTree, Usage, watch_to_end
from tests.bench.results import Book, Say
from tests.bench.workload import Topic
from tests.commands import copy_demo_conf

_ROOT = Path(__file__).parents[2]
_FLOW = "east->central"
_TOPIC = Topic(name="bench.orders", records=40_000, value_bytes=100)
_PLACE = ("--topic", _TOPIC.name, "--partition", "0", "--offset", "21")
COMMANDS = {
    "offsets": ("offsets", "--flow", _FLOW, *_PLACE),
    "status": ("status",),
    "plan": ("plan",),
    "groups": ("groups", "--flow", _FLOW),
    "lag": ("lag",),
    "doctor": ("doctor",),
    "verify": ("verify",),
}


def measure(options: Options, book: Book, say: Say) -> None:
    """Run each command `repeat` times; the demo's second time counts."""
    with options.contest(say) as contest:
        contest.create([_TOPIC])
        contest.write([_TOPIC])
        book.attempt("commands", lambda: _commands(contest, options.repeat, book))
    with options.folder() as folder:
        book.attempt("demo", lambda: _demo(folder, book))


def _commands(contest: Contest, repeat: int, book: Book) -> None:
    conf = contest.write_settings([{"source": "east", "target": "central", "topics": _TOPIC.name}])

    def run(suite: str, case: str, *arguments: str) -> None:
        used = _ran([sys.executable, "-m", "mirrorlake", *arguments, "--conf", str(conf)], contest.directory, contest)
        book.keep(suite, case, used.cost, mode="a process, cold", others_cores=used.strangers_cores)

    run("once", f"{_TOPIC.records:,} records of {_TOPIC.value_bytes} B", "run", "--once")
    for _ in range(repeat):
        run("once", "nothing new", "run", "--once")
    for case, arguments in COMMANDS.items():
        for _ in range(repeat):
            book.attempt(case, partial(run, "shell", case, *arguments))


def _demo(folder: Path, book: Book) -> None:
    conf = copy_demo_conf(folder)
    for number in range(2):
        used = _ran([sys.executable, str(_ROOT / "notebooks" / "demo"), "--conf", str(conf)], folder)
        if number:
            book.keep("shell", "make demo", used.cost, mode="second time", others_cores=used.strangers_cores)


def _ran(command: Sequence[str], folder: Path, contest: Contest | None = None) -> Usage:
    """Run a command to its end; exit 1 is a finding, not a failure."""
    log = folder / "command.log"
    with log.open("wb") as out:
        # As an installed package: without byte code each command compiles 250 modules first, 0.3 CPU-s.
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
        process = subprocess.Popen(command, cwd=folder, env=environment, stdout=out, stderr=subprocess.STDOUT)
        used = watch_to_end(process, ProcessTree(process.pid), contest.brokers if contest else ())
    if process.returncode not in (0, 1):
        raise RuntimeError(f"{command} ended with {process.returncode}: {log.read_text(errors='replace')[:1000]}")
    return used
