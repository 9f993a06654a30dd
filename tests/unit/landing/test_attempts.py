"""Two attempts of one task on one relay: Spark started it again while the executor that it held for dead lived on; no broker."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from mirrorlake.errors import LanderReplaced
from mirrorlake.kafka import Fetched, FetchedRows
from mirrorlake.lake import LandingLog, RelayClaim
from mirrorlake.landing import live_task
from mirrorlake.model.flow import SourcePartition, TopicPartition
from mirrorlake.runtime import TaskResult
from tests.lakes import SCHEMA, batch, rows
from tests.unit.lake.test_landing_log import Relay

SOURCE, TP = SourcePartition("orders", 1, 0), TopicPartition("orders", 0)


@pytest.fixture
def relay(tmp_path: Path) -> Relay:
    return Relay(tmp_path / "relay")


def attempt(relay: Relay, seat: RelayClaim, monkeypatch: pytest.MonkeyPatch, *, happens: Any) -> list[TaskResult]:
    """Land offset 0 in one turn, before which something happens."""

    class Source:
        def __init__(self, *_: Any) -> None:
            pass

        def __enter__(self) -> Source:
            return self

        def __exit__(self, *_: object) -> None:
            pass

        def fetch(self, *_: Any, **__: Any) -> Fetched:
            happens()
            return Fetched(FetchedRows.from_tables({TP: pa.Table.from_batches([batch(rows("orders", 0, 0))])}), {TP: 1})

    monkeypatch.setattr(live_task, "Fetcher", Source)
    monkeypatch.setattr(live_task, "ClusterAdmin", Source)
    monkeypatch.setattr(live_task, "_find_change", lambda *_: "")
    run_marker: Any = SimpleNamespace(exists=lambda: True)
    task = live_task.LandTaskSpec(
        relay_claim=seat,
        schema=SCHEMA,
        options={},
        start={SOURCE: 0},
        topic_ids={},
        leader_epochs={},
        ends={TP: 1},
        pace_s=0.0,
        run_marker=run_marker,
    )
    return list(live_task.run_landing_task(task))


@pytest.mark.law("F")
def test_law_f_of_two_attempts_of_a_task_one_lands_and_the_other_starts_over(
    relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    seat = relay.claim(1)
    first = LandingLog(seat)
    [answer] = attempt(relay, seat, monkeypatch, happens=lambda: relay.land(first, 1, 0))
    assert (answer.kind, relay.offsets) == (live_task.CHANGED, [0])


@pytest.mark.law("F")
def test_law_f_another_lander_is_no_attempt_of_the_same_task(relay: Relay, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(LanderReplaced):
        attempt(relay, relay.claim(1), monkeypatch, happens=lambda: relay.sign(2, "heir"))
    assert relay.offsets == []
