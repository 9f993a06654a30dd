from __future__ import annotations

import threading
from typing import Any

import pytest

from mirrorlake import runtime
from mirrorlake.errors import SandboxError
from mirrorlake.mirror.services.connections import Connections
from tests.builders import NOON, mirror_config


def made() -> Connections:
    config = mirror_config({"source": "east", "target": "central", "topics": "orders"})
    return Connections(config, spark=None, now=lambda: NOON, display=lambda: None)


def test_a_session_that_is_being_started_is_waited_for_and_started_once(monkeypatch: pytest.MonkeyPatch) -> None:
    begun, goes_on, calls, session = threading.Event(), threading.Event(), [], object()

    def start() -> Any:
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

    def start() -> Any:
        tried.set()
        raise SandboxError("no Java", consequence="nothing was started", remedy="install one")

    monkeypatch.setattr(runtime, "local_session", start)
    one = made()
    one.start_spark()
    assert tried.wait(60)
    with pytest.raises(SandboxError, match="no Java"):
        _ = one.spark
