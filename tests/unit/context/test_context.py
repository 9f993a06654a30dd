from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mirrorlake import runtime
from mirrorlake.context import Context
from mirrorlake.errors import ConfigError, SandboxError, StartAbandoned
from tests.builders import NOON, mirror_config


def forget_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing say that this process has a Spark; other tests of it may have started one."""
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "HADOOP_CONF_DIR", "PYSPARK_SUBMIT_ARGS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)


def made(**top: Any) -> Context:
    config = mirror_config({"target": "central"}, **top)
    return Context(config, spark=None, now=lambda: NOON, display=lambda: None)


def test_a_session_that_is_being_started_is_waited_for_and_fails_where_it_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    begun, goes_on, calls, session = threading.Event(), threading.Event(), [], object()

    def start(**_: object) -> Any:
        calls.append(threading.current_thread().name)
        begun.set()
        assert goes_on.wait(60)
        if len(calls) > 1:
            raise SandboxError("no Java", consequence="nothing was started", remedy="install one")
        return session

    monkeypatch.setattr(runtime, "local_session", start)
    one, without_java = made(), made()
    one.start_spark()
    assert begun.wait(60)
    stop = threading.Event()
    stop.set()
    with one.stopped_by(stop), pytest.raises(StartAbandoned):
        _ = one.spark
    goes_on.set()
    assert one.spark is session
    assert calls == ["start of Spark"]
    begun.clear()
    without_java.start_spark()
    assert begun.wait(60)
    with pytest.raises(SandboxError, match="no Java"):
        _ = without_java.spark


def test_no_session_is_started_to_say_that_a_new_lake_is_empty_and_none_of_ours_creates_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark would take as long for the first table as for all the rest of its start."""
    forget_spark(monkeypatch)
    root = {"root": str(tmp_path / "lake")}
    own = made(lake=root)
    monkeypatch.setattr(runtime, "local_session", lambda **_: object())
    assert own.spark is own.spark
    monkeypatch.setattr(runtime, "local_session", lambda **_: pytest.fail("Spark was started"))
    for one in (own, made(lake=root)):
        assert len(one.lake.missing(["east"])) > 10
        assert one.lake.relay_location("east") in one.lake.create_all(["east"])
        assert one.lake.missing(["east"]) == {}
        shutil.rmtree(tmp_path / "lake")
    # By this a path may mean a file system that only Spark sees.
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    with pytest.raises(pytest.fail.Exception, match="Spark was started"):
        made(lake=root).lake.missing(["east"])


def test_clients_are_kept_while_a_secret_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kafka").mkdir()
    secret = tmp_path / "kafka" / "password"
    secret.write_text("old")
    monkeypatch.setenv("MIRRORLAKE_SECRETS_DIR", str(tmp_path))
    client = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "mirror"}
    east = {"bootstrap_servers": "127.0.0.1:1", "client": {**client, "sasl.password": "${secret:kafka/password}"}}
    context = made(east=east)
    admin, groups = context.admin("east"), context.groups("east")
    assert (context.admin("east"), context.groups("east")) == (admin, groups), "a client is kept"
    secret.unlink()
    assert (context.admin("east"), context.groups("east")) == (admin, groups), "the store does not answer just now"
    with pytest.raises(ConfigError):
        made(east=east).admin("east")
