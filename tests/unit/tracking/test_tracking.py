"""Tracking: runs go where the settings say, hold no secret, and never stand in the way of the work."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from mirrorlake.config import plain
from mirrorlake.config.schema import MirrorConfig
from mirrorlake.config.schema.tracking import TrackingConfig
from mirrorlake.errors import ConfigError
from mirrorlake.model.verify import Difference, PartitionProof, VerifyReport
from mirrorlake.tracking import TrackedRun, Tracker, make_tracker
from mirrorlake.tracking import tracker as tracker_module
from mirrorlake.tracking.store import RunStore
from mirrorlake.tracking.tracker import default_uri
from mirrorlake.verify.tracking import Timed, verification_run
from tests.builders import NOON, mirror_config

LOGIN = {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN", "sasl.username": "me", "sasl.password": "hunter2"}


def settings(tracking: str = "{}", root: str = "/lakes/one") -> MirrorConfig:
    sections = {"lake": {"root": root}, "tracking": yaml.safe_load(tracking)}
    return mirror_config({"target": "central"}, east={"client": LOGIN}, **sections)


def run_of(name: str = "verify a->b", **given: Any) -> TrackedRun:
    known: dict[str, Any] = {
        "kind": "verification",
        "began_at": NOON,
        "ended_at": NOON + timedelta(seconds=2),
        "parameters": {"flow": "a->b", "lanes": 2},
        "figures": {"equal": 1.0, "verified": 120},
        "reports": {"verification.json": "{}\n"},
        "tags": {"mirrorlake.flow": "a->b"},
    }
    return TrackedRun(name=name, **(known | given))


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name.startswith("mirrorlake.")]


# -- settings ---------------------------------------------------------------------------------------------------------


def test_runs_go_into_the_lake_unless_a_server_is_named(tmp_path: Path) -> None:
    assert default_uri(settings()) == "sqlite:////lakes/one/mlflow/mlflow.db"
    assert default_uri(settings("{uri: https://mlflow.example}")) == "https://mlflow.example"
    for elsewhere in ("s3a://bucket/lake", "/Volumes/main/mirrorlake/lake", "/dbfs/lake"):
        assert default_uri(settings(root=elsewhere)) is None
    assert make_tracker(settings(root=str(tmp_path))).is_on
    assert not make_tracker(settings("{enabled: false}", root=str(tmp_path))).is_on
    assert not make_tracker(settings(root="s3a://bucket/lake")).is_on
    assert list(tmp_path.iterdir()) == [], "nothing is made before the first run"


def test_an_experiment_of_databricks_is_a_path() -> None:
    assert TrackingConfig().experiment_name("databricks") == "/Shared/mirrorlake"
    assert TrackingConfig(experiment="/Users/me/m").experiment_name("databricks://prod") == "/Users/me/m"
    assert TrackingConfig().experiment_name("https://mlflow.example") == "mirrorlake"


def test_to_insist_on_runs_without_a_place_for_them_is_a_fault() -> None:
    with pytest.raises(ConfigError, match=r"tracking\.uri: the lake is not a folder"):
        settings("{enabled: true}", root="s3a://bucket/lake")


def test_a_password_in_the_address_is_shown_nowhere() -> None:
    config = settings("{uri: 'postgresql://me:hunter3@db/mlflow'}")
    for text in (repr(config), str(config.tracking), str(plain(config))):
        assert "hunter" not in text


def test_what_is_lacking_is_said_only_to_who_insists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(tracker_module, "find_spec", lambda name: None if name == "mlflow" else object())
    off = make_tracker(settings(root=str(tmp_path)))
    assert (off.log(run_of()), off.failures, lines(caplog)) == (None, 0, [])
    assert not make_tracker(settings("{enabled: true}", root=str(tmp_path))).is_on
    assert [line for line in lines(caplog) if "mlflow is not installed" in line]


def test_a_reference_that_cannot_be_resolved_turns_tracking_off(caplog: pytest.LogCaptureFixture) -> None:
    tracker = make_tracker(settings("{enabled: true, uri: '${secret:no-such/mlflow}'}"))
    assert not tracker.is_on
    assert "no-such/mlflow" in lines(caplog)[0]


# -- never in the way ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("error", [ValueError("broken\nsecond line"), SystemExit(3), MemoryError()])
def test_whatever_a_store_raises_is_a_line_and_a_count(error: BaseException, caplog: pytest.LogCaptureFixture) -> None:
    def fail() -> RunStore:
        raise error

    tracker = Tracker(fail)
    tracker.warm_up()
    assert tracker.log(run_of()) is None
    assert tracker.failures == 1
    [line] = lines(caplog)
    assert type(error).__name__ in line
    assert "second line" not in line


def test_a_store_that_broke_is_opened_again() -> None:
    class Breaks:
        alive = True

        def log(self, run: TrackedRun) -> str:
            if not self.alive:
                raise OSError("the file is gone")
            return run.name

    stores: list[Breaks] = []

    def open_store() -> Breaks:
        stores.append(Breaks())
        return stores[-1]

    tracker = Tracker(open_store)
    assert tracker.log(run_of())
    stores[0].alive = False
    assert tracker.log(run_of()) is None
    assert tracker.log(run_of())
    assert (len(stores), tracker.logged, tracker.failures) == (2, 2, 1)


# -- what a verification says -----------------------------------------------------------------------------------------


def found() -> Timed:
    difference = Difference(where="target", problem="missing", topic="<script>", partition=0, offset=7)
    orders = {"topic": "orders", "generation": 1, "landed": 60, "republished": 50, "withheld": 5}
    proofs = tuple(PartitionProof(**orders, partition=p, verified=50 * p, proven_before=20 * p) for p in (0, 1))
    verification = VerifyReport(flow="east->central", equal=False, partitions=proofs, differences=(difference,))
    return Timed(found=verification, began_at=NOON, ended_at=NOON + timedelta(seconds=2))


def test_a_verification_becomes_figures_that_can_be_compared() -> None:
    config = settings()
    run = verification_run(found(), config.flow("east->central"), config)
    assert run.figures == {
        "equal": 0.0,
        "landed": 120,
        "republished": 100,
        "withheld": 10,
        "verified": 50,
        "proven_before": 20,
        "not_republished": 0,
        "not_compared": 0,
        "offset_lag": 10,
        "differences": 1,
        "differences.missing": 1,
        "differences.extra": 0,
        "differences.doubled": 0,
        "differences.altered": 0,
        "differences.out_of_order": 0,
        "differences.not_republished": 0,
        "topics": 1,
        "partitions": 2,
        "seconds": 2.0,
        "records_per_second": 25.0,
    }
    assert (run.kind, run.tags) == ("verification", {"mirrorlake.flow": "east->central"})
    assert set(run.reports) == {"verification.json", "verification.html"}


def test_a_run_holds_no_secret_and_no_markup_of_a_topic() -> None:
    config = settings()
    run = verification_run(found(), config.flow("east->central"), config)
    assert "hunter2" not in repr(run)
    assert "east:9092" not in repr(run), "settings are a fingerprint only"
    assert "<script>" not in run.reports["verification.html"]
    other = settings().model_copy(update={"lake": settings(root="/lakes/two").lake})
    again = verification_run(found(), other.flow("east->central"), other)
    assert run.parameters["settings"] != again.parameters["settings"]
