"""Log lines say what they are about, to people and to programs alike."""

from __future__ import annotations

import json
import logging
import os
import re
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

from mirrorlake.progress.log_format import JsonLine, log_context
from tests.kit.commands import run_cli
from tests.site import ROOT


def record(message: str, *arguments: object, **more: Any) -> logging.LogRecord:
    return logging.getLogger("mirrorlake.test").makeRecord(
        "mirrorlake.test", logging.WARNING, "file.py", 1, message, arguments, more.pop("exc_info", None), **more
    )


def as_json(*arguments: Any, **more: Any) -> dict[str, Any]:
    line = JsonLine().format(record(*arguments, **more))
    assert "\n" not in line
    return dict(json.loads(line))


def test_the_pairs_of_a_message_and_what_it_is_about_are_fields() -> None:
    with log_context(flow="east->central", batch=7):
        told = as_json("lane.restart lane=%s doing=%s why=%s", 2, "commit", 'it said "no" and left=early')
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", told.pop("at"))
    assert told.pop("process") == os.getpid()
    assert told == {
        "level": "warning",
        "logger": "mirrorlake.test",
        "event": "lane.restart",
        "text": 'lane.restart lane=2 doing=commit why=it said "no" and left=early',
        "flow": "east->central",
        "batch": 7,
        "lane": 2,
        "doing": "commit",
        "why": 'it said "no" and left=early',
    }
    assert "flow" not in as_json("lane.restart lane=%s", 2), "only within the block"


def test_another_thread_is_about_something_else() -> None:
    found: list[dict[str, Any]] = []
    with log_context(flow="east->central"):
        thread = threading.Thread(target=lambda: found.append(as_json("stream.start what=%s", "land east")))
        thread.start()
        thread.join()
    assert "flow" not in found[0]


def test_a_line_of_a_library_keeps_its_words_and_a_traceback_is_one_field() -> None:
    told = as_json("BROKER %s", "down\nagain")
    assert ("event" in told, told["text"]) == (False, "BROKER down\nagain")
    try:
        raise ValueError("odd")
    except ValueError:
        told = as_json("duty.failed duty=%s", "groups", exc_info=sys.exc_info())
    assert (told["error"], "ValueError: odd" in told["traceback"]) == ("ValueError", True)
    assert as_json("stream.parked error=%s", "RecordTooLarge")["error"] == "RecordTooLarge"


def test_every_line_of_a_command_that_fails_is_json(tmp_path: Path) -> None:
    """Whoever ships logs reads standard error line by line."""
    conf = tmp_path / "mirror.yml"
    conf.write_text("lake: {root: ./lake}\n")
    command = [sys.executable, "-m", "mirrorlake", "status", "--conf", str(conf)]
    environment = {**os.environ, "MIRRORLAKE_LOG": "info,json"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert [(line["level"], line["event"], line["error"]) for line in lines] == [("error", "cli.error", "ConfigError")]
    assert "error:" in run_cli("status", "--conf", str(conf)).stderr, "for people it is a sentence"


def test_every_event_of_the_package_has_pairs_that_can_be_read() -> None:
    """Positional values have a name each, so that a program need not know the sentence."""
    calls = re.compile(r'\blog\.(?:info|warning|error|exception)\(\s*"([^"]+)"')
    for file in sorted((ROOT / "mirrorlake").rglob("*.py")):
        for message in calls.findall(file.read_text()):
            if message == "%s" or message.startswith("progress "):
                continue
            assert re.match(r"[a-z_]+\.[a-z_]+( |$)", message), f"{file.name}: {message}"
