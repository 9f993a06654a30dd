"""Batches of Spark: what a slow source does to their size, and what follows a failure."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from mirrorlake.errors import ClusterUnreachable, LanderReplaced, LoginRefused
from mirrorlake.landing import query_driver
from mirrorlake.landing.query_driver import QueryDriver
from mirrorlake.landing.retry import MAX_ATTEMPTS, retry_or_raise, should_wait_for_source
from mirrorlake.landing.settings import LandSettings


def driver(most: int) -> Any:
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
    )
    return QueryDriver(context, lambda _: None)


@pytest.mark.law("F")
def test_law_f_a_query_does_not_repeat_a_batch_that_a_slow_source_could_not_fill(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own, stop, started = driver(9000), threading.Event(), list[Any]()
    # Rows and milliseconds of the batches of each query, after the first, which times out.
    reports: Iterator[list[tuple[int, int]]] = iter([[(500, 20_000), (500, 1_000)], [(2000, 60_000), (2000, 8_000)]])

    class Session:
        """Takes what a query is made of, and is the query."""

        lastProgress = sparkContext = None  # noqa: N815  PySpark's names

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

    own._context.lake.spark = Session()
    monkeypatch.setattr(query_driver, "await_query", run)
    assert own.may_resume()
    with pytest.raises(RuntimeError, match="TimeoutException"):
        own.land({}, stop, once=True)
    assert not own.may_resume(), "law F: Spark would plan the same batch again"
    assert [own.land({}, stop, once=True) for _ in range(2)] == [False, True], "it is started again, and then is done"
    assert started == [("9000", None), ("500", "262144"), ("3000", "262144")]


def test_a_lander_whose_task_gave_up_is_not_replaced_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """A lake in a folder is landed by a task, until a record comes that only Java's client can read."""

    def replaced() -> None:
        raise LanderReplaced("the task's seat has an older number")

    own = driver(10)
    own._context.log = SimpleNamespace(newest_landed_at=replaced)
    monkeypatch.setattr(own, "_land_by_query", lambda *_, **__: True)
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
