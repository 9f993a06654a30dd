"""Tracking against real stores: a sqlite file, one that is locked, a server that is away, and one that hangs."""

from __future__ import annotations

import json
import re
import socket
import sqlite3
import threading
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from mirrorlake.failover.drill import DrillReport, drill_run
from mirrorlake.tracking.store import RunStore
from mirrorlake.tracking.tracker import Tracker, make_tracker
from tests.builders import NOON
from tests.unit.tracking.test_tracking import lines, run_of, settings
from tests.unit.values import every


@pytest.fixture
def silent_server() -> Iterator[str]:
    """Give the address of a server that takes connections and never says a word."""
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(16)
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def runs_of(database: Path, terms: str = "") -> dict[str, Any]:
    """Return the runs of the store by id, as MLflow's own client finds them."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{database}")
    experiment = client.get_experiment_by_name("mirrorlake")
    assert experiment is not None
    return {run.info.run_id: run for run in client.search_runs([experiment.experiment_id], filter_string=terms)}


def test_a_run_is_kept_whole_and_runs_are_found_by_kind_and_flow(database: Path) -> None:
    tracker = Tracker(lambda: RunStore(f"sqlite:///{database}", "mirrorlake"))
    first = tracker.log(run_of())
    second = tracker.log(run_of("bench", kind="benchmark", began_at=NOON + timedelta(hours=1), tags={}))
    assert first
    assert second
    assert (tracker.logged, tracker.failures) == (2, 0)
    run, noon_ms = runs_of(database)[first], int(NOON.timestamp() * 1000)
    assert (run.info.run_name, run.info.status) == ("verify a->b", "FINISHED")
    assert (run.info.start_time, run.info.end_time) == (noon_ms, noon_ms + 2000)
    assert (run.data.metrics["verified"], run.data.params["lanes"]) == (120.0, "2")
    assert list(runs_of(database, "tags.`mirrorlake.kind` = 'benchmark'")) == [second]
    assert list(runs_of(database, "tags.`mirrorlake.flow` = 'a->b'")) == [first]
    [report] = database.parent.glob(f"artifacts/{first}/artifacts/verification.json")
    assert report.read_text() == "{}\n"


def test_a_drill_is_kept_with_its_figures_and_its_report(database: Path) -> None:
    tracker = Tracker(lambda: RunStore(f"sqlite:///{database}", "mirrorlake"))
    [drilled] = [value for value in every("a->b") if isinstance(value, DrillReport)]
    run_id = tracker.log(drill_run(drilled))
    assert run_id
    run = runs_of(database, "tags.`mirrorlake.kind` = 'drill' AND tags.`mirrorlake.flow` = 'a->b'")[run_id]
    figures = run.data.metrics
    assert (run.info.run_name, run.data.params["flow"]) == ("drill a->b", "a->b")
    assert (figures["records"], figures["fill_seconds"]) == (7.0, 7.0)
    assert figures["passed"] == float(drilled.passed)
    [kept] = database.parent.glob(f"artifacts/{run_id}/artifacts/drill.json")
    assert json.loads(kept.read_text())["verdicts"][0]["objective"] == "RPO"
    assert list(database.parent.glob(f"artifacts/{run_id}/artifacts/drill.html"))


def test_a_locked_file_costs_one_line_and_its_time(database: Path, caplog: pytest.LogCaptureFixture) -> None:
    tracker = Tracker(lambda: RunStore(f"sqlite:///{database}", "mirrorlake"), timeout_s=0.5)
    # Opened while it can be, as by an earlier verification.
    tracker._store = RunStore(f"sqlite:///{database}", "mirrorlake")
    with sqlite3.connect(database, isolation_level=None) as lock:
        lock.execute("BEGIN EXCLUSIVE")
        assert tracker.log(run_of()) is None
        assert tracker.failures == 1
        assert [re.sub(r"why=.*", "", line) for line in lines(caplog)] == [
            "tracking.not_logged run='verify a->b' failures=1 "
        ]
        lock.execute("ROLLBACK")
    tracker.timeout_s = 60.0
    hanging = tracker._hanging
    if hanging is not None:
        hanging.join()
    assert tracker.log(run_of()), "the next one goes through"


def test_a_server_that_is_away_costs_one_line(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        address = f"http://me:hunter2@127.0.0.1:{taken.getsockname()[1]}"
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    tracker = make_tracker(settings(f"{{uri: '{address}'}}"))
    assert tracker.log(run_of()) is None
    assert (tracker.logged, tracker.failures, len(lines(caplog))) == (0, 1, 1)
    assert "hunter2" not in caplog.text


def test_a_server_that_hangs_is_waited_for_once(silent_server: str, caplog: pytest.LogCaptureFixture) -> None:
    began = threading.active_count()
    tracker = make_tracker(settings(f"{{uri: '{silent_server}', timeout: 200ms}}"))
    for number in range(1, 4):
        tracker.warm_up()
        assert tracker.log(run_of()) is None
        assert tracker.failures == number
    assert "no answer within 0.2 s" in lines(caplog)[0]
    assert "an earlier call has not come back" in lines(caplog)[1]
    assert len(lines(caplog)) == 3
    assert threading.active_count() <= began + 2, "two threads hang, however many runs there are"
    assert tracker._hanging is not None
    assert tracker._hanging.daemon, "a process is not kept from ending"
