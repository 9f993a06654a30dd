"""What is said of a cluster's workers before anything begins there, and of tasks that got no slot."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

import mirrorlake
from mirrorlake.errors import SafetyError, StoreError
from mirrorlake.runtime import TaskResult, require_usable_workers, send_heartbeats, workers
from mirrorlake.runtime.task_heartbeats import HeartbeatMonitor, TaskHeartbeats


class Cluster:
    """A session of a cluster as far as it is asked here."""

    def __init__(self, **settings: str) -> None:
        self._settings = {"spark.master": "spark://m:7077", **{k.replace("_", "."): v for k, v in settings.items()}}
        self.conf = self
        self.interrupts = 0

    def get(self, key: str, default: str = "") -> str:
        return self._settings.get(key, default)

    def set(self, key: str, value: str) -> None:
        self._settings[key] = value

    def newSession(self) -> Cluster:  # noqa: N802  as Spark's
        return self

    def interruptAll(self) -> None:  # noqa: N802  likewise
        self.interrupts += 1


def run_elsewhere(monkeypatch: pytest.MonkeyPatch, place: Path) -> None:
    """Run tasks as workers do that have another folder under the same path."""

    def run(_: Any, work: Sequence[int], each: Callable[[int], Iterator[TaskResult]]) -> list[TaskResult]:
        monkeypatch.chdir(place)
        return [answer for item in work for answer in each(item)]

    monkeypatch.setattr(workers, "run_tasks", run)
    monkeypatch.setattr(workers, "_SPREAD_S", 0)


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "here" / "lake").mkdir(parents=True)
    (tmp_path / "there" / "lake").mkdir(parents=True)
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


def test_workers_that_see_the_lake_are_fit_and_one_with_another_folder_under_its_path_is_refused(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_elsewhere(monkeypatch, here / "here")
    require_usable_workers(Cluster(), ["lake"])  # type: ignore[arg-type]
    assert not list((here / "here" / "lake").iterdir()), "nothing stays"
    run_elsewhere(monkeypatch, here / "there")
    with pytest.raises(SafetyError, match="does not see") as refused:
        require_usable_workers(Cluster(), ["lake"])  # type: ignore[arg-type]
    assert "nothing was started" in refused.value.consequence


def test_a_worker_with_another_release_is_refused(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run_elsewhere(monkeypatch, here / "here")
    monkeypatch.setattr(
        workers, "_require_usable", lambda host, _, unseen, judge=workers._require_usable: judge(host, "0.0.1", unseen)
    )
    with pytest.raises(StoreError, match=rf"mirrorlake 0.0.1, but this process {mirrorlake.__version__}"):
        require_usable_workers(Cluster(), ["lake"])  # type: ignore[arg-type]


def test_a_worker_without_the_package_is_told_so(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def run(*_: Any) -> list[TaskResult]:
        raise RuntimeError(
            "Traceback (most recent call last):\n  File 'a'\nModuleNotFoundError: No module named 'pyarrow'"
        )

    monkeypatch.setattr(workers, "run_tasks", run)
    with pytest.raises(StoreError, match="No module named 'pyarrow'") as refused:
        require_usable_workers(Cluster(), ["lake"])  # type: ignore[arg-type]
    assert "docs/clusters.md" in refused.value.remedy


def test_a_look_that_gets_no_slot_in_time_is_interrupted(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spark, waits = Cluster(), threading.Event()
    monkeypatch.setattr(workers, "run_tasks", lambda *_: waits.wait(30) and [])
    monkeypatch.setenv("MIRRORLAKE_TIMING", "slot_timeout_s=0.2")
    with pytest.raises(StoreError, match="no task began"):
        require_usable_workers(spark, ["lake"])  # type: ignore[arg-type]
    assert spark.interrupts == 1
    waits.set()


def test_tasks_that_spark_may_run_twice_at_once_are_refused() -> None:
    with pytest.raises(SafetyError, match=r"spark\.speculation") as refused:
        require_usable_workers(Cluster(spark_speculation="true"), [])  # type: ignore[arg-type]
    assert refused.value.exit_code == 3


def test_nothing_is_asked_of_a_local_session(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(workers, "run_tasks", lambda *_: pytest.fail("a job was run"))
    require_usable_workers(Cluster(spark_master="local[4]", spark_speculation="true"), ["lake"])  # type: ignore[arg-type]


def test_a_task_that_falls_silent_is_heard_of_whatever_its_clock_says(tmp_path: Path) -> None:
    now = [0.0]
    beats = TaskHeartbeats(str(tmp_path / "beats"), f"{7:020}-a")
    beats.create()
    heard = HeartbeatMonitor(beats.read, 2, timeout_s=60, clock=lambda: now[0])

    def after(seconds: float, *spoke: int) -> list[int]:
        for task in spoke:
            beats.write(task, f"{now[0]}")
        now[0] += seconds
        return heard.silent_tasks()

    assert after(30, 0, 1) == []
    assert after(50, 0) == [], "task 1 spoke 50 s ago"
    assert after(30, 0) == [1]
    assert after(20, 0, 1) == [], "it got its slot"


def test_a_store_that_is_away_for_the_driver_is_no_silence_of_its_tasks() -> None:
    now, away = [0.0], [False]

    def read(_: int) -> str:
        if away[0]:
            raise OSError("503 Slow Down")
        return "a"

    heard = HeartbeatMonitor(read, 1, timeout_s=60, clock=lambda: now[0])
    assert heard.silent_tasks() == []
    now[0], away[0] = 50.0, True
    assert heard.silent_tasks() == []
    now[0], away[0] = 100.0, False
    assert heard.silent_tasks() == [], "nobody could hear it"
    now[0] = 120.0
    assert heard.silent_tasks() == [0]


def test_a_sign_of_life_comes_at_once_and_the_next_owner_removes_it(tmp_path: Path) -> None:
    first, second = (TaskHeartbeats(str(tmp_path / "beats"), f"{number:020}-x") for number in (1, 2))
    first.create()
    with send_heartbeats(lambda text: first.write(0, text)):
        pass
    assert first.read(0)
    second.create()
    assert (first.read(0), first.are_visible(), second.are_visible()) == ("", False, True)
