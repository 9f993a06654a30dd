"""Command line of the benchmark: `python -m tests.bench --help`."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
import tempfile
from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path

from rich.console import Console

from mirrorlake.config.schema.tracking import without_user
from mirrorlake.tracking.store import RunStore
from mirrorlake.tracking.tracker import Tracker
from tests.bench import lakeside, mm2
from tests.bench.contest import Contest, Say
from tests.bench.figures import BOTH, LAND, MM2_DEFAULTS, MM2_EXACTLY_ONCE, MM2_TUNED, REPUBLISH, Measurement
from tests.bench.harness import attempt, harness_parser, teller
from tests.bench.processes import this_machine
from tests.bench.report import Report
from tests.bench.track import bench_run
from tests.bench.workload import topics

_MM2 = {"mm2-defaults": MM2_DEFAULTS, "mm2-tuned": MM2_TUNED, "mm2-exactly-once": MM2_EXACTLY_ONCE}
# A benchmark has the time.
_TRACKING_S = 120.0
# Of tables that go to a file.
_WIDTH = 140
_CHOICES = {"land": LAND, "republish": REPUBLISH, "both": BOTH, **_MM2}


def main(arguments: list[str]) -> int:
    """Run what is asked for and print the tables; 1 when there is a subject without a figure."""
    options = _parser().parse_args(arguments)
    started_at, say = datetime.now(timezone.utc), teller()
    workload = topics(options.records_scale)
    measurements: list[Measurement] = []
    failures: dict[str, str] = {}

    def keep(one: Measurement) -> None:
        measurements.append(one)
        say(f"{one.subject}: {one.records_per_second:,.0f} records/s, {one.cpu_per_million:.2f} CPU-s per M")

    def attempted(name: str, run: Callable[[], None]) -> None:
        if why := attempt(run):
            failures[_CHOICES[name]] = why
            say(f"{_CHOICES[name]}: no figure: {why}")

    with (
        tempfile.TemporaryDirectory(prefix="mirrorlake-bench-", dir=options.directory) as directory,
        Contest(workload, seed=options.seed, directory=Path(directory), say=say) as contest,
    ):
        _lakeside(contest, options.only, options.repeat, keep, attempted)
        for name in (name for name in _MM2 if name in options.only):
            for number in range(options.repeat):
                attempted(name, lambda name=name, number=number: keep(mm2.measure(_MM2[name], number, contest)))
    report = Report(
        # It is printed and logged, and an address may hold a password.
        command=without_user(shlex.join(["python", "-m", "tests.bench", *arguments])),
        started_at=started_at,
        machine=this_machine(),
        topics=workload,
        measurements=measurements,
        failures=failures,
    )
    _print(report, options.json, say)
    if options.mlflow:
        _track(report, options, say)
    return 1 if failures else 0


def _lakeside(
    contest: Contest,
    only: list[str],
    repeat: int,
    keep: Callable[[Measurement], None],
    attempt: Callable[[str, Callable[[], None]], None],
) -> None:
    """Run mirrorlake's passes: a cold one and `repeat` warm ones each."""
    numbers = range(1 + repeat)
    landed = lakeside.prepared(contest, "landed")
    lands = [landed, *(lakeside.prepared(contest, f"land{number:02}") for number in numbers[1:])]
    sends = [lakeside.prepared(contest, f"send{number:02}", lake=landed.lake) for number in numbers]
    boths = [lakeside.prepared(contest, f"both{number:02}") for number in numbers]
    needed = {"land": lands, "republish": [landed, *sends], "both": boths}
    wanted = [name for name in needed if name in only]
    if not wanted:
        return
    lakeside.apply_all(contest, list(dict.fromkeys(one for name in wanted for one in needed[name])))
    if "land" in wanted:
        attempt("land", lambda: lakeside.land(contest, lands, keep))
    elif "republish" in wanted:
        attempt("republish", lambda: lakeside.land(contest, [landed], lambda _: None))
    if "republish" in wanted:
        attempt("republish", lambda: lakeside.republish(contest, sends, keep))
    if "both" in wanted:
        attempt("both", lambda: lakeside.both(contest, boths, keep))
    contest.clean()


def _print(report: Report, file: Path | None, say: Say) -> None:
    if file is not None:
        file.write_text(json.dumps(report.as_dict(), indent=2) + "\n")
        say(f"wrote {file}")
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = _WIDTH
    for table in report.rich_tables():
        console.print(table)
    # Not through the console, which would wrap its lines.
    sys.stdout.write(f"\n{report.markdown()}\n")


def _track(report: Report, options: argparse.Namespace, say: Say) -> None:
    tracker = Tracker(lambda: RunStore(options.mlflow, options.experiment), timeout_s=_TRACKING_S, shown=without_user)
    run_id = tracker.log(bench_run(report, ended_at=datetime.now(timezone.utc), seed=options.seed))
    say(f"logged as run {run_id}" if run_id else "not logged: the warning above says why")


def _parser() -> argparse.ArgumentParser:
    parser = harness_parser("python -m tests.bench", "mirrorlake beside MirrorMaker 2", _CHOICES)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write everything that was measured")
    parser.add_argument("--mlflow", metavar="URI", help="log a run there, as sqlite:////folder/mlflow.db")
    parser.add_argument("--experiment", default="mirrorlake", help="the run's experiment (mirrorlake)")
    return parser


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
