"""A benchmark as an MLflow run, so that runs can be laid side by side."""

from __future__ import annotations

import re
from dataclasses import asdict
from datetime import datetime

from mirrorlake.tracking.run import TrackedRun, html_page, json_report
from tests.bench.report import Report

BENCHMARK = "benchmark"


def bench_run(report: Report, *, ended_at: datetime, seed: int) -> TrackedRun:
    """Return the run of a report: figures are named by subject, as `land_warm.records_per_second`."""
    figures: dict[str, float] = {"seconds": (ended_at - report.started_at).total_seconds()}
    for figure in report.figures:
        values = {
            "records_per_second": figure.records_per_second,
            "cpu_seconds_per_million": figure.cpu_per_million,
            "broker_cpu_seconds_per_million": figure.broker_cpu_per_million,
            "strangers_cores": figure.strangers_cores,
            "seconds": figure.seconds,
            "passes": figure.passes,
            "start_seconds": figure.start_seconds,
            **figure.facts,
        }
        figures |= {_name(figure.subject, what): value for what, value in values.items() if value is not None}
    machine = {f"machine.{name}": str(value) for name, value in asdict(report.machine).items()}
    records = {f"records.{topic.value_bytes}B": topic.records for topic in report.topics}
    return TrackedRun(
        kind=BENCHMARK,
        name="beside MirrorMaker 2",
        began_at=report.started_at,
        ended_at=ended_at,
        parameters={"command": report.command, "seed": seed, **machine, **records},
        figures=figures,
        reports={
            "report.json": json_report(report.as_dict()),
            "report.md": report.markdown() + "\n",
            "report.html": html_page("mirrorlake beside MirrorMaker 2", report.markdown()),
        },
        tags={"mirrorlake.failures": str(len(report.failures))},
    )


def _name(subject: str, what: str) -> str:
    # MLflow takes no commas and no plus signs in names.
    return f"{re.sub(r'[^a-z0-9]+', '_', subject.lower()).strip('_')}.{re.sub(r'[^A-Za-z0-9_]+', '_', what)}"
