"""The arithmetic of the benchmark of targets, its settings of MirrorMaker 2, and a benchmark as a run of a real MLflow store."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone
from pathlib import Path

from mirrorlake.tracking.run import runs_frame
from mirrorlake.tracking.store import RunStore
from mirrorlake.tracking.tracker import Tracker
from tests.bench import mm2
from tests.bench.figures import LAND, MM2_EXACTLY_ONCE, MM2_TUNED, Measurement
from tests.bench.processes import Machine
from tests.bench.report import Report
from tests.bench.targets import COLD, WARM, Row, table
from tests.bench.track import bench_run
from tests.bench.workload import topics


def row(subject: str, targets: int, cpu: float) -> Row:
    return Row(subject, targets, 1000, cpu, 1.0, 0.0)


def test_the_table_holds_medians_and_shares_and_says_what_is_lacking() -> None:
    rows = [row(MM2_TUNED, 1, 6.0), row(MM2_TUNED, 3, 18.0), row(COLD, 1, 20.0)]
    rows += [row(WARM, 1, cpu) for cpu in (8.0, 9.0, 30.0)]
    assert table(rows).splitlines() == [
        "|  | 1 target | 3 targets |",
        "| --- | ---: | ---: |",
        "| mirrorlake, cold | 20.0 | – |",
        "| mirrorlake, warm | 9.0 | – |",
        "| MM2, tuned | 6.0 | 18.0 |",
        "| mirrorlake, warm / MM2, tuned | 1.50 | – |",
    ]


def test_one_process_of_mirrormaker_has_a_flow_to_each_target_and_none_between_them() -> None:
    servers = {"east": "e:1", "central": "c:1", "central2": "d:1"}
    found = mm2.fan_out(MM2_EXACTLY_ONCE, "east", ["central", "central2"], servers, rest_port=1)
    assert found["clusters"] == "east,central,central2"
    assert {key for key, value in found.items() if key.endswith("->central2.enabled") and value == "true"} == {
        "east->central2.enabled"
    }
    assert found["central->central2.emit.heartbeats.enabled"] == "false"
    for target in ("central", "central2"):
        assert found[f"{target}.producer.batch.size"] == "1000000"
        assert found[f"{target}.exactly.once.source.support"] == "enabled"


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
