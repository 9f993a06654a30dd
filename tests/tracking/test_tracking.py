"""Runs go where the settings say, whole and without a secret; a store that is away, silent or locked is one line in the log."""

from __future__ import annotations

import json
import os
import socket
import sqlite3
import sys
import time
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from mirrorlake.config import plain
from mirrorlake.config.schema import MirrorConfig
from mirrorlake.config.schema.tracking import TrackingConfig
from mirrorlake.context import Context
from mirrorlake.errors import ConfigError
from mirrorlake.failover.drill import DrillReport, drill_run
from mirrorlake.model.verify import Difference, PartitionProof, VerifyReport, VerifyReports
from mirrorlake.tracking import TrackedRun, log_run
from mirrorlake.verify.tracking import verification_run
from mirrorlake.verify.verifications import Verifications
from tests.builders import NOON, mirror_config
from tests.unit.values import every

FLOW = "east->central"
LOGIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "me", "sasl.password": "hunter2"}


def settings(tracking: str = "{}", *flows: dict[str, Any], root: str = "/lakes/one") -> MirrorConfig:
    sections = {"lake": {"root": root}, "tracking": yaml.safe_load(tracking)}
    return mirror_config(*(flows or [{"target": "central"}]), east={"client": LOGIN}, **sections)


def report(flow: str = FLOW) -> VerifyReport:
    difference = Difference(where="target", problem="missing", topic="<script>", partition=0, offset=7)
    orders = {"topic": "orders", "generation": 1, "landed": 60, "republished": 50, "withheld": 5}
    proofs = tuple(PartitionProof(**orders, partition=p, verified=50 * p, proven_before=20 * p) for p in (0, 1))
    return VerifyReport(flow=flow, equal=False, partitions=proofs, differences=(difference,))


def run(config: MirrorConfig) -> TrackedRun:
    ended_at = NOON + timedelta(seconds=2)
    return verification_run(report(), config.flow(FLOW), config, began_at=NOON, ended_at=ended_at)


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name.startswith("mirrorlake.")]


def runs_of(database: Path, terms: str) -> dict[str, Any]:
    """Return the runs of the store by id, as MLflow's own client finds them."""
    from mlflow import MlflowClient

    client = MlflowClient(tracking_uri=f"sqlite:///{database}")
    experiment = client.get_experiment_by_name("mirrorlake")
    assert experiment is not None
    return {run.info.run_id: run for run in client.search_runs([experiment.experiment_id], filter_string=terms)}


# -- what is logged ---------------------------------------------------------------------------------------------------


def test_verifications_and_drills_are_logged_whole_and_found_by_kind_and_flow(
    database: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    config = settings(f"{{uri: 'sqlite:///{database}'}}")
    [drilled] = [value for value in every("a->b") if isinstance(value, DrillReport)]
    verification, drill = log_run(config, run(config)), log_run(config, drill_run(drilled))
    assert verification
    assert drill
    [(run_id, logged)] = runs_of(database, f"tags.`mirrorlake.flow` = '{FLOW}'").items()
    assert (run_id, logged.info.run_name, logged.info.status) == (verification, f"verification {FLOW}", "FINISHED")
    noon_ms = int(NOON.timestamp() * 1000)
    assert (logged.info.start_time, logged.info.end_time) == (noon_ms, noon_ms + 2000)
    assert {name: figure for name, figure in logged.data.metrics.items() if figure} == {
        **dict.fromkeys(("differences", "differences.missing", "topics"), 1),
        **dict.fromkeys(("withheld", "offset_lag"), 10),
        **dict.fromkeys(("partitions", "seconds"), 2),
        "landed": 120,
        "republished": 100,
        "verified": 50,
        "proven_before": 20,
        "records_per_second": 25,
    }
    assert {"equal", "not_republished", "not_compared", "differences.altered"} <= logged.data.metrics.keys()
    assert (logged.data.params["flow"], logged.data.params["lanes"]) == (FLOW, str(config.flow(FLOW).lanes))
    [run_id] = runs_of(database, "tags.`mirrorlake.kind` = 'drill'")
    assert run_id == drill
    files = {file.name: file.read_text() for file in database.parent.glob("artifacts/*/artifacts/*")}
    assert json.loads(files["drill.json"])["verdicts"][0]["objective"] == "RPO"
    assert json.loads(files["verification.json"])["figures"]["verified"] == 50
    assert "a-&gt;b" in files["drill.html"]
    assert "<script>" not in files["verification.html"]
    for text in (repr(run(config)), *files.values()):
        assert "hunter2" not in text
        assert "east:9092" not in text, "settings are a fingerprint only"
    other = settings(root="/lakes/two")
    assert run(config).parameters["settings"] != run(other).parameters["settings"]
    assert [path.name for path in tmp_path.iterdir()] == ["runs"], "nothing is written into the working directory"


def test_an_experiment_of_databricks_is_a_path() -> None:
    assert TrackingConfig().experiment_name("databricks") == "/Shared/mirrorlake"
    assert TrackingConfig(experiment="/Users/me/m").experiment_name("databricks://prod") == "/Users/me/m"
    assert TrackingConfig().experiment_name("https://mlflow.example") == "mirrorlake"


def test_a_password_in_the_address_is_shown_nowhere() -> None:
    config = settings("{uri: 'postgresql://me:hunter3@db/mlflow'}")
    for text in (repr(config), str(config.tracking), str(plain(config))):
        assert "hunter" not in text


# -- where nothing is logged ------------------------------------------------------------------------------------------


def test_to_insist_on_runs_without_a_place_for_them_is_a_fault() -> None:
    with pytest.raises(ConfigError, match=r"tracking\.uri: the lake is not a folder"):
        settings("{enabled: true}", root="s3a://bucket/lake")


@pytest.mark.parametrize(
    ("tracking", "root", "why"),
    [
        ("{enabled: false}", "", ""),
        ("{}", "s3a://bucket/lake", ""),
        ("{}", "/Volumes/main/mirrorlake/lake", ""),
        ("{}", "", ""),
        ("{enabled: true}", "", "pip install 'mirrorlake[mlflow]'"),
        ("{uri: '${secret:no-such/mlflow}'}", "", ""),
        ("{enabled: true, uri: '${secret:no-such/mlflow}'}", "", "no-such/mlflow"),
    ],
)
def test_why_no_run_is_logged_is_said_only_to_who_insists(
    tracking: str,
    root: str,
    why: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    config = settings(tracking, root=root or str(tmp_path))
    assert log_run(config, run(config)) is None
    assert [why in line for line in lines(caplog)] == ([True] if why else [])
    assert list(tmp_path.iterdir()) == []


# -- never in the way -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("state", ["away", "silent"])
def test_a_server_that_does_not_answer_is_one_line_and_bounded(state: str, caplog: pytest.LogCaptureFixture) -> None:
    # Loading mlflow is not waiting for a server.
    __import__("mlflow")
    before = dict(os.environ)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        if state == "silent":
            server.listen(16)
        address = f"http://me:hunter2@127.0.0.1:{server.getsockname()[1]}"
        config = settings(f"{{uri: '{address}', timeout: 9s}}", {"target": "central"}, {"target": "west"})
        reports = VerifyReports([report(), report("east->west")])
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(Verifications, "_compare", lambda *_, **__: reports)
            began = time.monotonic()
            context = Context(config, spark=None, now=lambda: NOON, display=lambda: None)
            assert Verifications(context).verify(None) is reports
            took_s = time.monotonic() - began
    [line] = lines(caplog)
    assert line.startswith(f"tracking.not_logged run='verification {FLOW}' why=MlflowException"), "one of two flows"
    assert took_s < 9
    assert "hunter2" not in caplog.text
    assert dict(os.environ) == before


@pytest.mark.parametrize(("state", "why"), [("locked", "database is locked"), ("broken", "not a database")])
def test_a_file_that_cannot_be_written_is_one_line(
    state: str, why: str, database: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = settings(f"{{uri: 'sqlite:///{database}?timeout=0.2'}}")
    whole = database.read_bytes()
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        if state == "locked":
            other.execute("BEGIN EXCLUSIVE")
        else:
            database.write_bytes(b"no database" * 100)
        began = time.monotonic()
        assert log_run(config, run(config)) is None
        assert time.monotonic() - began < 10
    [line] = lines(caplog)
    assert why in line
    database.write_bytes(whole)
    assert log_run(config, run(config)), "the next one goes through"
