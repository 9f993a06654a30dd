"""A benchmark as an MLflow run, so that runs can be laid side by side."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from datetime import datetime

from mirrorlake.tracking.run import TrackedRun, html_page, json_report
from tests.bench.processes import Machine
from tests.bench.results import Result, markdown, medians

BENCHMARK = "benchmark"


def bench_run(
    results: Sequence[Result], *, command: str, machine: Machine, began_at: datetime, ended_at: datetime, failures: int
) -> TrackedRun:
    """Return the run of an invocation: a figure is named by its suite, case, subject, mode and value."""
    figures: dict[str, float] = {"seconds": (ended_at - began_at).total_seconds()}
    for one, _ in medians(results):
        place = ".".join(map(_name, (one.suite, one.case, one.subject, one.mode)))
        figures |= {f"{place}.{_name(what)}": value for what, value in one.values.items()}
    suites = dict.fromkeys(one.suite for one in results)
    page = "\n\n".join(f"## {suite}\n\n{markdown(results, suite)}" for suite in suites)
    workloads = ", ".join(dict.fromkeys(one.workload for one in results if one.workload))
    return TrackedRun(
        kind=BENCHMARK,
        name="beside MirrorMaker 2",
        began_at=began_at,
        ended_at=ended_at,
        parameters={
            "command": command,
            "workload": workloads,
            **{f"machine.{name}": str(value) for name, value in asdict(machine).items()},
        },
        figures=figures,
        reports={
            "report.json": json_report({"results": [asdict(one) for one in results]}),
            "report.md": page + "\n",
            "report.html": html_page("mirrorlake beside MirrorMaker 2", page),
        },
        tags={"mirrorlake.failures": str(failures)},
    )


def _name(text: str) -> str:
    # MLflow takes no commas and no plus signs in names.
    return re.sub(r"[^a-z0-9]+", "_", text.lower()).strip("_")
