"""Whether Spark answers, asked without waiting for one that does not."""

from __future__ import annotations

import sys
import threading
from contextlib import suppress
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar, cast

import grpc
import pytest
from pyspark import SparkContext
from pyspark.errors import RetriesExceeded
from pyspark.sql.connect.client.retries import DefaultPolicy, Retrying

from mirrorlake.runtime import connect_retries, host, session
from mirrorlake.runtime.connect_retries import ConnectRetryPolicy


class Answering:
    conf: ClassVar = {"spark.sql.session.timeZone": "UTC"}


class Ended:
    conf = property(lambda _: 1 / 0)


class Silent:
    """A client of Spark Connect whose server is away tries again for minutes."""

    def __init__(self) -> None:
        self.is_over = threading.Event()

    @property
    def conf(self) -> dict[str, str]:
        self.is_over.wait()
        return Answering.conf


def test_a_session_whose_server_is_silent_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not session.is_gone(cast("Any", Answering()))
    assert session.is_gone(cast("Any", Ended()))
    monkeypatch.setattr(session, "_ANSWER_TIMEOUT_S", 0.01)
    silent = Silent()
    assert session.is_gone(cast("Any", silent))
    silent.is_over.set()


@pytest.mark.parametrize(("started", "ended"), [(None, False), ("runs", False), ("killed", True)])
def test_a_jvm_that_was_killed_over_its_start_has_ended(
    started: str | None, ended: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    process = SimpleNamespace(poll=lambda: -9 if started == "killed" else None)
    monkeypatch.setattr(SparkContext, "_gateway", None if started is None else SimpleNamespace(proc=process))
    assert host.is_host_gone() == ended


def test_a_process_that_is_importing_pyspark_has_lost_no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    # `republish` ended with an AttributeError where a look fell into the import of another thread (2026-11-24, loaded machine).
    monkeypatch.setitem(sys.modules, "pyspark", ModuleType("pyspark"))
    assert not host.is_host_gone()


class Away(grpc.RpcError):  # type: ignore[misc]
    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.UNAVAILABLE


def test_a_request_to_a_server_that_was_given_up_is_not_tried_again() -> None:
    """A process would wait at its end for those that are under way, ten minutes for each."""
    policy, tries = DefaultPolicy(), list[int]()
    client = SimpleNamespace(get_retry_policies=lambda: [policy])
    connected = type("SparkSession", (), {"__module__": "pyspark.sql.connect.session", "client": client})()

    def ask() -> None:
        for attempt in Retrying(policy, sleep=lambda _: None):
            with attempt:
                tries.append(1)
                if len(tries) == 3:
                    session.stop_retrying(cast("Any", connected))
                raise Away

    with pytest.raises(RetriesExceeded):
        ask()
    assert len(tries) == 3


def test_a_server_that_stays_away_is_waited_for_once_and_not_by_each_request(monkeypatch: pytest.MonkeyPatch) -> None:
    now, policy = [100.0], ConnectRetryPolicy()
    monkeypatch.setattr(connect_retries, "time", SimpleNamespace(monotonic=lambda: now[0]))

    def sleep(seconds: float) -> None:
        now[0] += seconds

    def waited_s(answers_after: int) -> float:
        """Ask until the server answers, or the client gives up."""
        began, tries = now[0], 0
        with suppress(RetriesExceeded):
            for attempt in Retrying(policy, sleep=sleep):
                with attempt:
                    tries += 1
                    if tries <= answers_after:
                        raise Away
        return now[0] - began

    assert 0 < waited_s(3) < 2, "a blink is sat out"
    assert 10 < waited_s(99) < 20
    assert waited_s(99) == 0, "what cleans up after it does not wait as long again"
    now[0] += 9
    assert waited_s(99) == 0, "it was away a moment ago"
    now[0] += 60
    assert 0 < waited_s(3) < 2, "the next time is another"
