"""Batches of Spark: where one ends that is planned here, what a slow source does to their size, and what follows a failure."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mirrorlake.errors import ClusterUnreachable, LanderReplaced, LoginRefused
from mirrorlake.lake import ReadProgress
from mirrorlake.landing import query_driver
from mirrorlake.landing.query_driver import QueryDriver, plan_batch
from mirrorlake.landing.retry import MAX_ATTEMPTS, retry_or_raise, should_wait_for_source
from mirrorlake.landing.settings import LandSettings
from mirrorlake.model.flow import SourcePartition, TopicPartition

ORDERS = [TopicPartition("orders", number) for number in range(3)]
SOURCES = {tp: SourcePartition(tp.topic, 1, tp.partition) for tp in ORDERS}


def driver(most: int, tick: Callable[..., None] = lambda *_: None) -> Any:
    settings = LandSettings(
        alias="east",
        flows=[],
        subscribe_pattern="",
        kafka_options={},
        reader_options={},
        max_records_per_batch=most,
    )
    context: Any = SimpleNamespace(
        settings=settings,
        lake=SimpleNamespace(spark=None),
        checkpoint_path="/land/east/1",
        key_by_source=lambda offsets: {SOURCES[tp]: offset for tp, offset in offsets.items()},
        progress=lambda _: ReadProgress({}),
    )
    return QueryDriver(context, tick)


def test_a_batch_ends_at_the_source_s_ends_and_no_partition_takes_all_of_it() -> None:
    positions = dict.fromkeys(ORDERS, 5)
    assert plan_batch(positions, dict(zip(ORDERS, (5, 6, 90), strict=True)), 20) == {ORDERS[1]: 6, ORDERS[2]: 15}
    assert plan_batch(positions, dict(zip(ORDERS, (5, 4, 5), strict=True)), 20) == {}, "an end that went back"
    assert plan_batch(positions, {TopicPartition("new", 0): 9}, 20) == {}, "no position, no record"


class Planned:
    """What a driver plans from the start of three partitions, up to these ends; no session."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, most: int, *ends: int) -> None:
        self.taken: list[tuple[dict[TopicPartition, int], dict[TopicPartition, int]]] = []
        self.read_to: list[Mapping[SourcePartition, int]] = []
        self.answers: list[str | None] = []
        self.driver = driver(most)
        monkeypatch.setattr(query_driver, "read_between", lambda *given: given[1:])
        monkeypatch.setattr(query_driver, "is_connect", lambda _: True)
        monkeypatch.setattr(query_driver, "drop_live_locations", lambda *_: None)
        monkeypatch.setattr(query_driver, "interrupt_jobs_on_stop", lambda *_, **__: nullcontext())
        monkeypatch.setattr(self.driver, "_ends", lambda _: dict(zip(ORDERS, ends, strict=True)))
        monkeypatch.setattr(self.driver, "_land_batch", self._write)

    def land(self, write: Callable[[int], None]) -> None:
        self._each = write
        self.driver.land(dict.fromkeys(ORDERS, 0), threading.Event(), once=True)

    def _write(self, frame: Any, batch: int, progress: ReadProgress) -> None:
        options, first, planned = frame
        self.taken.append((dict(first), dict(planned)))
        self.answers.append(options.get("kafka.fetch.max.bytes"))
        self.read_to.append(progress.take()[0])
        self._each(batch)


@pytest.mark.law("F")
def test_law_f_a_batch_is_written_with_where_it_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(batch: int) -> None:
        if batch == 2:
            raise OSError("the lake is away")

    planned = Planned(monkeypatch, 20, 10, 0, 25)
    with pytest.raises(OSError, match="away"):
        planned.land(fail)
    first, second = planned.taken
    assert first == ({ORDERS[0]: 0, ORDERS[2]: 0}, {ORDERS[0]: 10, ORDERS[2]: 10})
    assert second == ({ORDERS[2]: 10}, {ORDERS[2]: 25}), "a share of its own for the one that is left"
    assert planned.read_to[0] == {SOURCES[ORDERS[0]]: 10, SOURCES[ORDERS[2]]: 10}
    assert planned.read_to[1][SOURCES[ORDERS[2]]] == 25


@pytest.mark.law("F")
@pytest.mark.parametrize(("per_s", "spans"), [(10, [500, 300, 300]), (100_000, [500, 2000, 8000])])
def test_law_f_a_batch_spans_what_a_source_gives_in_half_a_minute(
    per_s: int, spans: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, taken = [0.0], list[int]()
    monkeypatch.setattr(query_driver, "time", SimpleNamespace(monotonic=lambda: clock[0]))
    planned = Planned(monkeypatch, 8000, *[1_000_000] * 3)

    def write(batch: int) -> None:
        first, ends = planned.taken[-1]
        taken.append(sum(ends[tp] - first[tp] for tp in ends))
        clock[0] += taken[-1] / per_s
        if batch == len(spans):
            raise OSError("enough was seen")

    with pytest.raises(OSError, match="enough"):
        planned.land(write)
    assert taken == pytest.approx(spans, abs=len(ORDERS)), "law F: a batch that takes an hour is lost with a kill"
    # Java's client gives up an answer after 30 s; a source that is known to be fast is asked for large ones.
    assert planned.answers == ["262144", "262144", None if spans[-1] == 8000 else "262144"]


@pytest.mark.law("F")
def test_law_f_a_query_does_not_repeat_a_batch_that_a_slow_source_could_not_fill(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own, stop, started = driver(9000), threading.Event(), list[Any]()
    # Rows and milliseconds of the batches of each query, after the first, which times out.
    reports: Iterator[list[tuple[int, int]]] = iter([[(500, 20_000), (500, 1_000)], [(2000, 60_000), (2000, 8_000)]])

    class Session:
        """Takes what a query is made of, and is the query."""

        lastProgress = None  # noqa: N815  PySpark's name

        def options(self, **options: str) -> Session:
            started.append((options["maxOffsetsPerTrigger"], options.get("kafka.fetch.max.bytes")))
            return Session()

        def __getattr__(self, name: str) -> Any:
            return self if name in ("readStream", "writeStream") else lambda *_, **__: self

    def run(query: Any, ended: threading.Event, *, tick: Callable[[], None]) -> None:
        if len(started) == 1:
            raise RuntimeError("org.apache.kafka.common.errors.TimeoutException: no answer within 120 s")
        for rows, took_ms in next(reports):
            query.lastProgress = {"numInputRows": rows, "durationMs": {"triggerExecution": took_ms}}
            tick()

    monkeypatch.setattr(query_driver, "is_connect", lambda _: False)
    own._context.lake.spark = Session()
    monkeypatch.setattr(query_driver, "await_query", run)
    assert own.may_resume()
    with pytest.raises(RuntimeError, match="TimeoutException"):
        own.land({}, stop, once=True)
    assert not own.may_resume(), "law F: Spark would plan the same batch again"
    assert [own.land({}, stop, once=True) for _ in range(2)] == [False, True], "it is started again, and then is done"
    assert started == [("9000", None), ("500", "262144"), ("3000", "262144")]


def test_a_lander_whose_task_gave_up_is_not_replaced_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """Over Connect a lake in a folder is landed by a task, until a record comes that only Java's client can read."""

    def replaced() -> None:
        raise LanderReplaced("the task's seat has an older number")

    own = driver(10)
    own._context.log = SimpleNamespace(newest_landed_at=replaced)
    monkeypatch.setattr(query_driver, "is_connect", lambda _: True)
    monkeypatch.setattr(own, "_land_planned", lambda *_, **__: None)
    assert own.land({}, threading.Event(), once=True)
    assert own._context.log is None, "it is followed as if it were landing still"


KAFKA = "org.apache.kafka.common.errors"
LOGIN = f"x\nCaused by: {KAFKA}.SaslAuthenticationException: Authentication failed: Invalid username or password"
TLS = f"x\nCaused by: {KAFKA}.SslAuthenticationException: SSL handshake failed\nCaused by: javax.net.ssl.SSLHandshakeException: no"


class Source:
    alias = "east"


def wait(text: str, attempts: int) -> None:
    stopped = threading.Event()
    stopped.set()
    retry_or_raise(cast("Any", Source()), Exception(text), None, attempts, once=False, stop=stopped)


def test_a_refused_login_is_left_to_the_next_lander_which_resolves_the_secret_again() -> None:
    with pytest.raises(
        LoginRefused, match=r"cluster east: SASL fails while Java's client, inside Spark, reads it"
    ) as said:
        wait(LOGIN, 1)
    assert said.value.exit_code == 4
    assert "sasl.* settings under clusters.east.client" in said.value.remedy


def test_tls_that_fails_is_an_outage_at_first() -> None:
    wait(TLS, 1)
    with pytest.raises(
        ClusterUnreachable, match=r"TLS fails while Java's client, inside Spark, reads it: SSLHandshake"
    ):
        wait(TLS, MAX_ATTEMPTS + 1)


def test_a_start_waits_for_a_source_that_was_there_and_not_for_one_that_refuses_the_login() -> None:
    away = ClusterUnreachable("east does not answer")
    assert should_wait_for_source(away, 1, once=False)
    assert not should_wait_for_source(away, 0, once=False), "it never was there"
    assert not should_wait_for_source(away, 1, once=True)
    assert not should_wait_for_source(away, MAX_ATTEMPTS + 1, once=False)
    assert not should_wait_for_source(LoginRefused("east: SASL fails"), 1, once=False), "with the same secret"
