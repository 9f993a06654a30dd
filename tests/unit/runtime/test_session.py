"""Whether Spark answers, asked without waiting for one that does not, and which sessions streams run in."""

from __future__ import annotations

import sys
import threading
from types import ModuleType, SimpleNamespace
from typing import Any, ClassVar, cast

import pytest
from pyspark import SparkContext

from mirrorlake.errors import UsageError
from mirrorlake.runtime import host, session


class Answering:
    conf: ClassVar = {"spark.sql.session.timeZone": "UTC"}


class Ended:
    conf = property(lambda _: 1 / 0)


class Silent:
    """A JVM that is stuck answers nothing."""

    def __init__(self) -> None:
        self.is_over = threading.Event()

    @property
    def conf(self) -> dict[str, str]:
        self.is_over.wait()
        return Answering.conf


def test_a_session_whose_jvm_is_silent_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
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


class Connected:
    """A client of Spark Connect."""


Connected.__module__ = "pyspark.sql.connect.session"


def test_a_session_of_connect_runs_no_stream_and_a_classic_one_does_whatever_the_environment_says(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    session.require_classic_session(None)
    for given in (Connected(), None):
        with pytest.raises(UsageError, match="streams need a classic Spark session"):
            session.require_classic_session(cast("Any", given))
        monkeypatch.setenv("SPARK_CONNECT_MODE_ENABLED", "1")
    session.require_classic_session(cast("Any", Answering()))
