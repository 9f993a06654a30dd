"""How a command ends: with its code and no word of its libraries; one that stays on says so, also where a batch does not end."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from mirrorlake import runtime
from mirrorlake.cli import stopping
from mirrorlake.errors import StoreError

# A stream that never ends by itself, and one of a library's threads that fails once it is told to.
_STUCK = """
import threading, time
from mirrorlake.cli import stopping
stopping.STOP_DEADLINE_S = 0.5

def stream(stop):
    print("up", flush=True)
    stop.wait()
    threading.Thread(target=lambda: 1 / 0).start()
    time.sleep(60)

def note(text):
    print(text, flush=True)

stopping.run_until_signal(stream, note=note, describe_progress=lambda: "7 records landed")
"""
# `mirrorlake run --json` over a mirror that is such a stream.
_STUCK_RUN = """
import sys, time
from types import SimpleNamespace
import mirrorlake.mirror
from mirrorlake.cli import main, stopping
from mirrorlake.mirror.results import LandResult, Ran
stopping.STOP_DEADLINE_S = 0.5

def stream(*_, stop, **__):
    print("up", file=sys.stderr, flush=True)
    stop.wait()
    time.sleep(60)

mirror = SimpleNamespace(run=stream, land=stream, progress=lambda: Ran([LandResult("east", 7)], []))
mirrorlake.mirror.load = lambda *_, **__: mirror
main(sys.argv[1:])
"""


def started(code: str) -> subprocess.Popen[str]:
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "up\n"
    return process


def test_a_batch_that_does_not_end_is_left_and_the_last_line_says_what_was_done() -> None:
    process = started(_STUCK)
    process.send_signal(signal.SIGTERM)
    out, err = process.communicate(timeout=60)
    first, last = out.splitlines()
    assert first.startswith("stopping: finishing the batch")
    assert last.startswith("7 records landed; stopped in the middle of a batch")
    assert process.returncode == 0
    assert "ZeroDivisionError" not in err


@pytest.mark.parametrize(
    ("command", "document"),
    [
        (["run"], {"landed": [{"source": "east", "records": 7, "paused": [], "notes": []}], "republished": []}),
        (["land", "--source", "east"], {"source": "east", "records": None, "paused": []}),
    ],
    ids=["run", "land"],
)
def test_a_batch_that_does_not_end_leaves_the_one_document_of_json(
    command: list[str], document: dict[str, object], tmp_path: Path
) -> None:
    arguments = [*command, "--json", "--conf", str(tmp_path / "mirror.yml")]
    process = subprocess.Popen(
        [sys.executable, "-c", _STUCK_RUN, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert process.stderr is not None
    while process.stderr.readline() not in ("up\n", ""):
        pass
    process.send_signal(signal.SIGTERM)
    out, _ = process.communicate(timeout=60)
    assert json.loads(out) == {**document, "interrupted": True}
    assert process.returncode == 0


def test_a_stream_that_ended_well_because_its_jvm_has_ended_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime, "is_host_gone", lambda: True)
    with pytest.raises(StoreError, match="Spark does not answer") as lost:
        stopping.run_until_signal(lambda stop: stop.wait(60))
    assert lost.value.exit_code == 4, "a scheduler starts another one"

    def asked(stop: threading.Event) -> str:
        stop.set()
        time.sleep(0.5)
        return "ended as it was asked to, and the JVM with it"

    assert stopping.run_until_signal(asked).startswith("ended")


# What `spark-submit` is: it starts the driver, and a signal ends it alone.
_SUBMIT = """
import os, subprocess, sys, threading
driver = '''
import time
from mirrorlake.cli import stopping
stopping._HOST_POLL_S, stopping._WITHOUT_HOST_S = 0.1, 0.5

def stream(stop):
    print("up", flush=True)
    time.sleep(60)

stopping.run_until_signal(stream)
'''
subprocess.Popen([sys.executable, "-c", driver], env={**os.environ, "PYSPARK_GATEWAY_PORT": "1"})
threading.Event().wait(60)
"""


def test_a_driver_ends_with_the_jvm_that_started_it_whatever_its_stream_waits_for() -> None:
    process = started(_SUBMIT)
    process.terminate()
    # The pipes end with the last process that holds them: the driver.
    _, err = process.communicate(timeout=30)
    assert "error: Spark does not answer: its JVM ended" in err


@pytest.mark.parametrize(("asked", "progress"), [(None, 1), ("WARNING", 0)])
def test_a_line_of_the_log_is_said_once_also_where_a_library_sets_logging_up(asked: str | None, progress: int) -> None:
    # As py4j does where the JVM has gone.
    code = (
        f"import logging; from mirrorlake.cli.output import log_to_stderr; log_to_stderr({asked!r});"
        "logging.warning('a library'); logging.getLogger('mirrorlake.x').warning('said once');"
        "logging.getLogger('mirrorlake.x').info('a detail'); logging.getLogger('mirrorlake.progress').info('7 records')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    told = [done.stderr.count(words) for words in ("said once", "a detail", "7 records")]
    assert (done.stdout, told) == ("", [1, 0, progress]), done.stderr
