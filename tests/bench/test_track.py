"""A benchmark as a run of a real MLflow store."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from mirrorlake.tracking.run import runs_frame
from mirrorlake.tracking.store import RunStore
from mirrorlake.tracking.tracker import Tracker
from tests.bench.figures import LAND, MM2_EXACTLY_ONCE, Measurement
from tests.bench.processes import Machine
from tests.bench.report import Report
from tests.bench.track import bench_run
from tests.bench.workload import topics

# SQLAlchemy of its own accord, in MLflow's tables.
pytestmark = pytest.mark.filterwarnings("ignore:The ``noload`` loader strategy:DeprecationWarning")


def test_figures_of_two_benchmarks_can_be_laid_side_by_side(database: Path) -> None:
    tracker = Tracker(lambda: RunStore(f"sqlite:///{database}", "mirrorlake"))
    noon = datetime(2026, 1, 1, 12, tzinfo=timezone.utc)
    for hour, cpu in enumerate((4.0, 3.0)):
        measurements = [
            Measurement(subject=LAND, records=1_000_000, seconds=2.0, cpu_seconds=cpu, facts={"batches": 3}),
            Measurement(subject=MM2_EXACTLY_ONCE, records=1_000_000, seconds=4.0, cpu_seconds=6.0),
        ]
        report = Report(
            command="python -m tests.bench",
            started_at=noon + timedelta(hours=hour),
            machine=Machine(cpu="some", cores=2, memory_gib=4.0, system="Linux 6"),
            topics=topics(0.1),
            measurements=measurements,
            failures={},
        )
        ended_at = report.started_at + timedelta(seconds=60)
        assert tracker.log(bench_run(report, ended_at=ended_at, seed=7)), "logged whole"
    frame = runs_frame(tracker.runs(kind="benchmark"))
    assert list(frame["land_warm.cpu_seconds_per_million"]) == [3.0, 4.0]
    assert set(frame["land_warm.records_per_second"]) == {500_000.0}
    assert set(frame["mm2_tuned_exactly_once.cpu_seconds_per_million"]) == {6.0}
    assert set(frame["param.machine.cores"]) == {"2"}
    reports = {path.name for path in database.parent.glob(f"artifacts/{frame['run_id'][0]}/artifacts/*")}
    assert reports == {"report.json", "report.md", "report.html"}
