"""Drains of a full source: land, republish, and `run --once` to one, two or three targets, beside MirrorMaker 2.

mirrorlake lands once and republishes to each target by one command; MirrorMaker 2 runs as many flows in one process. Every
target is a broker of its own, and a pass counts only when every target holds every record in order. The cold pass is the
first one of a fresh process, warm ones follow in it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from deltalake import DeltaTable

from tests.bench import mm2
from tests.bench.contest import Contest
from tests.bench.copies import IncompleteCopy
from tests.bench.options import Options
from tests.bench.processes import ProcessTree, Stopwatch, Usage
from tests.bench.results import MIRRORLAKE, MM2, Book, Say, per_million

SOURCE = "east"
_STOP_S = 60.0
_ROOT = Path(__file__).parents[2]
SUITE = "drain"


@dataclass(frozen=True, slots=True)
class Pass:
    """One lake with one flow; the flow's name prefixes its remote topics."""

    flow: str
    conf: Path
    lake: Path

    def remote(self, topic: str) -> str:
        return f"{self.flow}.{topic}"


def prepared(contest: Contest, name: str, *, lake: Path | None = None, to_each: bool = False) -> Pass:
    """Write the settings of one pass, into `lake` or a new one: a flow to the first target, or one to each of them."""
    root = lake or contest.directory / f"lake-{name}"
    common = {"source": SOURCE, "topics": r"bench\..*", "policy": {"template": f"{name}.{{topic}}"}}
    targets = [target.alias for target in contest.targets]
    names = {f"{name}.{target}": target for target in targets} if to_each else {name: targets[0]}
    flows = [{"name": flow, "target": target, **common} for flow, target in names.items()]
    return Pass(name, contest.write_settings(flows, name=name, lake={"root": str(root)}), root)


class Session:
    """A worker process and what it costs. It is asked one thing at a time."""

    def __init__(self, process: subprocess.Popen[str], contest: Contest) -> None:
        self._process = process
        self._watch = Stopwatch(ProcessTree(process.pid), contest.brokers)

    def ask(self, do: str, one: Pass, **arguments: str) -> int:
        """Have the worker do something and return how many records it gave."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps({"do": do, "conf": str(one.conf), **arguments}) + "\n")
        stdin.flush()
        line = stdout.readline()
        if not line:
            raise IncompleteCopy(f"the worker ended with {self._process.wait(_STOP_S)} while it should {do}")
        answer = json.loads(line)
        if "error" in answer:
            raise IncompleteCopy(f"{do}: {answer['error']}")
        return int(answer["records"])

    def measure(self, do: str, one: Pass, *, records: int, **arguments: str) -> Usage:
        """Have something done that gives so many records, and return what it took."""
        self._watch.restart()
        given = self.ask(do, one, **arguments)
        used = self._watch.read()
        if given != records:
            raise IncompleteCopy(f"{do}: {given} of {records} records")
        return used


@contextmanager
def session(contest: Contest) -> Iterator[Session]:
    """Start a worker process for a `with` block; its Spark starts with the first thing it is asked."""
    with (contest.directory / "worker.log").open("ab") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.bench.worker"],
            cwd=_ROOT,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, [str(_ROOT), os.environ.get("PYTHONPATH")]))},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
    try:
        yield Session(process, contest)
    finally:
        assert process.stdin is not None
        process.stdin.close()
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def apply_all(contest: Contest, passes: Sequence[Pass]) -> None:
    """Create tables, ledgers and topics of all passes in a session of its own: setting up is not part of any figure."""
    with session(contest) as spark:
        for one in passes:
            spark.ask("apply", one)
    contest.say(f"set up {len(passes)} passes")


def measure(options: Options, book: Book, say: Say) -> None:
    """Measure each subject with each number of targets."""
    for count in options.targets:
        with options.contest(say, targets=count) as contest:
            contest.fill()
            if MIRRORLAKE in options.subjects:
                if count == min(options.targets):
                    book.attempt("land and republish", partial(_steps, contest, options.repeat, book))
                book.attempt(f"{_case(count)}, {MIRRORLAKE}", partial(_runs, contest, options.repeat, book))
            for number in range(options.repeat if MM2 in options.subjects else 0):
                book.attempt(f"{_case(count)}, {MM2}", partial(mm2.drain, number, contest, book, case=_case(count)))


def _case(targets: int) -> str:
    return f"{targets} target{'s' if targets > 1 else ''}"


def _kept(contest: Contest, book: Book, case: str, number: int, used: Usage, **facts: float) -> None:
    book.keep(
        SUITE,
        case,
        {**used.values(contest.records), **facts},
        mode="warm" if number else "cold",
        workload=contest.workload,
        others_cores=used.strangers_cores,
    )


def _steps(contest: Contest, repeat: int, book: Book) -> None:
    """Land into an empty relay a pass, and republish the first of them into empty topics a pass, each in its own process."""
    numbers, data = range(1 + repeat), contest.source.directory / "data"
    lands = [prepared(contest, f"land{number:02}") for number in numbers]
    sends = [prepared(contest, f"send{number:02}", lake=lands[0].lake) for number in numbers]
    apply_all(contest, [*lands, *sends])
    with session(contest) as spark:
        spark.ask("start", lands[0])
        for number, one in enumerate(lands):
            used = spark.measure("land", one, records=contest.records, source=SOURCE)
            relay = sum(file.stat().st_size for file in (one.lake / "relay" / SOURCE).rglob("*.parquet"))
            logs = (log for one in contest.topics for log in data.glob(f"{one.name}-[0-9]*/*.log"))
            sizes = {"relay B a record": relay, "source log B a record": sum(log.stat().st_size for log in logs)}
            _kept(contest, book, "land", number, used, **{name: of / contest.records for name, of in sizes.items()})
            if number:
                shutil.rmtree(one.lake)
    with session(contest) as spark:
        spark.ask("start", sends[0])
        for number, one in enumerate(sends):
            used = spark.measure("republish", one, records=contest.records, flow=one.flow)
            _proven(contest, one)
            rows = DeltaTable(one.lake / "meta" / "offset_map").to_pyarrow_table(filters=[("flow", "=", one.flow)])
            _kept(
                contest, book, "republish", number, used, **{"map rows per M": per_million(len(rows), contest.records)}
            )
            contest.clean(containing=one.flow)
    contest.clean()


def _runs(contest: Contest, repeat: int, book: Book) -> None:
    """Land once and republish to every target by one command; then once more, with nothing new."""
    count = len(contest.targets)
    passes = [prepared(contest, f"pass{number}", to_each=True) for number in range(1 + repeat)]
    apply_all(contest, passes)
    with session(contest) as spark:
        spark.ask("start", passes[0])
        for number, one in enumerate(passes):
            used = spark.measure("run", one, records=count * contest.records)
            _proven(contest, one)
            _kept(contest, book, _case(count), number, used)
            idle = spark.measure("run", one, records=0)
            if number:
                book.keep(
                    "once",
                    f"nothing new, {_case(count)}",
                    idle.cost,
                    mode="drain, warm",
                    others_cores=idle.strangers_cores,
                )
            contest.clean(containing=one.flow)
            shutil.rmtree(one.lake)


def _proven(contest: Contest, one: Pass) -> None:
    for copy in contest.copies(one.remote):
        copy.prove()
