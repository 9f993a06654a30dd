"""mirrorlake's passes: land, republish, both; each into an empty relay or an empty topic set."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from tests.bench.contest import Contest
from tests.bench.copies import IncompleteCopy
from tests.bench.figures import BOTH, LAND, LAND_COLD, REPUBLISH, REPUBLISH_COLD, Measurement, per_million
from tests.bench.processes import ProcessTree, Stopwatch, Usage
from tests.bench.workload import PARTITIONS, Topic

SOURCE = "east"
_STOP_S = 60.0
_ROOT = Path(__file__).parents[2]

Keep = Callable[[Measurement], None]


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
    root, conf = lake or contest.directory / f"lake-{name}", contest.directory / f"{name}.yml"
    clusters = {cluster.alias: {"bootstrap_servers": cluster.bootstrap_servers} for cluster in contest.clusters}
    common = {"source": SOURCE, "topics": r"bench\..*", "policy": {"template": f"{name}.{{topic}}"}}
    targets = [target.alias for target in contest.targets]
    names = {f"{name}.{target}": target for target in targets} if to_each else {name: targets[0]}
    flows = [{"name": flow, "target": target, **common} for flow, target in names.items()]
    conf.write_text(yaml.safe_dump({"lake": {"root": str(root)}, "clusters": clusters, "flows": flows}))
    return Pass(name, conf, root)


class Session:
    """A worker process and what it costs. It is asked one thing at a time."""

    def __init__(self, process: subprocess.Popen[str], contest: Contest) -> None:
        self._process = process
        self._contest = contest
        self._tree = ProcessTree(process.pid)
        self._watch = Stopwatch(self._tree, contest.brokers)
        self._start: Usage | None = None

    def ask(self, do: str, one: Pass, **arguments: str) -> dict[str, Any]:
        """Have the worker do something and return its answer."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None
        assert stdout is not None
        stdin.write(json.dumps({"do": do, "conf": str(one.conf), **arguments}) + "\n")
        stdin.flush()
        line = stdout.readline()
        if not line:
            raise IncompleteCopy(f"the worker ended with {self._process.wait(_STOP_S)} while it should {do}")
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise IncompleteCopy(f"{do}: {answer['error']}")
        return answer

    def start(self, one: Pass) -> None:
        """Start Spark; its cost, counted from the start of the process, is kept for the first measurement."""
        self.ask("start", one)
        self._start = self._watch.read()

    def measure(
        self,
        subject: str,
        do: str,
        one: Pass,
        check: Callable[[], dict[str, float]],
        *,
        copies: int = 1,
        **arguments: str,
    ) -> Measurement:
        """Do something that gives so many copies, measure it, and return the figure once `check` has proven the result."""
        records = self._contest.records
        watch = Stopwatch(self._tree, self._contest.brokers)
        answer = self.ask(do, one, **arguments)
        used = watch.read()
        if answer["records"] != copies * records:
            raise IncompleteCopy(f"{subject}: {answer['records']} of {copies * records} records")
        start, self._start = self._start, None
        return used.measurement(subject, records, start=start, facts=check())


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


def land(contest: Contest, passes: Sequence[Pass], keep: Keep) -> None:
    """Land the source once into each lake: the first pass is cold."""
    with session(contest) as spark:
        spark.start(passes[0])
        for number, one in enumerate(passes):
            subject = LAND if number else LAND_COLD
            keep(spark.measure(subject, "land", one, lambda one=one: _relay(contest, spark, one), source=SOURCE))
            if number:
                shutil.rmtree(one.lake)


def republish(contest: Contest, passes: Sequence[Pass], keep: Keep) -> None:
    """Republish one landed lake by each flow: the first pass is cold."""
    with session(contest) as spark:
        spark.start(passes[0])
        for number, one in enumerate(passes):
            subject = REPUBLISH if number else REPUBLISH_COLD
            keep(spark.measure(subject, "republish", one, lambda one=one: _target(contest, spark, one), flow=one.flow))


def both(contest: Contest, passes: Sequence[Pass], keep: Keep) -> None:
    """Land and republish by one command, into empty relays and topic sets; the first pass only warms the session up."""
    with session(contest) as spark:
        for number, one in enumerate(passes):
            measured = spark.measure(BOTH, "run", one, lambda one=one: _target(contest, spark, one))
            if number:
                keep(measured)
            shutil.rmtree(one.lake)


def _relay(contest: Contest, spark: Session, one: Pass) -> dict[str, float]:
    answer = spark.ask("relay", one, source=SOURCE)
    check_relay(answer["parts"], contest.topics)
    return {"relay files": answer["files"], "relay bytes": answer["bytes"]}


def check_relay(parts: Sequence[Sequence[Any]], topics: Sequence[Topic]) -> None:
    """Compare the relay's `topic, partition, first, last, records` with the workload."""
    found = {(topic, partition): rest for topic, partition, *rest in parts}
    due = {(t.name, p): [0, t.in_partition(p) - 1, t.in_partition(p)] for t in topics for p in range(PARTITIONS)}
    wrong = [key for key in due.keys() | found.keys() if found.get(key) != due.get(key)]
    if wrong:
        key = min(wrong)
        raise IncompleteCopy(f"the relay holds {found.get(key)} of {key}, due is {due.get(key)} (first, last, records)")


def _target(contest: Contest, spark: Session, one: Pass) -> dict[str, float]:
    contest.copy(one.remote).prove(exactly_once=True)
    held = spark.ask("map_rows", one, flow=one.flow)
    if held["records"] != contest.records:
        raise IncompleteCopy(f"offset_map covers {held['records']} of {contest.records} records")
    contest.clean(containing=one.flow)
    return {"offset_map rows per million": per_million(held["rows"], contest.records)}
