"""The log file of a process, and what its tasks say; of no effect where a host has configured its log."""

from __future__ import annotations

import io
import logging
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from mirrorlake.runtime import WorkerLog, log_file, log_files, log_into_file, rotate_log


@pytest.fixture(autouse=True)
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Keep the log files of these tests in a folder of their own, and the loggers as they were."""
    monkeypatch.setenv("MIRRORLAKE_CACHE", str(tmp_path))
    log_files._made.cache_clear()
    loggers = [logging.getLogger(name) for name in ("py4j", "pyspark", "mirrorlake", "mirrorlake.kafka.client")]
    before = {logger: list(logger.handlers) for logger in loggers}
    for logger in loggers:
        logger.handlers = [one for one in logger.handlers if not isinstance(one, log_files._ToLogFile)]
    yield tmp_path
    for logger, handlers in before.items():
        logger.handlers = handlers
    log_files._made.cache_clear()


def test_the_newest_files_and_those_of_running_processes_stay_and_each_is_for_its_owner_only(place: Path) -> None:
    (place / "logs").mkdir()
    always_on = place / "logs" / f"20190101-000000-{os.getppid()}.log"
    always_on.touch()
    for at in range(log_files.MAX_FILES + 5):
        (place / "logs" / f"20200101-{at:06}-99999999.log").touch()
    found = log_file()
    assert found == log_file()
    assert stat.S_IMODE(found.stat().st_mode) == 0o600
    kept = sorted(path.name for path in (place / "logs").iterdir())
    assert len(kept) == log_files.MAX_FILES + 1
    assert (kept[0], kept[-1]) == (always_on.name, found.name)


def test_a_file_that_has_grown_is_begun_again_under_its_writers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_files, "MAX_BYTES", 100)
    path = log_file()
    with path.open("ab", buffering=0) as out:
        out.write(b"a" * 101)
        rotate_log()
        out.write(b"later")
    assert path.read_bytes() == b"later", "a hole would stand where the first lines stood"
    assert path.with_suffix(".log.1").read_bytes() == b"a" * 101


def test_what_libraries_log_reaches_the_file_and_not_the_screen(capsys: pytest.CaptureFixture[str]) -> None:
    path = log_into_file()
    assert log_into_file() == path
    logging.getLogger("mirrorlake.kafka.client").warning("GETPID failed: retrying")
    logging.getLogger("py4j.clientserver").error("closed")
    assert path.read_text().count("GETPID") == 1
    assert "closed" in path.read_text()
    assert capsys.readouterr().err == ""


def test_a_full_disk_is_said_once_and_not_with_a_traceback_for_each_line(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    library = logging.getLogger("py4j")
    library.addHandler(log_files._ToLogFile(Path("/dev/full")))
    for number in range(3):
        library.warning("line %s", number)
    assert [one.getMessage() for one in caplog.records if one.name == log_files.__name__] == [
        "log.not_written file=/dev/full why=[Errno 28] No space left on device"
    ]
    assert "Traceback" not in capsys.readouterr().err


log = logging.getLogger("mirrorlake.some.room")


def as_a_worker(monkeypatch: pytest.MonkeyPatch) -> io.StringIO:
    """Be a process in which nobody has configured logging, not even pytest; return its standard error."""
    own, out = logging.getLogger("mirrorlake"), io.StringIO()
    monkeypatch.setattr("sys.stderr", out)
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    monkeypatch.setattr(own, "handlers", [])
    monkeypatch.setattr(own, "level", own.level)
    return out


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
