"""What tasks say: from INFO on, as the driver was asked to write its own log, and never beside a host's."""

from __future__ import annotations

import io
import json
import logging

import pytest

from mirrorlake.progress import log_context
from mirrorlake.runtime import WorkerLog

log = logging.getLogger("mirrorlake.some.room")


def as_a_worker(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Be a process in which nobody has configured logging, not even pytest; return its standard error."""
    own, out = logging.getLogger("mirrorlake"), io.StringIO()
    monkeypatch.setattr("sys.stderr", out)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(own, "handlers", [])
    monkeypatch.setattr(own, "level", own.level)
    return out


def test_lines_of_a_task_are_json_with_what_they_are_about(monkeypatch: pytest.MonkeyPatch) -> None:
    said = as_a_worker(monkeypatch)
    monkeypatch.setenv("MIRRORLAKE_LOG", "json")
    travels = WorkerLog.from_environment()
    # A worker runs many tasks.
    travels.attach()
    travels.attach()
    with log_context(flow="east->central", lane=1):
        log.info("lane.restart why=%s topic_partition=%s", "gone", "orders-3")
        log.debug("land.batch batch=%s", 1)
    [line] = said.getvalue().splitlines()
    found = json.loads(line)
    named = {name: found[name] for name in ("level", "event", "flow", "lane", "topic_partition")}
    assert named == {
        "level": "info",
        "event": "lane.restart",
        "flow": "east->central",
        "lane": 1,
        "topic_partition": "orders-3",
    }


def test_a_later_task_may_ask_for_another_level(monkeypatch: pytest.MonkeyPatch) -> None:
    said = as_a_worker(monkeypatch)
    for asked, lines in (("WARNING", 0), ("DEBUG", 1), ("no-level", 1)):
        monkeypatch.setenv("MIRRORLAKE_LOG", asked)
        WorkerLog.from_environment().attach()
        said.truncate(said.seek(0))
        log.debug("a.b") if asked == "DEBUG" else log.info("a.b")
        assert len(said.getvalue().splitlines()) == lines, asked


def test_what_a_host_has_configured_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    said = as_a_worker(monkeypatch)
    host = logging.StreamHandler(io.StringIO())
    for logger in (logging.getLogger(), logging.getLogger("mirrorlake")):
        logger.handlers = [host]
        WorkerLog().attach()
        assert logger.handlers == [host]
        logger.handlers = []
    assert not said.getvalue()
