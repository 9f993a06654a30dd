"""Progress of real work: what is reported is what was done, and only the caller's thread draws it."""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from mirrorlake.config.schema.tracking import TrackingConfig
from mirrorlake.context import Context
from mirrorlake.lake.schema import AUDIT
from mirrorlake.mirror import Mirror
from mirrorlake.progress.board import Board
from mirrorlake.tracking.store import RunStore
from mirrorlake.tracking.tracker import default_uri
from tests.kit.records import count
from tests.servers.lakes import Pair

RECORDS = 120


class Memory:
    """A display that remembers which threads it was drawn by."""

    def __init__(self) -> None:
        self.threads: set[int] = set()

    def show(self, *_: object) -> None:
        self.threads.add(threading.get_ident())

    def close(self, *_: object) -> None:
        self.threads.add(threading.get_ident())


class Hearing(Board):
    """A board that remembers every report."""

    def __init__(self) -> None:
        self.memory = Memory()
        self.reports: dict[str, list[tuple[int, int | None]]] = {}
        super().__init__(self.memory, clock=time.monotonic)

    def tell(self, phase: str, done: int, total: int | None, unit: str = "records") -> None:
        self.reports.setdefault(phase, []).append((done, total))
        super().tell(phase, done, total, unit)


def test_what_a_drain_and_a_verify_report_is_what_they_did(
    pair: Pair, spark: SparkSession, database: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pair.create(RECORDS)
    boards: list[Hearing] = []

    def board(_: Context) -> Hearing:
        boards.append(Hearing())
        return boards[-1]

    monkeypatch.setattr(Context, "board", board)
    # Small batches that are told of at once, as a long drain has them.
    monkeypatch.setenv("MIRRORLAKE_TIMING", "account_interval_s=0")
    made = pair.mirror(east={"land": {"max_records_per_batch": 40, "execution": "streaming"}})
    tracking = TrackingConfig(uri=f"sqlite:///{database}")
    mirror = Mirror(made.config.model_copy(update={"tracking": tracking}), spark=spark)
    mirror.run(once=True)
    arrived = count(pair.central, pair.remote)
    landed, sent = boards[-1].reports["land east"], boards[-1].reports["republish east->central"]
    assert landed[-1] == (mirror.lake.relay("east").count(), RECORDS)
    assert sent[-1] == (arrived, RECORDS)
    for reports in (landed, sent):
        assert [done for done, _ in reports] == sorted(done for done, _ in reports)
        assert any(0 < done < RECORDS and total == RECORDS for done, total in reports), (
            "on the way, the end is known from what the step knows"
        )
    assert boards[-1].memory.threads == {threading.get_ident()}

    pair.produce(10, seed=2)
    landing = mirror.land("east", once=True)
    assert boards[-1].reports["land east"][-1] == (landing.records, 10)
    mirror.republish("east->central", once=True)
    assert boards[-1].reports["republish east->central"][-1] == (10, 10)
    assert mirror["east->central"].verify().equal
    everything = RECORDS + 10
    for hop in ("verify: source and relay", "verify: relay and target"):
        compared = boards[-1].reports[hop]
        assert (compared[0], compared[-1]) == ((0, everything), (everything, everything)), "what the verdict counts"
        assert compared == sorted(compared)
    assert all(board.memory.threads == {threading.get_ident()} for board in boards)

    # What a verification found is a run, and the audit names it; where that fails, the verification says the same.
    from mlflow import MlflowClient

    store = MlflowClient(tracking_uri=default_uri(mirror.config))
    [run] = store.search_runs([one.experiment_id for one in store.search_experiments()])
    figures = run.data.metrics
    assert (figures["equal"], figures["verified"], figures["offset_lag"]) == (1, everything, 0)
    rows = mirror.lake.meta(AUDIT).where("command = 'verify'").collect()
    assert [(row.object, json.loads(row.after)["run_id"]) for row in rows] == [
        ("verification east->central", run.info.run_id)
    ]
    monkeypatch.setattr(RunStore, "log", lambda *_: 1 / 0)
    assert mirror["east->central"].verify().equal
    assert (mirror.tracking.logged, mirror.tracking.failures) == (1, 1)
