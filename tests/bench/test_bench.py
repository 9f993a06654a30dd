"""The arithmetic of the benchmark, and its settings of MirrorMaker 2."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from tests.bench import mm2
from tests.bench.copies import Tally, parts_of
from tests.bench.processes import ProcessTree
from tests.bench.results import MIRRORLAKE, MM2, Book, Result, load, markdown
from tests.bench.workload import topics


def result(subject: str, cpu: float, *, case: str = "1 target", mode: str = "warm", date: str = "2026-01-01") -> Result:
    return Result(
        suite="drain", case=case, subject=subject, mode=mode, values={"CPU-s per M": cpu}, command="bench", date=date
    )


def test_a_table_holds_medians_and_ratios_and_says_where_they_come_from() -> None:
    found = [result(MIRRORLAKE, cpu) for cpu in (8.0, 9.0, 30.0)]
    found += [result(MIRRORLAKE, 20.0, mode="cold"), result(MM2, 6.0), result(MIRRORLAKE, 12.0, case="2 targets")]
    found += [replace(result(MIRRORLAKE, 1.0), suite="other")]
    assert markdown([replace(one, machine="here", others_cores=0.2) for one in found], "drain").splitlines() == [
        "|  | subject | mode | passes | CPU-s per M |",
        "| --- | --- | --- | --- | ---: |",
        "| 1 target | mirrorlake | warm | 3 | 9 (1.5 x) |",
        "| 1 target | mirrorlake | cold | 1 | 20 (3.33 x) |",
        "| 1 target | MM2, tuned, exactly-once | warm | 1 | 6 |",
        "| 2 targets | mirrorlake | warm | 1 | 12 |",
        "",
        "- `bench`, 2026-01-01, here",
        "- Other processes kept up to 0.2 cores busy: rates are too low, CPU-seconds too high.",
    ]


def test_what_was_measured_before_a_failure_is_kept(tmp_path: Path) -> None:
    def run() -> None:
        book.keep("drain", "1 target", {"CPU-s": 1.0}, mode="warm")
        raise OSError("the disk is full")

    book = Book(tmp_path / "deep" / "bench.json", lambda _: None, command="c", machine="m", date="d")
    book.attempt("1 target", run)
    assert book.failures == {"1 target": "OSError: the disk is full"}
    Book(tmp_path / "deep" / "bench.json", lambda _: None, command="c", machine="m", date="d").keep(
        "shell", "status", {"seconds": 1.0}, mode="cold"
    )
    assert [(one.suite, one.command) for one in load(tmp_path / "deep" / "bench.json")] == [
        ("drain", "c"),
        ("shell", "c"),
    ]


def test_a_copy_is_complete_when_every_record_stands_there_once_and_in_order() -> None:
    [topic] = topics(0.000_01, sizes=[100], partitions=3)
    assert topic.records == 20
    parts = parts_of([topic], lambda name: f"east.{name}")
    assert [part.records for part in parts] == [7, 7, 6]

    def faults(places: list[int]) -> list[str]:
        tally = Tally(parts[1])
        for place in places:
            tally.add(parts[1].key(place))
        return tally.faults()

    assert faults([0, 1, 2, 3, 4, 5, 6]) == []
    assert "1 records twice" in faults([0, 1, 2, 2, 3, 4, 5, 6])[0]
    assert "6 of 7" in faults([0, 1, 2, 3, 4, 5])[0]
    assert faults([0, 2, 1, 3, 4, 5, 6])


def test_one_process_of_mirrormaker_has_a_flow_to_each_target_and_none_between_them() -> None:
    servers = {"east": "e:1", "central": "c:1", "central2": "d:1"}
    found = mm2.fan_out("east", ["central", "central2"], servers, rest_port=1)
    assert found["clusters"] == "east,central,central2"
    assert {key for key, value in found.items() if key.endswith("->central2.enabled") and value == "true"} == {
        "east->central2.enabled"
    }
    assert found["central->central2.emit.heartbeats.enabled"] == "false"
    for target in ("central", "central2"):
        assert found[f"{target}.producer.batch.size"] == "1000000"
        assert found[f"{target}.exactly.once.source.support"] == "enabled"


# As PySpark's daemon does with its workers: one ends, then the parent works on.
_FORKS = """
import os, signal, time
def work(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end: pass
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
if os.fork() == 0:
    work(0.6)
    print("child", flush=True)
    os.read(0, 1)
    os._exit(0)
try:
    os.wait()
except ChildProcessError:
    work(0.3)
    print("parent", flush=True)
    os.read(0, 1)
"""


def test_a_child_that_nobody_collects_stays_in_the_sum() -> None:
    command = [sys.executable, "-c", _FORKS]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0) as parent:
        assert parent.stdin is not None
        assert parent.stdout is not None
        tree = ProcessTree(parent.pid)
        # The kernel counts in ticks of 10 ms, and cuts the last off.
        for who, at_least in (("child", 0.55), ("parent", 0.85)):
            assert parent.stdout.readline().decode() == f"{who}\n"
            assert tree.cpu_seconds() >= at_least
            parent.stdin.write(b"x")
