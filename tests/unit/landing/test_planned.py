"""Batches that are planned here: where each ends, and what is said of one that fails."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from datetime import datetime, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from mirrorlake.errors import LanderReplaced
from mirrorlake.landing import land_query, lander
from mirrorlake.landing.land_query import land_planned, next_batch
from mirrorlake.landing.settings import LandSettings
from mirrorlake.model.flow import TopicPartition

ORDERS = [TopicPartition("orders", number) for number in range(3)]


def test_a_batch_ends_at_the_source_s_ends_and_no_partition_takes_all_of_it() -> None:
    positions = dict.fromkeys(ORDERS, 5)
    assert next_batch(positions, dict(zip(ORDERS, (5, 6, 90), strict=True)), 20) == {ORDERS[1]: 6, ORDERS[2]: 15}
    assert next_batch(positions, dict(zip(ORDERS, (5, 4, 5), strict=True)), 20) == {}, "an end that went back"
    assert next_batch(positions, {TopicPartition("new", 0): 9}, 20) == {}, "no position, no record"


@pytest.mark.law("F")
def test_law_f_a_batch_is_written_with_where_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(land_query, "_between", lambda *given: tuple(map(dict, given[2:])))
    seen: list[Any] = []

    def write(frame: Any, batch: int, read_to: Mapping[TopicPartition, int]) -> None:
        seen.append(frame)
        assert read_to == frame[1]
        if batch == 2:
            raise OSError("the lake is away")

    with pytest.raises(OSError, match="away"):
        land_planned(
            None,  # type: ignore[arg-type]  the frame is not made
            options={},
            start=dict.fromkeys(ORDERS, 0),
            ends=lambda: dict(zip(ORDERS, (10, 0, 25), strict=True)),
            each_batch=write,
            tick=lambda: None,
            stop=threading.Event(),
            once=True,
            pace_s=0.0,
            most_records=20,
        )
    first, second = seen
    assert first == ({ORDERS[0]: 0, ORDERS[2]: 0}, {ORDERS[0]: 10, ORDERS[2]: 10})
    assert second == ({ORDERS[2]: 10}, {ORDERS[2]: 25}), "a share of its own for the one that is left"


@pytest.mark.law("F")
@pytest.mark.parametrize(("per_s", "spans"), [(10, [500, 300, 300]), (100_000, [500, 2000, 8000])])
def test_law_f_a_batch_spans_what_a_source_gives_in_half_a_minute(
    per_s: int, spans: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(land_query, "_between", lambda *given: given[1:])
    clock, taken, answers = [0.0], [], []
    monkeypatch.setattr(land_query, "time", SimpleNamespace(monotonic=lambda: clock[0]))

    def write(frame: Any, batch: int, _: Mapping[TopicPartition, int]) -> None:
        options, first, ends = frame
        taken.append(sum(ends[tp] - first[tp] for tp in ends))
        answers.append(options.get("kafka.fetch.max.bytes"))
        clock[0] += taken[-1] / per_s
        if batch == len(spans):
            raise OSError("enough was seen")

    with pytest.raises(OSError, match="enough"):
        land_planned(
            None,  # type: ignore[arg-type]  the frame is not made
            options={},
            start=dict.fromkeys(ORDERS, 0),
            ends=lambda: dict.fromkeys(ORDERS, 1_000_000),
            each_batch=write,
            tick=lambda: None,
            stop=threading.Event(),
            once=True,
            pace_s=0.0,
            most_records=8000,
        )
    assert taken == pytest.approx(spans, abs=len(ORDERS)), "law F: a batch that takes an hour is lost with a kill"
    # Java's client gives up an answer after 30 s; a source that is known to be fast is asked for large ones.
    assert answers == ["262144", "262144", None if spans[-1] == 8000 else "262144"]


def test_a_lander_whose_task_gave_up_is_not_replaced_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over Connect a lake in a folder is landed by a task, until a record comes that only Java's client can read."""

    def replaced() -> None:
        raise LanderReplaced("the task's seat has an older number")

    ticks: list[int] = []

    def plan(*_: Any, tick: Callable[[], None], **__: Any) -> None:
        tick()
        ticks.append(1)

    monkeypatch.setattr(lander, "drop_live_locations", lambda *_: None)
    monkeypatch.setattr(lander, "jobs_end", lambda *_, **__: nullcontext())
    monkeypatch.setattr(lander, "land_planned", plan)
    lake: Any = SimpleNamespace(relay_log=lambda _: None, spark=None)
    settings = LandSettings(
        alias="east", flows=[], subscribe_pattern="", kafka_options={}, reader_options={}, live=False
    )
    monkeypatch.setattr(lander, "OneWriter", lambda *_: SimpleNamespace(number=2, read_to={}))
    monkeypatch.setattr(lander, "SourceTopics", lambda *_: SimpleNamespace(known={}))
    own: Any = lander.Lander(lake, lake, settings, now=lambda: datetime.now(timezone.utc))
    own._relay = SimpleNamespace(newest_landed_at=replaced)
    own._land_planned({}, threading.Event(), once=True)
    assert ticks
