from __future__ import annotations

import shutil
import threading
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from mirrorlake import runtime
from mirrorlake.context import Context
from mirrorlake.errors import ConfigError, SandboxError
from mirrorlake.lake import Lake
from tests.builders import NOON, mirror_config


def forget_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let nothing say that this process has a Spark; other tests of it may have started one."""
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "HADOOP_CONF_DIR", "PYSPARK_SUBMIT_ARGS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(SparkSession, "getActiveSession", lambda: None)


def made(**top: Any) -> Context:
    config = mirror_config({"target": "central"}, **top)
    return Context(config, spark=None, now=lambda: NOON, display=lambda: None)


def test_a_session_that_is_being_started_is_waited_for_and_started_once(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, goes_on, calls, session = threading.Event(), threading.Event(), [], object()

    def start(**_: object) -> Any:
        calls.append(threading.current_thread().name)
        begun.set()
        assert goes_on.wait(60)
        return session

    monkeypatch.setattr(runtime, "local_session", start)
    one = made()
    one.start_spark()
    assert begun.wait(60)
    goes_on.set()
    assert one.spark is session
    assert calls == ["start of Spark"]


def test_a_start_that_fails_in_the_background_fails_where_the_session_is_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tried = threading.Event()

    def start(**_: object) -> Any:
        tried.set()
        raise SandboxError("no Java", consequence="nothing was started", remedy="install one")

    monkeypatch.setattr(runtime, "local_session", start)
    one = made()
    one.start_spark()
    assert tried.wait(60)
    with pytest.raises(SandboxError, match="no Java"):
        _ = one.spark


def test_no_session_is_started_to_say_that_a_new_lake_is_empty(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "local_session", lambda **_: pytest.fail("Spark was started"))
    forget_spark(monkeypatch)

    def lake() -> Lake:
        return made(lake={"root": str(tmp_path / "lake")}).lake

    assert len(lake().missing(["east"])) > 10
    new = lake()
    assert new.relay_location("east") in new.create_all(["east"])
    assert new.missing(["east"]) == {}
    # By this a path may mean a file system that only Spark sees.
    shutil.rmtree(tmp_path / "lake")
    monkeypatch.setenv("HADOOP_CONF_DIR", "/etc/hadoop")
    with pytest.raises(pytest.fail.Exception, match="Spark was started"):
        lake().missing(["east"])


def test_a_session_that_a_mirror_started_by_itself_creates_no_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark would take as long for the first table as for all the rest of its start."""
    forget_spark(monkeypatch)
    monkeypatch.setattr(runtime, "local_session", lambda **_: object())
    one = made(lake={"root": str(tmp_path / "lake")})
    assert one.spark is one.spark
    assert one.lake.relay_location("east") in one.lake.create_all(["east"])
    assert one.lake.missing(["east"]) == {}


def test_a_rotated_secret_is_in_force_with_the_next_client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "kafka").mkdir()
    secret = tmp_path / "kafka" / "password"
    secret.write_text("old")
    monkeypatch.setenv("MIRRORLAKE_SECRETS_DIR", str(tmp_path))
    client = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.username": "mirror"}
    east = {"bootstrap_servers": "127.0.0.1:1", "client": {**client, "sasl.password": "${secret:kafka/password}"}}
    context = made(east=east)
    admin, groups = context.admin("east"), context.groups("east")
    assert (context.admin("east"), context.groups("east")) == (admin, groups), "a client is kept"
    secret.write_text("new")
    assert context.admin("east") is not admin
    assert context.groups("east") is not groups
    assert context.groups("east").options["sasl.password"] == "new"
    admin, groups = context.admin("east"), context.groups("east")
    secret.unlink()
    assert (context.admin("east"), context.groups("east")) == (admin, groups), "the store does not answer just now"
    with pytest.raises(ConfigError):
        made(east=east).admin("east")
