"""CPU of 1, 2 and 3 targets: landed once and republished to each, beside MirrorMaker 2 with as many flows in one process.

`python -m tests.bench.targets --help`. Every target is a broker of its own. Measurements are added to a file, so that a
long benchmark can be run in pieces; the table is made from all of them that have the same workload.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from tests.bench import lakeside, mm2
from tests.bench.contest import Contest, Say
from tests.bench.figures import MM2_EXACTLY_ONCE, MM2_TUNED, Measurement
from tests.bench.harness import attempt, harness_parser, teller
from tests.bench.lakeside import Pass
from tests.bench.processes import this_machine
from tests.bench.report import BUSY_CORES
from tests.bench.workload import topics

COLD = "mirrorlake, cold"
WARM = "mirrorlake, warm"
MM2 = {"mm2-tuned": MM2_TUNED, "mm2-exactly-once": MM2_EXACTLY_ONCE}
SUBJECTS = (COLD, WARM, *MM2.values())
_CHOICES = ("mirrorlake", *MM2)


@dataclass(frozen=True, slots=True)
class Row:
    """One pass of one subject with so many targets; CPU-seconds are those per million records of the source."""

    subject: str
    targets: int
    records: int
    cpu_per_million: float
    seconds: float
    strangers_cores: float

    @classmethod
    def of(cls, one: Measurement, targets: int) -> Row:
        return cls(one.subject, targets, one.records, one.cpu_per_million, one.seconds, one.strangers_cores)


def mirrorlake(contest: Contest, repeat: int, keep: Callable[[Measurement], None]) -> None:
    """Land once and republish to every target by one command, in one process: a cold pass and `repeat` warm ones."""
    passes = [lakeside.prepared(contest, f"pass{number}", to_each=True) for number in range(1 + repeat)]
    lakeside.apply_all(contest, passes)
    with lakeside.session(contest) as spark:
        spark.start(passes[0])
        for number, one in enumerate(passes):
            subject = WARM if number else COLD
            count = len(contest.targets)
            keep(spark.measure(subject, "run", one, lambda one=one: _proof(contest, one), copies=count))
            contest.clean(containing=one.flow)


def _proof(contest: Contest, one: Pass) -> dict[str, float]:
    for copy in contest.copies(one.remote):
        copy.prove(exactly_once=True)
    return {}


def table(rows: Iterable[Row]) -> str:
    """Return the medians as Markdown: CPU-seconds per million source records, and mirrorlake's share of MM2's.

    Example:
        >>> print(table([Row(WARM, 1, 10, 9.0, 1, 0), Row(MM2_TUNED, 1, 10, 6.0, 1, 0)]))
        |  | 1 target |
        | --- | ---: |
        | mirrorlake, warm | 9.0 |
        | MM2, tuned | 6.0 |
        | mirrorlake, warm / MM2, tuned | 1.50 |
    """
    found: dict[tuple[str, int], list[float]] = {}
    for row in rows:
        found.setdefault((row.subject, row.targets), []).append(row.cpu_per_million)
    cost = {key: median(values) for key, values in found.items()}
    counts = sorted({count for _, count in cost})
    there = [subject for subject in SUBJECTS if any(key[0] == subject for key in cost)]

    def line(name: str, values: Sequence[float | None], digits: int) -> str:
        cells = ["–" if value is None else f"{value:.{digits}f}" for value in values]
        return f"| {' | '.join([name, *cells])} |"

    heads = [f"{count} target{'s' if count > 1 else ''}" for count in counts]
    lines = [f"|  | {' | '.join(heads)} |", f"| --- |{' ---: |' * len(counts)}"]
    lines += [line(subject, [cost.get((subject, count)) for count in counts], 1) for subject in there]
    for baseline in (name for name in MM2.values() if name in there and WARM in there):
        pairs = [(cost.get((WARM, count)), cost.get((baseline, count))) for count in counts]
        shares = [ours / theirs if ours is not None and theirs is not None else None for ours, theirs in pairs]
        lines.append(line(f"{WARM} / {baseline}", shares, 2))
    return "\n".join(lines)


def main(arguments: list[str]) -> int:
    """Measure what is asked for, add it to the file, and print the table of the whole file; 1 when a figure is lacking."""
    options = _parser().parse_args(arguments)
    say = teller()
    failed = False
    for count in options.targets:
        failed |= not _measure(count, options, say)
    held = _read(options.json)
    rows = [Row(**{name: one[name] for name in Row.__slots__}) for one in held]
    rows = [row for row in rows if row.records == sum(topic.records for topic in topics(options.records_scale))]
    sys.stdout.write(f"{table(rows)}\n\n{this_machine()}\n")
    busy = max((row.strangers_cores for row in rows), default=0.0)
    if busy > BUSY_CORES:
        sys.stdout.write(f"Other processes kept up to {busy:.1f} cores busy: CPU-seconds are too high.\n")
    return int(failed)


def _measure(count: int, options: argparse.Namespace, say: Say) -> bool:
    """Measure the chosen subjects with so many targets; tell whether all of them gave a figure."""
    failures: list[str] = []

    def keep(one: Measurement) -> None:
        say(f"{one.subject}, {count} targets: {one.cpu_per_million:.2f} CPU-s per M, {one.seconds:.0f} s")
        row = Row.of(one, count)
        entry = {**one.as_dict(), **{name: getattr(row, name) for name in Row.__slots__}}
        options.json.write_text(json.dumps([*_read(options.json), entry], indent=1) + "\n")

    with (
        tempfile.TemporaryDirectory(prefix="mirrorlake-bench-", dir=options.directory) as directory,
        Contest(
            topics(options.records_scale), seed=options.seed, directory=Path(directory), say=say, targets=count
        ) as contest,
    ):
        passes: dict[str, list[Callable[[], None]]] = {
            "mirrorlake": [lambda: mirrorlake(contest, options.repeat, keep)]
        }
        for name, subject in MM2.items():
            passes[name] = [
                lambda number=number, subject=subject: keep(mm2.measure(subject, number, contest))  # type: ignore[misc]
                for number in range(options.repeat)
            ]
        for name in options.only:
            for run in passes[name]:
                if why := attempt(run):
                    failures.append(why)
                    say(f"{name}, {count} targets: no figure: {why}")
    return not failures


def _read(file: Path) -> list[dict[str, Any]]:
    return json.loads(file.read_text()) if file.exists() else []


def _parser() -> argparse.ArgumentParser:
    parser = harness_parser("python -m tests.bench.targets", "1, 2 and 3 targets beside MM2", _CHOICES)
    parser.add_argument("--targets", type=_counts, default=[1, 2, 3], metavar="N,M", help="how many (1,2,3)")
    parser.add_argument(
        "--json", type=Path, default=Path("targets.json"), metavar="FILE", help="added to (targets.json)"
    )
    return parser


def _counts(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
