"""Up to when the relay holds all that a source had acknowledged: looks at its ends, against what was landed since."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from mirrorlake.kafka import SourceSilent, WatermarkReader
from mirrorlake.lake import LandedMark
from mirrorlake.landing import watermarks
from mirrorlake.landing.watermarks import CompleteTimes, WatermarkWatch
from mirrorlake.model.flow import SourcePartition, TopicPartition
from tests.builders import NOON

AWAY = -1


def at(seconds: float) -> datetime:
    return NOON + timedelta(seconds=seconds)


def column(*values: int) -> np.ndarray[tuple[int, ...], np.dtype[np.int64]]:
    return np.array(values, np.int64)


class Source:
    """Two partitions that were landed up to 10 and 20 when the task began, under leaders of epoch 5."""

    def __init__(self) -> None:
        self.times = CompleteTimes(column(10, 20), column(5, 5))

    def look(self, second: float, *ends: int, epochs: tuple[int, int] = (5, 5)) -> bool:
        return self.times.add(at(second), self.times.landed.copy(), column(*ends), column(*epochs))

    def land(self, *positions: int) -> None:
        self.times.landed[:] = positions


@pytest.mark.law("E")
def test_law_e_a_look_counts_once_all_that_it_showed_is_landed() -> None:
    source = Source()
    assert source.times.find() == (None, {})
    source.look(1, 10, 20)
    assert source.times.find() == (at(1), {})
    source.look(2, 13, 20)
    source.look(3, 15, 20)
    assert source.times.find() == (at(3), {0: at(1)})
    source.land(14, 20)
    assert source.times.find() == (at(3), {0: at(2)}), "what the second look showed is landed, not the third's"
    source.land(15, 20)
    assert source.times.find() == (at(3), {})


@pytest.mark.law("E")
def test_law_e_a_partition_whose_leader_is_away_or_was_elected_stays_old() -> None:
    source = Source()
    source.look(1, 10, 20)
    assert not source.look(2, 10, AWAY)
    assert source.times.find() == (at(2), {1: at(1)})
    assert source.look(3, 10, 20, epochs=(5, 6)), "another leader may have cut the log"
    assert source.times.find() == (at(3), {1: at(1)})
    source.look(4, 10, 20, epochs=(5, -1))
    assert source.times.find() == (at(4), {}), "a broker that tells no epochs"


@pytest.mark.law("E")
def test_law_e_a_log_that_ends_before_what_was_landed_shows_nothing() -> None:
    source = Source()
    source.look(1, 10, 3)
    assert source.times.find() == (at(1), {1: None}), "cut, or another topic of the name"


class Reader:
    """A reader of watermarks that answers as it is told."""

    def __init__(self) -> None:
        self.answer: tuple[Any, Any] | None = None

    def read(self) -> tuple[Any, Any]:
        if self.answer is None:
            raise SourceSilent
        return self.answer


def land_task(marks: Path, **others: Any) -> Any:
    return SimpleNamespace(
        relay_claim=SimpleNamespace(alias="east", number=3, group=0),
        options={"bootstrap.servers": "127.0.0.1:9", "group.id": "none", "log_level": "0"},
        start={SourcePartition("orders", 1, 0): 10},
        leader_epochs={TopicPartition("orders", 0): 5},
        landed=(2, 9),
        groups=1,
        marks=str(marks),
        **others,
    )


@pytest.mark.law("E")
def test_law_e_a_turn_that_meets_a_silent_source_first_leaves_a_mark_that_says_so(tmp_path: Path) -> None:
    # Its watch has looked at nothing yet.
    with pytest.raises(ConnectionError), WatermarkWatch(land_task(tmp_path, leaderless=frozenset())):
        raise ConnectionError
    [path] = tmp_path.iterdir()
    assert LandedMark.from_json(path.read_text()).silent_at is not None


@pytest.mark.law("E")
def test_law_e_a_mark_says_when_the_source_fell_silent_and_what_nobody_led(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clicks, reader, clock = TopicPartition("clicks", 0), Reader(), [100.0]
    task = land_task(tmp_path, leaderless=frozenset({clicks}))
    monkeypatch.setattr(watermarks.time, "monotonic", lambda: clock[0])
    watch, marks = WatermarkWatch(task), watermarks._MarkWriter(task)

    def mark() -> LandedMark:
        watch._read_ends(cast("WatermarkReader", reader))
        marks.write(watch._mark())
        [path] = tmp_path.iterdir()
        return LandedMark.from_json(path.read_text())

    reader.answer = column(12), column(5)
    assert mark().complete_at is None
    watch.landed((3, 1), {TopicPartition("orders", 0): 12})
    whole = mark()
    assert (whole.landed, whole.complete_at, whole.silent_at) == ((3, 1), whole.answered_at, None)
    assert whole.behind == {clicks: None}, "nobody reads it"
    reader.answer = None
    silent = mark()
    assert silent.silent_at is not None
    assert replace(silent, silent_at=None) == whole
    assert mark() == silent, "the first time counts"
    reader.answer = column(12), column(6)
    assert mark().silent_at is None
    assert not watch.has_other_leaders, "elections come in series"
    clock[0] += 11
    assert watch.has_other_leaders


def test_a_clock_that_is_set_back_makes_no_claim_newer() -> None:
    source = Source()
    source.look(100, 10, 20)
    source.look(5, 10, 21)
    assert source.times.find() == (at(5), {1: at(100)})
    source.look(6, 10, 21)
    source.land(10, 21)
    assert source.times.find() == (at(6), {})


def test_a_long_backlog_keeps_few_looks() -> None:
    source = Source()
    for second in range(1, 2000):
        source.look(second, 10 + second, 20)
    assert len(source.times._waiting) <= 64
    source.land(10 + 1000, 20)
    newest, behind = source.times.find()
    assert newest == at(1999)
    assert behind[0] is None or at(0) < behind[0] <= at(1000), "an old look is told less exactly, never too new"
