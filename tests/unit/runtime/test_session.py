"""Whether Spark answers, asked without waiting for one that does not."""

from __future__ import annotations

import threading
from typing import Any, cast

import pytest

from mirrorlake.runtime import session


class Answering:
    version = "4.0.5"


class Ended:
    @property
    def version(self) -> str:
        raise ConnectionRefusedError("the JVM was killed")


class Silent:
    """A client of Spark Connect whose server is away tries again for minutes."""

    def __init__(self) -> None:
        self.is_over = threading.Event()

    @property
    def version(self) -> str:
        self.is_over.wait()
        return "4.0.5"


def test_a_session_whose_server_is_silent_holds_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not session.is_gone(cast("Any", Answering()))
    assert session.is_gone(cast("Any", Ended()))
    monkeypatch.setattr(session, "_ANSWERS_WITHIN_S", 0.01)
    silent = Silent()
    assert session.is_gone(cast("Any", silent))
    silent.is_over.set()
